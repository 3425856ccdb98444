"""Where rows come from: files, globs, folders and URIs through Ray Data's readers, toy sets of scikit-learn, a function."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import pandas as pd
import pyarrow as pa

from sweeps import refs
from sweeps.data.tables import CSV_MISSING, infer_types, tidy
from sweeps.errors import InputError, Problem, nearest

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
TOY_SETS = ("breast_cancer", "diabetes", "digits", "iris", "wine")
_SCHEMES = ("file", "gs", "s3", "hdfs", "abfs", "abfss")
_LFS = b"version https://git-lfs"
# A quoted field may hold a whole document; a row longer than a block cannot be read
_CSV_BLOCK = 32 << 20


def read(source: str, base: Path, place: str) -> pa.Table:
    """All rows of a source as one Arrow table in canonical types (`tables.tidy`).

    Files are read by Ray Data, in the order of their names; so Ray must run, or is started. The types of CSV columns are
    those that pandas would find.

    Args:
        source: `sklearn:NAME`, a path, glob, folder or URI, or `module:function`.
        base: relative paths are looked up here first, then in the working directory; modules too.
        place: the key of the space file, for messages.

    Raises:
        InputError: nothing is there, it cannot be read, or it holds no rows.
    """
    if source.startswith("sklearn:"):
        table = _toy(source.removeprefix("sklearn:"), place)
    elif "://" in source:
        table = _read_files(*_remote(source, place), source, place)
    elif _is_reference(source):
        table = _call(source, base, place)
    else:
        from pyarrow import fs

        files, folder = _local(source, base, place)
        table = _read_files(fs.LocalFileSystem(), files, folder, source, place)
    names = table.column_names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        _refuse(place, f"`{source}` has two columns named `{twice[0]}`")
    table = tidy(table)
    if not table.num_columns or not table.num_rows:
        _refuse(place, f"`{source}` has no {'rows' if table.num_columns else 'columns'}")
    return table


def _refuse(place: str, text: str, cause: BaseException | None = None) -> NoReturn:
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))  # it may quote what a broken file holds
    raise InputError(Problem(place, line if len(line) <= 500 else line[:500] + " ...")) from cause


def _is_reference(source: str) -> bool:
    try:
        refs.parse(source)
    except refs.RefError:
        return False
    return True


def _toy(name: str, place: str) -> pa.Table:
    """A data set that scikit-learn ships, features and `target` in one table."""
    if name not in TOY_SETS:
        _refuse(place, f"`sklearn:{name}` is no data set that scikit-learn ships; {nearest(name, TOY_SETS)}")
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


def _call(ref: str, base: Path, place: str) -> pa.Table:
    """What the user's function returns: a DataFrame, an Arrow table or a Ray Dataset."""
    with importable(base.absolute(), Path.cwd()):
        try:
            function = refs.resolve(ref)
        except refs.RefError as e:
            _refuse(place, str(e), e)
        if not callable(function):
            _refuse(place, f"`{ref}` is {type(function).__name__}, not a function")
        try:
            found = function()
            if isinstance(found, pa.Table):
                return found
            if isinstance(found, pd.DataFrame):
                return pa.Table.from_pandas(found, preserve_index=False)
            if hasattr(found, "to_arrow_refs"):
                return _collect(lambda: found)
        except Exception as e:
            _refuse(place, f"`{ref}` failed: {type(e).__name__}: {e}", e)
    kind = f"{type(found).__module__}.{type(found).__qualname__}".removeprefix("builtins.")
    _refuse(place, f"`{ref}` returned {kind}; it must return a pandas DataFrame, an Arrow table or a Ray Dataset")


