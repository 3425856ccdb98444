"""Read a file of raw rows and write a file of predictions, in chunks.

Both files may be larger than memory.
"""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import pandas as pd
import pyarrow as pa
from pyarrow import fs

from sweeps.core.errors import InputError, Problem, first_line
from sweeps.data.columns.column_types import infer_types
from sweeps.data.columns.column_values import InvalidColumnValue
from sweeps.data.sources.data_files import SUFFIXES, SourceFiles, file_format
from sweeps.data.sources.file_blocks import read_blocks
from sweeps.data.sources.schema_probe import probe_schema
from sweeps.space.sections.data_models import ReadKeys

from .bundle_model import Bundle, load_bundle
from .manifest import Manifest

CHUNK_ROWS = 50_000  # rows in memory at a time
BUFFER_BYTES = 8 << 20  # bytes read at a time from a Parquet column


def predict_file(
    bundle: str | Path | Bundle,
    source: str | Path,
    target: str | Path | BinaryIO | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> pd.DataFrame | Path | str | BinaryIO:
    """Predict every row of a CSV, TSV, JSON lines or Parquet file.

    Args:
        bundle: The bundle's folder, or a sweep's folder. For a loaded bundle, `Bundle.unseen_notes`
            afterwards has a text for each column with values that training never saw.
        source: Raw rows with a header: a path, or a URI that Arrow reads (`file`, `s3`, `gs`,
            `hdfs`, `abfs`). Columns that the model does not use, such as the label, are ignored.
        target: Path, URI or stream for the predictions. The suffix of a path decides the format. A
            stream gets CSV. A file is written completely or not at all. If `target` is None,
            nothing is written, and the function returns a frame.
        on_progress: Function that is called after each chunk, with the number of rows predicted so
            far.

    Returns:
        The frame of predictions if `target` is None; otherwise `target`.

    Raises:
        InputError: A file is missing, damaged or in an unknown format; a column is missing or has
            invalid values; or the disk is full.
        BundleError: The bundle is damaged.
    """
    if isinstance(target, str | Path):
        target = check_files(source, target)
    else:
        check_files(source)
    loaded = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    rows = _with_file_errors(_read_rows(source, loaded.manifest), source)
    parts = _predict_chunks(loaded, rows, on_progress)
    if target is None:
        return pd.concat(list(parts), ignore_index=True)
    if not isinstance(target, str | Path):
        _write_text(parts, target, ".csv")
        return target
    with _atomic_output(target) as stream:
        if (kind := _format(target)) == ".parquet":
            _write_parquet(parts, stream)
        else:
            _write_text(parts, stream, kind)
    return target


def check_files(source: str | Path, target: str | Path | None = None) -> str | Path | None:
    """Check the paths of the files before the bundle is loaded.

    Returns:
        `target`, as a `Path` unless it is a URI.

    Raises:
        InputError: The input is missing, the path of the output cannot be written, or a name has an
            unknown suffix.
    """
    _format(source)
    system, path = _filesystem(source)
    if target is not None:
        _format(target)
        target = target if _is_uri(target) else Path(target)
    if isinstance(target, Path):
        if not target.parent.is_dir():
            raise InputError(str(target), f"the folder {target.parent} does not exist")
        if target.is_dir():
            raise InputError(str(target), "is a folder, but must be a file")
    try:
        file_type = system.get_file_info(path).type
    except OSError as e:
        raise InputError(str(source), f"cannot be read: {first_line(e)}") from None
    if file_type != fs.FileType.File:
        raise InputError(str(source), "the file does not exist")
    if target is not None and _is_same_file(source, target):
        raise InputError(
            str(target),
            "is the input file, and would be overwritten; name another output file with -o",
        )
    return target


def _format(path: str | Path) -> str:
    """Return the format of a file; see `file_format`.

    Raises:
        InputError: The suffix of the file's name is unknown.
    """
    if kind := file_format(str(path)):
        return kind
    text = (
        f"the name must end in {SUFFIXES}; in Python, `sweeps.load_bundle` predicts any data frame"
    )
    raise InputError(str(path), text)


def _is_uri(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _filesystem(path: str | Path) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system for a path or URI, and the path within it."""
    if not _is_uri(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        system, inner = fs.FileSystem.from_uri(str(path))
        return system, str(inner)
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(str(path), f"is not a URI that Arrow can read: {first_line(e)}") from None


def _is_same_file(source: str | Path, target: str | Path) -> bool:
    source_system, source_path = _filesystem(source)
    target_system, target_path = _filesystem(target)
    local = fs.LocalFileSystem
    if isinstance(source_system, local) and isinstance(target_system, local):
        return Path(target_path).exists() and Path(target_path).samefile(source_path)
    return (source_system, source_path) == (target_system, target_path)


def _read_rows(source: str | Path, manifest: Manifest) -> Iterator[pd.DataFrame]:
    """Yield the rows of a file in chunks, with only the columns that the model uses.

    If the bundle does not list the model's columns, the chunks have all columns. The first chunk is
    yielded even if the file has no rows.
    """
    system, path = _filesystem(source)
    read = ReadKeys(**manifest.training.get("read", {}))
    files = SourceFiles(str(source), place="", system=system, paths=(path,), folder=None, read=read)
    names = list(probe_schema(files, path).names)
    if manifest.columns:
        features = {column.name for column in manifest.columns}
        names = [name for name in names if name in features]
    if files.format == ".parquet":
        chunks = _read_parquet(files, names)
    else:
        chunks = _read_text(files, names, manifest)
    no_rows = pd.DataFrame(columns=names, dtype=object)
    yield next(chunks, no_rows)
    yield from chunks


def _read_text(files: SourceFiles, names: list[str], manifest: Manifest) -> Iterator[pd.DataFrame]:
    """Yield the rows of a CSV, TSV or JSON lines file."""
    # In these columns `00123` is text, not a number
    text_columns = {
        c.name
        for c in manifest.columns
        if c.type == "string" or (c.categories and isinstance(c.categories[0], str))
    }
    for table in read_blocks(files, files.paths[0], names):
        for start in range(0, len(table), CHUNK_ROWS):
            chunk = table.slice(start, CHUNK_ROWS)
            typed = infer_types(chunk) if files.is_text else chunk
            columns = {n: (chunk if n in text_columns else typed)[n] for n in names}
            yield pa.table(columns).to_pandas()


def _read_parquet(files: SourceFiles, names: list[str]) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    # With a buffer and without pre-buffering, Arrow reads a row group in parts, so the row group
    # may be larger than memory
    with (
        files.system.open_input_file(files.paths[0]) as opened,
        pq.ParquetFile(opened, buffer_size=BUFFER_BYTES, pre_buffer=False) as file,
    ):
        for batch in file.iter_batches(CHUNK_ROWS, columns=names):
            # A named index that pandas stored in the file becomes a column, as in training.
            yield batch.to_pandas(ignore_metadata=True)


def _with_file_errors(rows: Iterator[pd.DataFrame], source: str | Path) -> Iterator[pd.DataFrame]:
    """Yield the rows, and convert errors while reading to an `InputError` that names the file."""
    try:
        yield from rows
    except (ValueError, OSError) as e:  # includes Arrow's errors
        raise InputError(str(source), f"cannot be read: {first_line(e)}") from None


def _predict_chunks(
    bundle: Bundle, chunks: Iterator[pd.DataFrame], on_progress: Callable[[int], None] | None
) -> Iterator[pd.DataFrame]:
    """Yield the predictions of each chunk of raw rows. After each, call `on_progress`.

    Row numbers in error messages count from the beginning of the file.
    """
    done = 0
    for rows in chunks:
        bundle.count_unseen(rows)
        try:
            yield bundle.predict(rows)
        except InputError as e:
            raise InputError(_locate_in_file(p, done, len(rows)) for p in e.problems) from e
        done += len(rows)
        if on_progress is not None:
            on_progress(done)


def _locate_in_file(problem: Problem, before: int, rows: int) -> Problem:
    """Return a problem in a chunk with a row number that counts from the beginning of the file.

    Args:
        problem: The problem.
        before: Number of rows before the chunk.
        rows: Number of rows in the chunk.
    """
    if isinstance(problem, InvalidColumnValue):
        return problem.shifted(before)
    if problem.place != "rows":
        return problem
    return Problem(f"rows {before + 1} to {before + rows}", problem.text)


def _write_text(parts: Iterator[pd.DataFrame], stream: BinaryIO, kind: str) -> None:
    """Write predictions as CSV, TSV or JSON lines."""
    for i, part in enumerate(parts):
        if kind == ".jsonl":
            text = part.to_json(orient="records", lines=True)
        else:
            text = part.to_csv(sep="\t" if kind == ".tsv" else ",", header=not i, index=False)
        stream.write(text.encode())


def _write_parquet(parts: Iterator[pd.DataFrame], stream: BinaryIO) -> None:
    import pyarrow.parquet as pq

    first = next(parts)
    if first.empty:  # an empty part does not show the type of the classes
        first = next((part for part in parts if not part.empty), first)
    schema = pa.Table.from_pandas(first, preserve_index=False).schema
    with pq.ParquetWriter(stream, schema) as writer:
        for part in itertools.chain([first], parts):
            writer.write_table(pa.Table.from_pandas(part, schema=schema, preserve_index=False))


@contextlib.contextmanager
def _atomic_output(target: str | Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `target`.

    When the block ends without an error, this file replaces `target`.
    """
    system, path = _filesystem(target)
    final = PurePosixPath(path)
    # The name has the same suffix, because Arrow compresses `.gz`
    temporary = str(final.with_name(f".{uuid.uuid4().hex[:8]}-{final.name}"))
    try:
        with system.open_output_stream(temporary) as stream:
            yield stream
        system.move(temporary, path)
    except BaseException as e:
        with contextlib.suppress(OSError):
            system.delete_file(temporary)
        if isinstance(e, OSError):
            raise InputError(str(target), f"cannot be written: {first_line(e)}") from e
        raise
