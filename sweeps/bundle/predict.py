"""A file of raw rows in, a file of predictions out: in pieces, so that either may be larger than the memory."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
from pyarrow import fs

from sweeps.bundle.manifest import Manifest
from sweeps.bundle.model import Bundle, load_bundle
from sweeps.bundle.schema import InvalidValue, enforce_schema
from sweeps.core.errors import InputError, Problem
from sweeps.data.files import first_line
from sweeps.data.schema_probe import COLUMN_BLOCK, CSV_BLOCK, csv_options, pandas_names, probe_schema
from sweeps.data.tables import infer_types

CHUNK_ROWS = 50_000  # rows held at once
BUFFER_BYTES = 8 << 20  # bytes of a column of Parquet
CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


def predict_file(
    bundle: str | Path,
    source: str | Path,
    target: str | Path | BinaryIO | None = None,
    on_progress: Callable[[int], None] | None = None,
    workers: int = 1,
) -> pd.DataFrame | Path | str | BinaryIO:
    """Predict every row of a CSV or Parquet file.

    Args:
        bundle: the bundle's folder, or a sweep's.
        source: raw rows with a header, a path or a URI that Arrow reads (`file`, `s3`, `gs`, `hdfs`, `abfs`); columns that the model
            does not use, such as the label, are ignored.
        target: where to write, a path or a URI, CSV or Parquet by its suffix; put in its place in one step, or not at all. A stream gets
            CSV, likewise when all is predicted, from a temporary file. None returns the frame.
        on_progress: called with the rows that are predicted so far.
        workers: processes that predict; more than one read a Parquet file, through Ray Data, a row group at a time each.

    Raises:
        InputError: a file that is missing, of another format or broken; a column that is missing or of another type; no room to write.
        BundleError: the bundle is broken.
    """
    kind = _file_format(source)
    if isinstance(target, str | Path):
        _file_format(target)
    system, path = _filesystem(source)
    if isinstance(target, str | Path) and not _is_uri(target):
        target = Path(target)
        if not target.parent.is_dir():
            raise InputError(Problem(str(target), f"there is no folder {target.parent}"))
        if target.is_dir():
            raise InputError(Problem(str(target), "is a folder"))
    try:
        found = system.get_file_info(path).type
    except OSError as e:
        raise InputError(Problem(str(source), f"cannot be looked at: {first_line(e)}")) from None
    if found != fs.FileType.File:
        raise InputError(Problem(str(source), "there is no such file"))
    if isinstance(target, str | Path) and _is_same_file(source, target):
        raise InputError(Problem(str(target), "is the file of the rows themselves, which would be lost; name another with -o"))
    loaded = load_bundle(bundle)
    if workers > 1:
        parts = _with_progress(_predict_distributed(loaded.path, loaded, source, kind, workers), on_progress)
    else:
        pieces = _with_file_errors(_read_rows(system, path, kind, loaded.manifest), source)
        parts = _with_progress(predict_chunks(loaded, pieces), on_progress)
    if target is None:
        return pd.concat(list(parts), ignore_index=True)
    if not isinstance(target, str | Path):
        with _spool_csv(parts) as spool:
            shutil.copyfileobj(spool, target)
        return target
    with _atomic_output(target) as stream:
        write = _write_parquet if _file_format(target) == "parquet" else _write_csv
        write(parts, stream, packed=str(target).lower().endswith(".gz"))
    return target


def _file_format(path: str | Path) -> str:
    """ "csv" or "parquet"."""
    name = str(path).lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    raise InputError(Problem(str(path), f"the name must end in {', '.join(CSV + PARQUET[:1])}"))


def _is_uri(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _filesystem(path: str | Path) -> tuple[Any, str]:
    """Arrow's file system, and the path in it."""
    if not _is_uri(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        return fs.FileSystem.from_uri(str(path))
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(Problem(str(path), f"is no place that Arrow knows: {first_line(e)}")) from None


def _is_same_file(source: str | Path, target: str | Path) -> bool:
    one, two = _filesystem(source), _filesystem(target)
    if isinstance(one[0], fs.LocalFileSystem) and isinstance(two[0], fs.LocalFileSystem):
        return Path(two[1]).exists() and Path(two[1]).samefile(one[1])
    return one == two


def _read_rows(system: Any, path: str, kind: str, manifest: Manifest) -> Iterator[pd.DataFrame]:
    """The rows of a file in pieces, those columns that the model uses; at least one piece, perhaps without rows."""
    if kind == "parquet":
        yield from _read_parquet(system, path, manifest, CHUNK_ROWS, None)
        return
    written = probe_schema(system, path).names
    wanted = {c.name for c in manifest.columns}
    names = {name: shown for name, shown in zip(written, pandas_names(written), strict=True) if shown in wanted or not wanted}
    # `00123` is no number there
    text = {c.name for c in manifest.columns if c.type == "string" or (c.categories and isinstance(c.categories[0], str))}
    read = 0
    for table in _read_csv(system, path, written, list(names) or list(written)[:1]):
        table = table.rename_columns(list(names.values()) or ["-"])
        for start in range(0, len(table), CHUNK_ROWS):
            piece = table.slice(start, CHUNK_ROWS)
            typed = infer_types(piece.select([name for name in piece.column_names if name not in text]))
            columns = {name: (piece if name in text else typed)[name] for name in piece.column_names}
            yield pa.table(columns).to_pandas()
        read += len(table)
    if not read:
        yield pd.DataFrame({name: pd.Series(dtype=object) for name in names.values()})


def _read_csv(system: Any, path: str, written: Sequence[str], only: list[str]) -> Iterator[pa.Table]:
    """The rows of a CSV file as text, a block at a time; from a row on that is longer than a block by larger ones."""
    from pyarrow import csv

    read = 0
    for block in (COLUMN_BLOCK, CSV_BLOCK):
        seen = 0
        try:
            with system.open_input_stream(path) as stream:  # which unpacks what is called `.gz`
                for batch in csv.open_csv(stream, **csv_options(path, written, only, block)):
                    table, seen = pa.table(batch).slice(max(0, read - seen)), seen + len(batch)
                    if len(table):
                        yield table
                    read = max(read, seen)
            return
        except pa.ArrowInvalid as e:
            if block == CSV_BLOCK or "straddling" not in str(e):
                raise


def read_row_groups(source: str, manifest: Manifest, chunk: int, groups: list[int]) -> Iterator[pd.DataFrame]:
    """The rows of some row groups of a Parquet file, in pieces of at most `chunk`.

    Raises:
        InputError: they cannot be read.
    """
    yield from _with_file_errors(_read_parquet(*_filesystem(source), manifest, chunk, groups), source)


def _read_parquet(system: Any, path: str, manifest: Manifest, chunk: int, groups: list[int] | None) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    wanted = {c.name for c in manifest.columns}
    # with a buffer, and not ahead, of a row group that is larger than the memory no more is read than is wanted next
    with system.open_input_file(path) as opened, pq.ParquetFile(opened, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        names = [name for name in file.schema_arrow.names if name in wanted or not wanted]
        empty = True
        for batch in file.iter_batches(chunk, row_groups=groups, columns=names):
            empty = False
            yield _to_pandas(batch)
        if empty:
            yield _to_pandas(file.schema_arrow.empty_table().select(names))


def _to_pandas(rows: Any) -> pd.DataFrame:
    """Arrow's rows as pandas', with every column: the index that pandas wrote was one in training, too, if it had a name."""
    return rows.to_pandas(ignore_metadata=True)


def _predict_distributed(bundle: str | Path, loaded: Bundle, source: str | Path, kind: str, workers: int) -> Iterator[pd.DataFrame]:
    """The predictions by several processes, once the file's columns are seen to be there; at least one piece, perhaps without rows."""
    import pyarrow.parquet as pq

    from sweeps.bundle import distributed_predict

    if kind != "parquet":
        raise InputError(
            Problem("--workers", f"{workers}: only Parquet is read by several; {source} is CSV, which one reads after another")
        )
    system, path = _filesystem(source)
    try:
        with system.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
            groups, schema = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)], file.schema_arrow
    except (pa.ArrowInvalid, OSError) as e:
        raise InputError(Problem(str(source), f"cannot be read: {first_line(e)}")) from None
    if loaded.manifest.columns:
        enforce_schema(_to_pandas(schema.empty_table()), loaded.manifest.columns)
    if not sum(groups):  # of which Ray Data makes no piece
        yield loaded.predict(_to_pandas(schema.empty_table()))
        return
    yield from distributed_predict.predict_distributed(
        bundle, source if _is_uri(source) else Path(source).absolute(), groups, CHUNK_ROWS, workers
    )