def _local(source: str, base: Path, place: str) -> tuple[list[str], str | None]:
    """The files that a path, folder or glob names, sorted; and the folder, if it is one."""
    tried = [base / source, Path(source)]
    for path in tried:
        if path.is_file():
            return [str(path.absolute())], None
        if path.is_dir():
            found = [p for p in path.rglob("*") if p.is_file() and not any(x[0] in "._" for x in p.relative_to(path).parts)]
            files = sorted(str(p.absolute()) for p in found if _suffix(p.name))
            if not files:
                _refuse(place, f"folder `{source}` holds no data file; valid suffixes: {', '.join(SUFFIXES)}")
            return files, str(path.absolute())
    if glob.has_magic(source):
        for path in tried:
            files = sorted(str(Path(p).absolute()) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
            if files:
                return files, None
        _refuse(place, f"no file matches `{source}`")
    siblings = sorted(p.name for p in tried[0].parent.iterdir()) if tried[0].parent.is_dir() else []
    hint = nearest(Path(source).name, siblings)
    _refuse(place, f"`{source}` does not exist" + (f"; {hint}" if hint.startswith("did") else ""))


def _remote(source: str, place: str) -> tuple[Any, list[str], str | None]:
    """The file system of a URI and the sorted files that it names there; and the folder, if it is one."""
    from pyarrow import fs

    scheme = source.partition("://")[0]
    if scheme not in _SCHEMES:
        _refuse(place, f"`{source}`: unknown scheme `{scheme}`; {nearest(scheme, _SCHEMES)}")
    try:
        system, path = fs.FileSystem.from_uri(source.replace("*", "%2A").replace("[", "%5B") if "*" in source else source)
        path = path.replace("%2A", "*").replace("%5B", "[")
        if glob.has_magic(path):
            fixed = str(PurePosixPath(*_until_magic(PurePosixPath(path).parts)))
            found = system.get_file_info(fs.FileSelector(fixed, recursive=True, allow_not_found=True))
            files = sorted(i.path for i in found if i.is_file and fnmatch.fnmatchcase(i.path, path))
            return (system, files, None) if files else _refuse(place, f"no file matches `{source}`")
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            _refuse(place, f"`{source}` does not exist")
        if info.is_file:
            return system, [path], None
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
        files = sorted(i.path for i in found if i.is_file and _suffix(i.base_name) and i.base_name[0] not in "._")
        return (system, files, path) if files else _refuse(place, f"folder `{source}` holds no data file")
    except (OSError, pa.ArrowException, ValueError) as e:
        _refuse(place, f"`{source}` cannot be read: {_first_line(e)}", e)


def _until_magic(parts: tuple[str, ...]) -> Iterator[str]:
    for part in parts:
        if glob.has_magic(part):
            return
        yield part


def _suffix(name: str) -> str | None:
    return next((s for s in sorted(SUFFIXES, key=len, reverse=True) if name.lower().endswith(s)), None)


def _first_line(e: BaseException) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0]


def _read_files(system: Any, files: list[str], folder: str | None, source: str, place: str) -> pa.Table:
    """One table of all files, which must be of one kind and have the same columns."""
    columns: dict[str, list[str]] = {}
    for file in files:
        shown = source if len(files) == 1 else file
        try:
            columns[file] = _peek(system, file)
        except (OSError, pa.ArrowException, ValueError) as e:
            _refuse(place, f"`{shown}` cannot be read: {_first_line(e)}", e)
    first = columns[files[0]]
    for file, names in columns.items():
        if set(names) != set(first):
            lacks, more = sorted(set(first) - set(names)), sorted(set(names) - set(first))
            texts = [f"lacks {_listed(lacks)}"] * bool(lacks) + [f"has {_listed(more)} more"] * bool(more)
            _refuse(place, f"`{file}` {' and '.join(texts)}, against `{files[0]}`; all files of a source need the same columns")
    kinds = {(_suffix(f) or "").removesuffix(".gz").replace("pq", "parquet") for f in files}
    if len(kinds) > 1:
        _refuse(place, f"`{source}` mixes {' and '.join(sorted(kinds))} files; use one kind")
    text = kinds != {".parquet"}
    try:
        blocks = _collect(lambda: _dataset(system, files, folder, first, text))
    except Exception as e:
        _refuse(place, f"`{source}` cannot be read: {_why(system, files, first, e) if text else _first_line(e)}", e)
    if not text:
        return blocks
    # an index that was written without a name; pandas calls it so too
    blocks = blocks.rename_columns([name or f"Unnamed: {i}" for i, name in enumerate(blocks.column_names)])
    return infer_types(blocks)


