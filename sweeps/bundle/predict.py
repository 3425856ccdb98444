"""A file of raw rows in, a file of predictions out: in pieces, so that either may be larger than the memory."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import fs

from sweeps.bundle.manifest import Manifest
from sweeps.bundle.model import load_bundle
from sweeps.errors import InputError, Problem

CHUNK = 50_000  # rows held at once
CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


def predict_file(
    bundle: str | Path,
    source: str | Path,
    target: str | Path | None = None,
    on_progress: Callable[[int], None] | None = None,
    workers: int = 1,
) -> pd.DataFrame | Path | str:
    """Predict every row of a CSV or Parquet file.

    Args:
        bundle: the bundle's folder.
        source: raw rows with a header, a path or a URI that Arrow reads (`file`, `s3`, `gs`, `hdfs`, `abfs`); columns that the model
            does not use, such as the label, are ignored.
        target: where to write, a path or a URI, CSV or Parquet by its suffix; put in its place in one step, or not at all. None
            returns the frame.
        on_progress: called with the rows that are predicted so far.
        workers: processes that predict; more than one read a Parquet file, through Ray Data, a row group at a time each.

    Raises:
        InputError: a file that is missing, of another format or broken; a column that is missing or of another type.
        BundleError: the bundle is broken.
    """
    kind = _format(source)
    if target is not None:
        _format(target)
    system, path = _place(source)
    if not (target is None or _is_uri(target)):
        target = Path(target)
        if not target.parent.is_dir():
            raise InputError(Problem(str(target), f"there is no folder {target.parent}"))
    if system.get_file_info(path).type != fs.FileType.File:
        raise InputError(Problem(str(source), "there is no such file"))
    if target is not None and _same(source, target):
        raise InputError(Problem(str(target), "is the file of the rows themselves, which would be lost; name another with -o"))
    loaded = load_bundle(bundle)
    if workers > 1:
        parts = _counted(_spread(bundle, source, kind, loaded.manifest, workers), on_progress)
    else:
        pieces = _located(_rows(system, path, kind, loaded.manifest), source)
        parts = _counted((loaded.predict(rows) for rows in pieces), on_progress)
    if target is None:
        return pd.concat(list(parts), ignore_index=True)
    with _replacing(target) as stream:
        write = _write_parquet if _format(target) == "parquet" else _write_csv
        write(parts, stream, packed=str(target).lower().endswith(".gz"))
    return target


def _format(path: str | Path) -> str:
    """ "csv" or "parquet"."""
    name = str(path).lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    raise InputError(Problem(str(path), f"the name must end in {', '.join(CSV + PARQUET[:1])}"))


def _is_uri(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def _place(path: str | Path) -> tuple[Any, str]:
    """Arrow's file system, and the path in it."""
    if not _is_uri(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        return fs.FileSystem.from_uri(str(path))
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(Problem(str(path), f"is no place that Arrow knows: {str(e).splitlines()[0]}")) from None


def _same(source: str | Path, target: str | Path) -> bool:
    one, two = _place(source), _place(target)
    if isinstance(one[0], fs.LocalFileSystem) and isinstance(two[0], fs.LocalFileSystem):
        return Path(two[1]).exists() and Path(two[1]).samefile(one[1])
    return one == two


def _rows(system: Any, path: str, kind: str, manifest: Manifest) -> Iterator[pd.DataFrame]:
    """The rows of a file in pieces, those columns that the model uses; at least one piece, perhaps without rows."""
    if kind == "parquet":
        yield from _parquet_rows(system, path, manifest, CHUNK, None)
        return
    wanted = {c.name for c in manifest.columns}
    # `00123` is no number there
    text = {c.name: "str" for c in manifest.columns if c.type == "string" or (c.categories and isinstance(c.categories[0], str))}
    packed = "gzip" if path.lower().endswith(".gz") else None
    with (
        system.open_input_stream(path, compression=packed) as stream,
        pd.read_csv(stream, usecols=lambda name: name in wanted, dtype=text, chunksize=CHUNK) as chunks,
    ):
        yield from chunks


def parquet_rows(source: str, manifest: Manifest, chunk: int, groups: list[int]) -> Iterator[pd.DataFrame]:
    """The rows of some row groups of a Parquet file, in pieces of at most `chunk`."""
    yield from _parquet_rows(*_place(source), manifest, chunk, groups)


def _parquet_rows(system: Any, path: str, manifest: Manifest, chunk: int, groups: list[int] | None) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    wanted = {c.name for c in manifest.columns}
    with system.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
        names = [name for name in file.schema_arrow.names if name in wanted]
        empty = True
        for batch in file.iter_batches(chunk, row_groups=groups, columns=names):
            empty = False
            yield batch.to_pandas()
        if empty:
            yield file.schema_arrow.empty_table().select(names).to_pandas()


def _spread(bundle: str | Path, source: str | Path, kind: str, manifest: Manifest, workers: int) -> Iterator[pd.DataFrame]:
    """The predictions by several processes, once the file's columns are seen to be there."""
    import pyarrow.parquet as pq

    from sweeps.bundle import columns, spread

    if kind != "parquet":
        raise InputError(
            Problem("--workers", f"{workers}: only Parquet is read by several; {source} is CSV, which one reads after another")
        )
    system, path = _place(source)
    try:
        with system.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
            groups, schema = file.num_row_groups, file.schema_arrow
    except (pa.ArrowInvalid, OSError) as e:
        raise InputError(Problem(str(source), f"cannot be read: {str(e).splitlines()[0]}")) from None
    columns.conform(schema.empty_table().to_pandas(), manifest.columns)
    yield from spread.predicted(bundle, source if _is_uri(source) else Path(source).absolute(), groups, CHUNK, workers)


def _located(rows: Iterator[pd.DataFrame], source: str | Path) -> Iterator[pd.DataFrame]:
    """Reading errors as the user's, with the file's name."""
    try:
        yield from rows
    except pd.errors.EmptyDataError:
        raise InputError(Problem(str(source), "is empty: there is not even a header in it")) from None
    except (pd.errors.ParserError, UnicodeDecodeError, pa.ArrowInvalid, OSError) as e:
        raise InputError(Problem(str(source), f"cannot be read: {str(e).splitlines()[0]}")) from None


def _counted(parts: Iterator[pd.DataFrame], on_progress: Callable[[int], None] | None) -> Iterator[pd.DataFrame]:
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


def _write_parquet(parts: Iterator[pd.DataFrame], stream: Any, packed: bool) -> None:
    import pyarrow.parquet as pq

    first = pa.Table.from_pandas(next(parts), preserve_index=False)
    with pq.ParquetWriter(stream, first.schema) as writer:
        writer.write_table(first)
        for part in parts:
            writer.write_table(pa.Table.from_pandas(part, schema=first.schema, preserve_index=False))


@contextlib.contextmanager
def _replacing(target: str | Path) -> Iterator[Any]:
    """A stream to a temporary file beside `target` that takes its place if all goes well."""
    system, path = _place(target)
    place = PurePosixPath(path)
    part = str(place.with_name(f".{place.name}-{uuid.uuid4().hex[:8]}"))
    try:
        stream = system.open_output_stream(part, compression=None)
    except OSError as e:
        raise InputError(Problem(str(target), f"cannot be written: {str(e).splitlines()[0]}")) from None
    try:
        with stream:
            yield stream
        system.move(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            system.delete_file(part)
        raise
