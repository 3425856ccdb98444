"""Save the tables that a Python script passes to `sweeps.run`, so that `resume` and `rerun` work without the script.

A table in memory is copied to the sweep's folder as Parquet. A lazy table, such as a frame of Dask,
is stored as its recipe. The recipe is a pickle of the object without its rows, signed with the
user's key. The sweep computes the rows when it reads its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import trust
from sweeps.core.errors import InputError, Problem
from sweeps.space.passed_tables import KEYS, LAZY, ROWS

if TYPE_CHECKING:
    import pyarrow as pa


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
    if wrong := [key for key in tables if key not in KEYS]:
        raise InputError(
            [
                Problem("data", f"`{key}` is not a key for a table; valid: {', '.join(KEYS)}")
                for key in wrong
            ]
        )
    return tables


def save_tables(tables: Mapping[str, Any], folder: Path) -> None:
    """Write tables to a new folder: `train.parquet` for a table in memory, `train.lazy` for a lazy table.

    Args:
        tables: Tables by the key of the section `data`.
        folder: The folder.

    Raises:
        InputError: An object is no table, or a table cannot be written. The error lists all such
            tables.
    """
    folder.mkdir(parents=True)
    problems = []
    for key, table in tables.items():
        try:
            _save(table, folder / key)
        except InputError:
            raise
        except Exception as e:
            reason = "; ".join(map(str, e.args)).partition("\n")[0] or type(e).__name__
            text = f"{_kind(table)} cannot be stored: {reason}"
            problems.append(Problem(f"data.{key}", f"{text}; give each column values of one type"))
    if problems:
        raise InputError(problems)


def lazy_files(folder: Path) -> Iterable[Path]:
    """Return the recipes of lazy tables in a folder."""
    return sorted(folder.glob(f"*{LAZY}"))


def check_recipes(folder: Path, trusted: bool) -> None:
    """Check the recipes of lazy tables in a sweep's folder before its data is read.

    Args:
        folder: The folder of the tables.
        trusted: True to accept recipes that this user's key has not signed. They are signed, so
            that the data actor reads them, too.

    Raises:
        UntrustedFile: A recipe is not signed with this user's key.
    """
    for recipe in lazy_files(folder):
        trust.read(recipe, trusted)
        if trusted:
            trust.sign(recipe)


def load_lazy(file: Path) -> Any:
    """Return a lazy table. Nothing is computed.

    Raises:
        UntrustedFile: The recipe is not signed with this user's key.
    """
    import pickle

    kind, _, recipe = trust.read(file).partition(b"\n")
    if kind == b"ray":
        from ray.data import Dataset

        return Dataset.deserialize_lineage(recipe)
    return pickle.loads(recipe)


def _save(table: Any, file: Path) -> None:
    import pyarrow.parquet

    from sweeps.data.sources import to_arrow

    if (recipe := _recipe(table)) is not None:
        target = file.with_suffix(LAZY)
        target.write_bytes(recipe)
        trust.sign(target)
        return
    rows: pa.Table | None = (
        _rows_of_dataset(table) if hasattr(table, "to_arrow_refs") else to_arrow(table)
    )
    if rows is None:
        expected = (
            "a frame of pandas, Polars or Dask, an Arrow table, a Ray Dataset, or a dataset of "
            "Hugging Face"
        )
        raise InputError(f"data.{file.name}", f"is {_kind(table)}, but must be {expected}")
    pyarrow.parquet.write_table(rows, file.with_suffix(ROWS))


def _recipe(table: Any) -> bytes | None:
    """Return the bytes from which `load_lazy` makes a lazy table again; None for a table in memory."""
    module = type(table).__module__.partition(".")[0]
    if hasattr(table, "to_arrow_refs"):
        return b"ray\n" + table.serialize_lineage() if table.has_serializable_lineage() else None
    if (
        module == "dask"
        or (module == "polars" and hasattr(table, "collect"))
        or (module == "datasets" and not hasattr(table, "__len__"))
    ):
        import cloudpickle

        return b"pickle\n" + bytes(cloudpickle.dumps(table))
    return None


def _rows_of_dataset(dataset: Any) -> pa.Table:
    from sweeps.data.sources import dataset_to_arrow

    return dataset_to_arrow(dataset)


def _kind(table: Any) -> str:
    return f"{type(table).__module__}.{type(table).__qualname__}".removeprefix("builtins.")