def _listed(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(f"`{n}`" for n in names)


def _peek(system: Any, file: str) -> list[str]:
    """The column names of a file, read from its head alone.

    Raises:
        ValueError: it is not what its name says; `OSError` and Arrow's errors too.
    """
    with system.open_input_stream(file, compression=None) as stream:
        head = stream.read(4096)
    if head.startswith(_LFS):
        raise ValueError("it is a Git LFS pointer, not the data; run `git lfs pull`")
    suffix = _suffix(file)
    if suffix is None:
        raise ValueError(f"unsupported suffix; valid: {', '.join(SUFFIXES)}")
    if not head:
        raise ValueError("it is empty")
    if suffix in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        if head[:4] not in (b"PAR1", b"PARE"):
            raise ValueError("it is not a Parquet file")
        with system.open_input_file(file) as opened:
            return pq.read_schema(opened).names
    if suffix.endswith(".gz") and head[:2] != b"\x1f\x8b":
        raise ValueError("it is not compressed with gzip, as its name says")
    if not suffix.endswith(".gz") and b"\0" in head:
        raise ValueError("it is not text")
    from pyarrow import csv

    with system.open_input_stream(file) as stream:
        names = csv.open_csv(stream, **_csv_options(file)).schema.names
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise ValueError(f"two columns are named `{twice[0]}`")
    return names


def _csv_options(file: str, names: list[str] | None = None) -> dict[str, Any]:
    """Arrow's options to read CSV as pandas does. With names, every column stays text: types are found on all rows."""
    from pyarrow import csv

    return {
        "read_options": csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
        "parse_options": csv.ParseOptions(newlines_in_values=True, delimiter="\t" if ".tsv" in file.lower()[-7:] else ","),
        "convert_options": csv.ConvertOptions(
            column_types={name: pa.string() for name in names or ()},
            null_values=list(CSV_MISSING),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    }


def _dataset(system: Any, files: list[str], folder: str | None, names: list[str], text: bool) -> Any:
    import ray.data
    from ray.data.datasource import Partitioning, PartitionStyle

    # only below a folder that was named do `year=2020/` and the like mean columns
    hive = folder is not None and any("=" in f.removeprefix(folder) for f in files)
    partitioning: Any = Partitioning(PartitionStyle.HIVE, base_dir=folder) if hive else None
    if text:
        return ray.data.read_csv(files, filesystem=system, partitioning=partitioning, file_extensions=None, **_csv_options(files[0], names))
    return ray.data.read_parquet(files, filesystem=system, partitioning=partitioning, file_extensions=None)


def _why(system: Any, files: list[str], names: list[str], error: BaseException) -> str:
    """What is wrong with a CSV file: Ray's error names the file alone, so the culprit is read again here."""
    from pyarrow import csv

    for file in files:
        try:
            with system.open_input_stream(file) as stream:
                csv.read_csv(stream, **_csv_options(file, names))
        except (OSError, pa.ArrowException) as e:
            return _first_line(e) + (f" (in {file})" if len(files) > 1 else "")
    return _first_line(error)


def _collect(make: Callable[[], Any]) -> pa.Table:
    """The rows of a Ray Dataset in order, as one table whose columns are in the order of its first block."""
    import ray

    with quiet():
        blocks = [b for b in ray.get(make().to_arrow_refs()) if b.num_columns]
    filled = [b for b in blocks if b.num_rows] or blocks[:1]
    if not filled:
        return pa.table({})
    order = filled[0].column_names
    return pa.concat_tables([b.select(order).replace_schema_metadata(None) for b in filled], promote_options="permissive")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
