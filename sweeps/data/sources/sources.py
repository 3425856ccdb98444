"""Read the rows of a data source.

Arrow reads files in this process, because tasks of Ray would copy the rows, and their processes
would keep memory afterwards. The other sources are data sets of scikit-learn and users' functions.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from sweeps.core.errors import InputError
from sweeps.core.plugins import references
from sweeps.core.text import environment_variables
from sweeps.core.text.suggestions import did_you_mean
from sweeps.data.columns.column_types import extension_name
from sweeps.data.columns.tables import arrays_to_tensors, canonical_table, drop_index_names
from sweeps.loaders.lookup import relative_to

from . import sklearn_datasets
from .data_files import Source, SourceFiles, find_files, raise_problem
from .file_blocks import text_blocks
from .file_rows import read_columns
from .ray_data import quiet_ray_data
from .schema_probe import probe_schemas

if TYPE_CHECKING:
    from ray.data import Dataset

T = TypeVar("T")

# Rows of one batch of an `IterableDataset` of Hugging Face.
BATCH_ROWS = 10_000


def read_source(source: Source) -> pa.Table:
    """Read all rows of a source as one Arrow table with canonical types.

    For these types, see `tables.canonical_table`. Files are read in the order of their names. The
    columns of text files get the types that pandas would infer.

    Raises:
        InputError: The source does not exist, cannot be read, has no rows, or has two columns with
            the same name.
    """
    if source.name.startswith("sklearn:"):
        table = _read_sklearn(source)
    elif is_loader(source.name):
        table = call_loader(source, dataset_to_arrow)
    else:
        files = find_files(source)
        schemas = probe_schemas(files)
        fields = [field for schema in schemas for field in schema.schema]
        if any(map(extension_name, fields)):
            import ray.data  # noqa: F401 - Arrow then knows Ray Data's type of tensors
        table = read_columns(files, (*schemas[0].names, *files.partition_columns))
    names = table.column_names
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise_problem(source.place, f"`{source.name}` has two columns named `{min(duplicates)}`")
    table = canonical_table(table)
    if not table.num_columns or not table.num_rows:
        lacking = "rows" if table.num_columns else "columns"
        raise_problem(source.place, f"`{source.name}` has no {lacking}")
    return table


def _read_sklearn(source: Source) -> pa.Table:
    """Return a data set that is part of scikit-learn as one table.

    The table has the features and the label `target`.
    """
    name = source.name.removeprefix("sklearn:")
    if name not in sklearn_datasets.COLUMNS:
        raise_problem(
            source.place,
            f"`sklearn:{name}` is not a data set that scikit-learn ships; "
            f"{did_you_mean(name, sklearn_datasets.COLUMNS)}",
        )
    from sklearn import datasets

    return pa.Table.from_pandas(
        getattr(datasets, f"load_{name}")(as_frame=True).frame, preserve_index=False
    )


@contextlib.contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Within the `with` block, modules in these folders can be imported."""
    added = [str(f) for f in folders if str(f) not in sys.path]
    sys.path[:0] = added
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


@contextlib.contextmanager
def pickled_by_value(folder: Path) -> Iterator[None]:
    """Call `pickle_by_value` for the `with` block, and undo its effect at the end.

    Ray's tasks, such as those of Ray Data and of Dask on Ray, can then run them. The processes of
    these tasks cannot import the modules.
    """
    pickler = importlib.import_module("ray.cloudpickle")
    added = pickle_by_value(folder)
    try:
        yield
    finally:
        for module in added:
            pickler.unregister_pickle_by_value(module)


def pickle_by_value(folder: Path) -> list[ModuleType]:
    """Pickle functions and classes of the modules in a folder with their code from now on.

    Return the modules for which this is new.
    """
    pickler = importlib.import_module("ray.cloudpickle")
    registered = {"__main__", *pickler.list_registry_pickle_by_value()}
    added = []
    for name, module in sys.modules.copy().items():  # another thread may import modules
        if name in registered or name.partition(".")[0] == "sweeps":
            continue
        file = Path(getattr(module, "__file__", None) or "")
        if file.is_relative_to(folder) and "site-packages" not in file.parts:
            pickler.register_pickle_by_value(module)
            added.append(module)
    return added


def is_loader(source: str) -> bool:
    """Return whether a source is a user's function, `module:function`."""
    return (
        "://" not in source
        and not source.startswith("sklearn:")
        and references.is_reference(source)
    )


