"""Save the tables that a Python script passes to `sweeps.run`.

Each table is copied to the sweep's folder as Parquet, so that `resume` and `rerun` work without the
script. The rows of a lazy table, such as a frame of Dask, are computed for this.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.space.python.table_overrides import KEYS


def named_tables(data: Any) -> dict[str, Any]:
    """Return the tables that a script passed, by the key of the section `data`.

    Args:
        data: A table, which is `data.train`; or a mapping from `train`, `valid` and `test` to
            tables, such as a `DatasetDict` of Hugging Face.

    Raises:
        InputError: A key of the mapping is unknown.
    """
    tables = dict(data) if isinstance(data, Mapping) else {"train": data}
    if "validation" in tables and "valid" not in tables:  # as in a `DatasetDict` of Hugging Face
        tables["valid"] = tables.pop("validation")
    valid = ", ".join(KEYS)
    problems = [
        Problem("data", f"`{key}` is not a key for a table; valid: {valid}")
        for key in tables
        if key not in KEYS
    ]
    if problems:
        raise InputError(problems)
    return tables


def save_tables(tables: Mapping[str, Any], folder: Path) -> None:
    """Write tables to files in a new folder, such as `train.parquet`.

    A Ray Dataset becomes a folder of files.

    Args:
        tables: Tables by the key of the section `data`.
        folder: The folder.

    Raises:
        InputError: An object is no table, or a table cannot be written. The error lists all such
            tables.
    """
    from .sources import qualified_name

    folder.mkdir(parents=True)
    problems = []
    for key, table in tables.items():
        try:
            _save(table, folder / f"{key}.parquet")
        except InputError:
            raise
        except Exception as e:
            reason = "; ".join(map(str, e.args)).partition("\n")[0] or type(e).__name__
            text = f"{qualified_name(table)} cannot be stored: {reason}"
            problems.append(Problem(f"data.{key}", f"{text}; give each column values of one type"))
    if problems:
        raise InputError(problems)


def _save(table: Any, file: Path) -> None:
    """Write a table to a Parquet file, or a Ray Dataset to a folder; see `save_tables`."""
    import pyarrow.parquet

    from .ray_data import quiet_ray_data
    from .sources import qualified_name, to_arrow

    if hasattr(table, "to_arrow_refs"):  # a Ray Dataset, which may be larger than memory
        with quiet_ray_data():
            table.write_parquet(str(file))
        return
    rows = to_arrow(table)
    if rows is None:
        expected = (
            "a frame of pandas, Polars or Dask, an Arrow table, a Ray Dataset, or a dataset of "
            "Hugging Face"
        )
        raise InputError(f"data.{file.stem}", f"is {qualified_name(table)}, but must be {expected}")
    pyarrow.parquet.write_table(rows, file)