def _with_file_errors(rows: Iterator[pd.DataFrame], source: str | Path) -> Iterator[pd.DataFrame]:
    """Reading errors as the user's, with the file's name."""
    try:
        yield from rows
    except (ValueError, OSError) as e:  # Arrow's among them
        raise InputError(Problem(str(source), f"cannot be read: {first_line(e)}")) from None


def predict_chunks(bundle: Bundle, pieces: Iterator[pd.DataFrame], before: int = 0) -> Iterator[pd.DataFrame]:
    """The predictions of each piece; of a wrong value one is told its row in the file, in which so many came before."""
    for rows in pieces:
        try:
            yield bundle.predict(rows)
        except InputError as e:
            raise InputError(_locate_in_file(p, before, len(rows)) for p in e.problems) from e
        before += len(rows)


def _locate_in_file(problem: Problem, before: int, rows: int) -> Problem:
    """What is wrong with one of so many rows, before which others were read."""
    if isinstance(problem, InvalidValue):
        return problem.shifted(before)
    return Problem(f"rows {before + 1} to {before + rows}", problem.text) if problem.place == "rows" else problem


def _with_progress(parts: Iterator[pd.DataFrame], on_progress: Callable[[int], None] | None) -> Iterator[pd.DataFrame]:
    done = 0
    for part in parts:
        yield part
        done += len(part)
        if on_progress is not None:
            on_progress(done)


