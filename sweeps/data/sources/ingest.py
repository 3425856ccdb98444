"""Decide whether the data of a sweep is held in memory or streamed.

Only sizes of files are read, no rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sweeps.core.errors import InputError
from sweeps.core.plugins import references

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Space

    from .data_files import SourceFiles

# With `ingest: auto`, data of this size and more is streamed, in bytes of uncompressed columns or
# of text. In memory, a sweep needs several times this size.
STREAM_FROM = 4_000_000_000
# Beginning of the fingerprint of data that is streamed.
STREAM_MARK = "stream-"
# Number of files whose metadata is read to estimate the size of all files.
SAMPLED_FILES = 100


@dataclass(frozen=True)
class Ingest:
    """The choice between data in memory and streamed data, and its reason.

    Attributes:
        mode: "memory" or "stream".
        reason: The reason for this mode, which `sweeps plan` shows.
    """

    mode: str
    reason: str


def choose(space: Space) -> Ingest:
    """Return how the data of a space is read.

    The result depends on the space and the sizes of its files only, not on the machine.
    """
    from sweeps.space.sections.ingest_checks import stream_obstacles

    if space.data.ingest != "auto":
        return Ingest(space.data.ingest, "data.ingest")
    variant_of_source = {spec.source: spec for spec in space.variants}
    largest = 0
    for spec in variant_of_source.values():
        size = _bytes_of(spec)
        if size is None:
            return Ingest("memory", "its size is not known before the sweep")
        largest = max(largest, size)
    limit = f"{STREAM_FROM / 1e9:g} GB"
    if largest < STREAM_FROM:
        return Ingest("memory", f"it has less than {limit}")
    size_text = f"it has {largest / 1e9:.2g} GB"
    obstacles = stream_obstacles(
        space.data, space.sections, space.trainers.values(), space.scheduler
    )
    obstacle = next(obstacles, None)
    if obstacle is not None:
        key, problem = obstacle
        reason = problem.partition(";")[0]
        return Ingest("memory", f"{size_text}, but `{key}` rules out streaming: {reason}")
    return Ingest("stream", f"{size_text}, and {limit} or more are streamed")


def resolve(space: Space, fingerprint: str | None = None) -> Space:
    """Return a space whose `data.ingest` is "memory" or "stream".

    Args:
        space: The search space.
        fingerprint: Fingerprint of the data when the sweep started. Its data is read in the same
            way again. None if the sweep is new.
    """
    if not space.data.is_named:
        return space
    if fingerprint is None or space.data.ingest != "auto":
        mode = choose(space).mode
    else:
        mode = "stream" if fingerprint.startswith(STREAM_MARK) else "memory"
    return replace(space, data=replace(space.data, ingest=mode))


def _bytes_of(spec: DataSpec) -> int | None:
    """Return the size of the files of a data variant; 0 for a data set of scikit-learn.

    None if a source has no local files.
    """
    sources = {"data.train": spec.train}
    if spec.valid is not None and spec.valid.path is not None:
        sources["data.valid"] = spec.valid.path
    total = 0
    for place, source in sources.items():
        if source.startswith("sklearn:"):
            continue
        if "://" in source or references.is_reference(source):
            return None
        from .data_files import Source, find_files

        try:
            total += estimate_bytes(find_files(Source(source, spec.base, place)))
        except (InputError, OSError, ValueError):
            return None
    return total


def estimate_bytes(files: SourceFiles, columns: Sequence[str] | None = None) -> int:
    """Return the size of files in bytes.

    For Parquet files, this is the size of the uncompressed columns: of these columns, or of all.
    For CSV files, it is the size of the text.

    If there are many files, only some of them are read, and the other files are assumed to be
    compressed in the same way.
    """
    from .file_rows import uncompressed_bytes

    sizes: list[int] = [info.size for info in files.system.get_file_info(list(files.paths))]
    step = math.ceil(len(sizes) / SAMPLED_FILES)
    sampled_bytes = sum(uncompressed_bytes(files, path, columns) for path in files.paths[::step])
    return round(sampled_bytes * sum(sizes) / max(1, sum(sizes[::step])))