def call_loader(source: Source, of_dataset: Callable[[Dataset], T]) -> T | pa.Table:
    """Call a loader.

    Return the result of `of_dataset` if the loader returns a Ray Dataset; otherwise an Arrow table.

    Raises:
        InputError: See `read_source`.
    """
    ref = source.name
    place = source.place
    base = source.base.absolute()
    with importable(base, Path.cwd()), relative_to(base):
        try:
            function = references.resolve(ref)
        except references.RefError as e:
            raise_problem(place, str(e), e)
        if not callable(function):
            raise_problem(
                place, f"`{ref}` has the type {type(function).__name__}, but must be a function"
            )
        try:
            # A Ray Dataset keeps the options with which it was made.
            with quiet_ray_data(), pickled_by_value(base):
                result = function(**environment_variables.resolve(dict(source.args), os.environ))
                table = of_dataset(result) if hasattr(result, "to_arrow_refs") else to_arrow(result)
            if table is not None:
                return table
        except InputError:  # a user's function may raise this error on purpose
            raise
        except Exception as e:
            raise_problem(place, f"`{ref}` failed: {type(e).__name__}: {e}", e)
    raise_problem(
        place,
        f"`{ref}` returned {qualified_name(result)}, but must return a pandas DataFrame, an Arrow "
        "table or a Ray Dataset",
    )


def qualified_name(value: object) -> str:
    """Return the name of a value's type with its module, such as `pandas.DataFrame` or `int`."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def to_arrow(result: Any) -> pa.Table | None:
    """Convert the result of a loader to a table. Return None for an object of another type.

    The result may be a frame of pandas, Polars or Dask, an Arrow table, a dataset of Hugging Face,
    or another object that exports Arrow data. An object of Dask is computed, and an
    `IterableDataset` of Hugging Face is read to its end.
    """
    import pandas as pd

    library = type(result).__module__.partition(".")[0]
    if library == "dask":
        result = result.compute()
    if library == "polars":
        import polars

        if isinstance(result, polars.LazyFrame):
            result = result.collect()
        if isinstance(result, polars.DataFrame):
            # Arrow cannot cast categories of the newer type of text
            return result.to_arrow(compat_level=polars.CompatLevel.oldest())
    if hasattr(result, "with_format") and hasattr(result, "features"):  # a dataset of Hugging Face
        arrow = result.with_format("arrow")
        if hasattr(arrow, "__len__"):
            return arrow[:]
        # Each batch has types of its own.
        return pa.concat_tables(arrow.iter(batch_size=BATCH_ROWS), promote_options="permissive")
    if isinstance(result, pa.Table):
        return result
    if isinstance(result, pd.DataFrame):
        return pa.Table.from_pandas(arrays_to_tensors(result), preserve_index=False)
    if hasattr(result, "__arrow_c_stream__"):
        return pa.table(result)
    return None


def dataset_to_arrow(dataset: Dataset) -> pa.Table:
    """Compute the rows of a Ray Dataset.

    The columns are in the order of the first block that has rows.
    """
    import ray

    with quiet_ray_data():
        blocks = [b for b in ray.get(dataset.to_arrow_refs()) if b.num_columns]
    blocks = [b for b in blocks if b.num_rows] or blocks[:1]
    if not blocks:
        return pa.table({})
    names = drop_index_names(blocks[0].column_names)
    parts = [b.select(names).replace_schema_metadata(None) for b in blocks]
    return pa.concat_tables(parts, promote_options="permissive")


def ray_dataset(files: SourceFiles) -> Dataset:
    """Return a lazy Ray Dataset of text files, whose columns are texts, or of Parquet files."""
    import ray.data
    from ray.data.datasource import FileBasedDatasource, Partitioning, PartitionStyle

    class TextFiles(FileBasedDatasource):
        def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
            yield from text_blocks(files, path)

    partitioning = None
    if files.partition_columns:  # the folders have names such as `year=2020`
        partitioning = Partitioning(PartitionStyle.HIVE, base_dir=files.folder)
    settings: dict[str, Any] = {
        "filesystem": files.system,
        "partitioning": partitioning,
        "file_extensions": None,
    }
    paths = list(files.paths)
    if files.is_text:
        dataset: Dataset = ray.data.read_datasource(TextFiles(paths, **settings))
    else:
        dataset = ray.data.read_parquet(paths, **settings)
    return dataset
