"""Where rows come from: files, globs, folders and URIs through Ray Data's readers, toy sets of scikit-learn, a function."""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sweeps.core import references
from sweeps.core.errors import InputError
from sweeps.core.suggestions import did_you_mean
from sweeps.data import sklearn_datasets
from sweeps.data.files import SourceFiles, find_files, first_line, is_reference, raise_problem
from sweeps.data.schema_probe import csv_options, pandas_names, probe_schemas
from sweeps.data.tables import canonical_table, drop_index_names, infer_types

if TYPE_CHECKING:
    import pandas as pd


def read_source(source: str, base: Path, place: str, args: Mapping[str, Any] | None = None) -> pa.Table:
    """All rows of a source as one Arrow table in canonical types (`tables.tidy`).

    Files are read by Ray Data, in the order of their names; so Ray must run, or is started. The types of CSV columns are
    those that pandas would find.

    Args:
        source: `sklearn:NAME`, a path, glob, folder or URI, or `module:function`.
        base: relative paths are looked up here first, then in the working directory; modules too.
        place: the key of the space file, for messages.
        args: the keyword arguments of a function.

    Raises:
        InputError: nothing is there, it cannot be read, or it holds no rows.
    """
    if source.startswith("sklearn:"):
        table = _read_sklearn(source.removeprefix("sklearn:"), place)
    elif "://" not in source and is_reference(source):
        table = _call_loader(source, base, place, args or {})
    else:
        table = _read_files(find_files(source, base, place))
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise_problem(place, f"`{source}` has two columns named `{twice[0]}`")
    table = canonical_table(table)
    if not table.num_columns or not table.num_rows:
        raise_problem(place, f"`{source}` has no {'rows' if table.num_columns else 'columns'}")
    return table


def _read_sklearn(name: str, place: str) -> pa.Table:
    """A data set that scikit-learn ships, features and `target` in one table."""
    if name not in sklearn_datasets.NAMES:
        raise_problem(place, f"`sklearn:{name}` is no data set that scikit-learn ships; {did_you_mean(name, sklearn_datasets.NAMES)}")
    from sklearn import datasets

    return pa.Table.from_pandas(getattr(datasets, f"load_{name}")(as_frame=True).frame, preserve_index=False)


@contextlib.contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Modules beside the space file can be imported inside this block."""
    added = [str(f) for f in folders if str(f) not in sys.path]
    sys.path[:0] = added
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for folder in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def _call_loader(ref: str, base: Path, place: str, args: Mapping[str, Any]) -> pa.Table:
    """What the user's function returns: a DataFrame, an Arrow table or a Ray Dataset."""
    import pandas as pd

    with importable(base.absolute(), Path.cwd()):
        try:
            function = references.resolve(ref)
        except references.RefError as e:
            raise_problem(place, str(e), e)
        if not callable(function):
            raise_problem(place, f"`{ref}` is {type(function).__name__}, not a function")
        try:
            found = function(**args)
            if isinstance(found, pa.Table):
                return found
            if isinstance(found, pd.DataFrame):
                return pa.Table.from_pandas(arrays_to_tensors(found), preserve_index=False)
            if hasattr(found, "to_arrow_refs"):
                return _to_arrow(lambda: found)
        except InputError:  # a loader may say it in our way
            raise
        except Exception as e:
            raise_problem(place, f"`{ref}` failed: {type(e).__name__}: {e}", e)
    kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
    raise_problem(place, f"`{ref}` returned {kind}; it must return a pandas DataFrame, an Arrow table or a Ray Dataset")


def arrays_to_tensors(frame: pd.DataFrame, names: Collection[str] = ()) -> pd.DataFrame:
    """Columns of NumPy arrays as Ray Data's tensors, which Arrow can hold and loops read in batches.

    Args:
        frame: rows. Their arrays of two and more dimensions become tensors; those of one stay lists, as Arrow has them.
        names: columns whose arrays become tensors whatever their dimensions.
    """

    def arrays(name: Any) -> bool:
        values = frame[name]
        first = values.iloc[0] if len(values) and values.dtype == object else None
        return isinstance(first, np.ndarray) and first.dtype != object and (first.ndim > 1 or name in names)

    found = [name for name in frame.columns if arrays(name)]
    if not found:
        return frame
    from ray.data.extensions import TensorArray

    return frame.assign(**{name: TensorArray(list(frame[name])) for name in found})


def _read_files(files: SourceFiles) -> pa.Table:
    """One table of all files, which must be of one kind and have the same columns."""
    first = list(probe_schemas(files)[0].names)
    text = not files.paths[0].lower().endswith((".parquet", ".pq"))
    try:
        blocks = _to_arrow(lambda: _ray_dataset(files, first, text))
    except Exception as e:
        raise_problem(files.place, f"`{files.source}` cannot be read: {_csv_error(files, first, e) if text else first_line(e)}", e)
    return infer_types(blocks.rename_columns(pandas_names(blocks.column_names))) if text else blocks


def _ray_dataset(files: SourceFiles, names: list[str], text: bool) -> Any:
    import ray.data
    from ray.data.datasource import Partitioning, PartitionStyle

    hive: Any = Partitioning(PartitionStyle.HIVE, base_dir=files.folder) if files.partition_columns else None
    given: dict[str, Any] = {"filesystem": files.system, "partitioning": hive, "file_extensions": None}
    if text:
        return ray.data.read_csv(list(files.paths), **given, **csv_options(files.paths[0], names))
    return ray.data.read_parquet(list(files.paths), **given)


def _csv_error(files: SourceFiles, names: list[str], error: BaseException) -> str:
    """What is wrong with a CSV file: Ray's error names the file alone, so the culprit is read again here."""
    from pyarrow import csv

    for path in files.paths:
        try:
            with files.system.open_input_stream(path) as stream:
                csv.read_csv(stream, **csv_options(path, names))
        except (OSError, pa.ArrowException) as e:
            return first_line(e) + (f" (in {path})" if len(files.paths) > 1 else "")
    return first_line(error)


def _to_arrow(make: Callable[[], Any]) -> pa.Table:
    """The rows of a Ray Dataset in order, as one table whose columns are in the order of its first block."""
    import ray

    with quiet_ray_data():
        blocks = [b for b in ray.get(make().to_arrow_refs()) if b.num_columns]
    filled = [b for b in blocks if b.num_rows] or blocks[:1]
    if not filled:
        return pa.table({})
    order = drop_index_names(filled[0].column_names)
    return pa.concat_tables([b.select(order).replace_schema_metadata(None) for b in filled], promote_options="permissive")


@contextlib.contextmanager
def quiet_ray_data() -> Iterator[None]:
    """Ray Data without progress bars and chatter, its blocks in order, so that reading and fitting twice gives the same bits."""
    from ray.data import DataContext

    context, logger = DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, context.execution_options.preserve_order, logger.level
    logger.setLevel(logging.CRITICAL)  # what fails is raised, so it need not be printed as well
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    try:
        yield
    finally:
        context.enable_progress_bars, context.execution_options.preserve_order = before[0], before[1]
        logger.setLevel(before[2])