def _write_csv(parts: Iterator[pd.DataFrame], stream: Any, packed: bool) -> None:
    out = pa.CompressedOutputStream(stream, "gzip") if packed else stream
    for i, part in enumerate(parts):
        out.write(part.to_csv(header=not i, index=False).encode())
    if packed:
        out.close()


def _spool_csv(parts: Iterator[pd.DataFrame]) -> Any:
    """What is predicted as CSV in a temporary file, to be read from its beginning.

    Raises:
        InputError: there is no room for it.
    """
    try:
        spool = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            _write_csv(parts, spool, packed=False)
            spool.seek(0)
        except BaseException:
            with contextlib.suppress(OSError):  # it would write what is left, once more in vain
                spool.close()
            raise
        return spool
    except OSError as e:
        where = tempfile.tempdir or "the temporary folder"  # None where each that there is was refused, which the error names
        said = "all is kept there until it is predicted: name another by $TMPDIR, or a file with -o"
        raise InputError(Problem(str(where), f"cannot be written: {first_line(e)}; {said}")) from e


def _write_parquet(parts: Iterator[pd.DataFrame], stream: Any, packed: bool) -> None:
    import pyarrow.parquet as pq

    part = next(parts)
    while part.empty and (more := next(parts, None)) is not None:  # of no rows one cannot tell the type of a class
        part = more
    first = pa.Table.from_pandas(part, preserve_index=False)
    with pq.ParquetWriter(stream, first.schema) as writer:
        writer.write_table(first)
        for part in parts:
            writer.write_table(pa.Table.from_pandas(part, schema=first.schema, preserve_index=False))


@contextlib.contextmanager
def _atomic_output(target: str | Path) -> Iterator[Any]:
    """A stream to a temporary file beside `target` that takes its place if all goes well."""
    system, path = _filesystem(target)
    place = PurePosixPath(path)
    part = str(place.with_name(f".{place.name}-{uuid.uuid4().hex[:8]}"))
    try:
        stream = system.open_output_stream(part, compression=None)
    except OSError as e:
        raise InputError(Problem(str(target), f"cannot be written: {first_line(e)}")) from None
    try:
        with stream:
            yield stream
        system.move(part, path)
    except OSError as e:
        with contextlib.suppress(OSError):
            system.delete_file(part)
        raise InputError(Problem(str(target), f"cannot be written: {first_line(e)}")) from e
    except BaseException:
        with contextlib.suppress(OSError):
            system.delete_file(part)
        raise
