"""Open a data source as a lazy Ray Dataset. The rows are read anew in each pass."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sweeps.core.errors import first_line
from sweeps.data.columns.column_types import is_text
from sweeps.data.columns.hashing import fingerprint, hash_of
from sweeps.data.columns.missing import Profile, profile_columns
from sweeps.data.columns.tables import canonical_table
from sweeps.data.sources import sources
from sweeps.data.sources.data_files import Source, SourceFiles, find_files, raise_problem
from sweeps.data.sources.schema_probe import probe_schemas

from .block_types import merge_profiles, unify_schemas

if TYPE_CHECKING:
    from ray.data import Dataset, Schema

    from sweeps.space import DataSpec


@dataclass(frozen=True)
class LazySource:
    """A source that is open, but not read.

    Attributes:
        dataset: Lazy Ray Dataset. Its blocks are Arrow tables with the columns of the source.
        schema: Names and types of the columns.
        digest: Text that changes if the source changes. For files, it is a hash of their names,
            sizes and times of change.
        text: True if the blocks have the texts of CSV files.
        profiles: Facts about each column of texts.
    """

    dataset: Dataset
    schema: pa.Schema
    digest: str
    text: bool = False
    profiles: Mapping[str, Profile] = field(default_factory=dict)


def open_source(spec: DataSpec, source: Source) -> LazySource:
    """Open a source. Its columns of texts are read once, to find their types and missing values.

    A source that is in memory anyway, such as `sklearn:NAME` or a function that returns a frame,
    becomes a Ray Dataset of one block.

    Args:
        spec: The `data` section.
        source: One of its sources.

    Raises:
        InputError: The source does not exist or cannot be read, or its files have different columns
            or types.
    """
    opened = _open(source)
    texts = tuple(f.name for f in opened.schema if is_text(f.type))
    if not texts:
        return opened
    profile_block = functools.partial(_profile_block, spec=spec, texts=texts)
    try:
        rows = opened.dataset.map_batches(
            profile_block, batch_format="pyarrow", batch_size=None
        ).take_all()
    except Exception as e:
        reason = first_line(e).removeprefix("ValueError: ")
        raise_problem(source.place, f"`{source.name}` cannot be read: {reason}", e)
    profiles = merge_profiles([pickle.loads(row["profiles"]) for row in rows])
    fields = []
    for column in opened.schema:
        profile = profiles.get(column.name)
        if profile is None:
            fields.append(column)
            continue
        # Separators at the ends of lines make columns with neither a name nor a value.
        is_empty = column.name.startswith("Unnamed: ") and pa.types.is_null(profile.kind)
        if not is_empty:
            fields.append(pa.field(column.name, profile.type_of_others(opened.text)))
    return replace(opened, schema=pa.schema(fields), profiles=profiles)


def _profile_block(block: pa.Table, spec: DataSpec, texts: tuple[str, ...]) -> pa.Table:
    """Return one row with the pickled profiles of the columns `texts` of a block."""
    profiles = profile_columns(spec, canonical_table(block.select(texts)))
    return pa.table({"profiles": [pickle.dumps(profiles)]})


def _open(source: Source) -> LazySource:
    """Open a source without reading it. All columns of CSV files are texts."""
    if source.name.startswith("sklearn:"):
        return _open_table(sources.read_source(source))
    if not sources.is_loader(source.name):
        return _open_files(find_files(source))
    opened = sources.call_loader(source, functools.partial(_open_dataset, source=source))
    if not isinstance(opened, LazySource):
        return _open_table(opened)
    # Ray's tasks, which run later, cannot import a module beside the space file
    sources.pickle_by_value(source.base.absolute())
    return opened


def _open_table(table: pa.Table) -> LazySource:
    """Open a table in memory as a Ray Dataset of one block."""
    import ray.data

    table = canonical_table(table)
    return LazySource(ray.data.from_arrow(table), table.schema, fingerprint({"table": table}))


def _open_files(files: SourceFiles) -> LazySource:
    """Open text files or Parquet files."""
    file_schemas = probe_schemas(files)
    if files.format == ".jsonl":
        text = (
            "has JSON lines, which cannot be streamed; convert it to Parquet, or set "
            "`data.ingest: memory`"
        )
        raise_problem(files.place, f"`{files.source}` {text}")
    if files.is_text:  # all columns of all text files are texts
        file_schemas = file_schemas[:1]
    partitions = pa.schema([(name, pa.string()) for name in files.partition_columns])
    schemas = {
        files.display_name(path): pa.unify_schemas([file_schema.schema, partitions])
        for path, file_schema in zip(files.paths, file_schemas, strict=False)
    }
    schema = unify_schemas(schemas, files.place)
    dataset = sources.ray_dataset(files)
    return LazySource(dataset, schema, files_digest(files), text=files.is_text)


def files_digest(files: SourceFiles) -> str:
    """Return a hash of the name, the size and the time of change of each file.

    The contents are not read.
    """
    folder = files.folder or files.base
    infos = files.system.get_file_info(list(files.paths))
    return hash_of(
        [
            [path.removeprefix(folder), info.size, info.mtime_ns]
            for path, info in zip(files.paths, infos, strict=True)
        ]
    )


def _open_dataset(dataset: Dataset, source: Source) -> LazySource:
    """Open the Ray Dataset that a loader has returned, or that a script has passed.

    Its digest depends on the source, its arguments and the schema.
    """
    try:
        schema = dataset.schema()
    except Exception as e:
        raise_problem(source.place, f"`{source.name}` failed: {first_line(e)}", e)
    if schema is None or not schema.names:
        raise_problem(source.place, f"`{source.name}` returned a Ray Dataset without columns")
    types = unify_schemas({source.name: _arrow_schema(schema, source)}, source.place)
    digest = hash_of([source.name, dict(source.args), str(types)])
    return LazySource(dataset, types, digest)


def _arrow_schema(schema: Schema, source: Source) -> pa.Schema:
    """Return the Arrow schema of a Ray Dataset's schema.

    Raises:
        InputError: The blocks are pandas frames with other columns than numbers.
    """
    base = schema.base_schema
    if isinstance(base, pa.Schema):
        return base
    try:  # The blocks are pandas frames.
        return pa.schema(
            [
                (name, pa.from_numpy_dtype(kind))
                for name, kind in zip(base.names, base.types, strict=True)
            ]
        )
    except (pa.ArrowException, TypeError):
        advice = "end it with `map_batches` with `batch_format='pyarrow'`"
        raise_problem(
            source.place,
            f"`{source.name}` returned a Ray Dataset whose pandas blocks have other columns than "
            f"numbers; {advice}",
        )
