"""A file of raw rows in, a file of predictions out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from sweeps.bundle.manifest import Manifest
from sweeps.bundle.model import load_bundle
from sweeps.errors import InputError, Problem

CHUNK = 50_000  # rows of a CSV file held at once
CSV = (".csv", ".csv.gz")
PARQUET = (".parquet", ".pq")


def predict_file(bundle: str | Path, source: str | Path, target: str | Path | None = None) -> pd.DataFrame | Path:
    """Predict every row of a CSV or Parquet file.

    Args:
        bundle: the bundle's folder.
        source: raw rows with a header; columns that the model does not use, such as the label, are ignored.
        target: where to write, CSV or Parquet by its suffix; replaced in one step, or not at all. None returns the frame.

    Raises:
        InputError: a file that is missing, of another format or broken; a column that is missing or of another type.
        BundleError: the bundle is broken.
    """
    source = Path(source)
    _format(source)
    if target is not None:
        target = Path(target)
        _format(target)
        if not target.parent.is_dir():
            raise InputError(Problem(str(target), f"there is no folder {target.parent}"))
    if not source.is_file():
        raise InputError(Problem(str(source), "there is no such file"))
    if target is not None and target.exists() and target.samefile(source):
        raise InputError(Problem(str(target), "is the file of the rows themselves, which would be lost; name another with -o"))
    loaded = load_bundle(bundle)
    parts = (loaded.predict(rows) for rows in _located(_rows(source, loaded.manifest), source))
    if target is None:
        return pd.concat(list(parts), ignore_index=True)
    with _replacing(target) as temporary:
        if _format(target) == "parquet":
            pd.concat(list(parts), ignore_index=True).to_parquet(temporary, index=False)
        else:
            packed = "gzip" if target.name.endswith(".gz") else None
            for i, part in enumerate(parts):
                part.to_csv(temporary, mode="a" if i else "w", header=not i, index=False, compression=packed)
    return target


def _format(path: Path) -> str:
    """ "csv" or "parquet"."""
    name = path.name.lower()
    if name.endswith(CSV):
        return "csv"
    if name.endswith(PARQUET):
        return "parquet"
    raise InputError(Problem(str(path), f"the name must end in {', '.join(CSV + PARQUET[:1])}"))


def _rows(source: Path, manifest: Manifest) -> Iterator[pd.DataFrame]:
    """The rows of a file in pieces, those columns that the model uses; at least one piece, perhaps without rows."""
    wanted = {c.name for c in manifest.columns}
    if _format(source) == "parquet":
        import pyarrow.parquet as pq

        file = pq.ParquetFile(source)
        names = [name for name in file.schema_arrow.names if name in wanted]
        yield file.read(columns=names).to_pandas()
        return
    # `00123` is no number there
    text = {c.name: "str" for c in manifest.columns if c.type == "string" or (c.categories and isinstance(c.categories[0], str))}
    yield from pd.read_csv(source, usecols=lambda name: name in wanted, dtype=text, chunksize=CHUNK)


def _located(rows: Iterator[pd.DataFrame], source: Path) -> Iterator[pd.DataFrame]:
    """Reading errors as the user's, with the file's name."""
    import pyarrow as pa

    try:
        yield from rows
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, pa.ArrowInvalid, OSError) as e:
        raise InputError(Problem(str(source), f"cannot be read: {str(e).splitlines()[0]}")) from None


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A temporary file beside `target` that takes its place if all goes well."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(handle)
    os.chmod(name, 0o644)
    try:
        yield Path(name)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)
