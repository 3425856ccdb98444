"""Read some columns or some rows of all files of a source, without Ray and pandas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sweeps.data.columns.column_types import infer_types, is_text, type_name
from sweeps.data.columns.missing import certain_texts
from sweeps.data.columns.tables import canonical_table

from .data_files import SourceFiles, file_format, read_errors
from .file_blocks import COLUMN_BLOCK, read_blocks
from .schema_probe import probe_schema

if TYPE_CHECKING:
    from sweeps.space import DataSpec

# Number of rows in which texts are looked for before the source is read
_PROBE_ROWS = 10_000
# Typical compression ratio of CSV text. A gzip file does not reliably contain its uncompressed
# size.
_GZIP_RATIO = 5


def non_number_types(spec: DataSpec, files: SourceFiles) -> dict[str, str]:
    """Return the columns that are certain not to hold numbers, with their types.

    `column_types.type_name` names the types. Only the first rows are read. A column of texts is
    certain if these rows have a text that is neither a number nor a marker of `data.missing`.

    Raises:
        InputError: The first file cannot be read.
    """
    path = files.paths[0]
    with read_errors(files.place, files.display_name(path)):
        schema = probe_schema(files, path).schema
        texts = [field.name for field in schema if is_text(field.type)]
        rows = read_some(replace(files, paths=(path,)), texts, _PROBE_ROWS).table
    texts = certain_texts(spec, rows)
    types = {}
    for field in schema:
        kind = type_name(field)
        if kind and (kind != "text" or field.name in texts):
            types[field.name] = kind
    return types


def uncompressed_bytes(files: SourceFiles, path: str, columns: Sequence[str] | None = None) -> int:
    """Return the size of some columns of a Parquet file, or of the text of another file, in bytes.

    For a gzip file, this is an estimate.

    Args:
        files: The files of a source.
        path: Path of one of the files.
        columns: Names of columns of a Parquet file; None for all columns.
    """
    if file_format(path) != ".parquet":
        ratio = _GZIP_RATIO if path.lower().endswith(".gz") else 1
        return int(files.system.get_file_info(path).size) * ratio
    import pyarrow.parquet as pq

    with files.system.open_input_file(path) as opened:
        meta = pq.read_metadata(opened)
    size = 0
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        for part in map(group.column, range(group.num_columns)):
            # A part of a nested column has a path such as `image.bytes`.
            names = {part.path_in_schema, part.path_in_schema.split(".")[0]}
            if columns is None or not names.isdisjoint(columns):
                size += part.total_uncompressed_size
    return size


def read_columns(files: SourceFiles, columns: Sequence[str]) -> pa.Table:
    """Read some columns of all files of a source.

    A column has the same type as in the result of `sources.read_source`.

    All columns of text files are checked; see `text_shape.rows_problem`.

    Raises:
        InputError: A file cannot be read.
    """
    tables: list[pa.Table] = []
    for path in files.paths:
        with read_errors(files.place, files.display_name(path)):
            tables += read_blocks(files, path, columns)
    return _join(tables, columns, files.is_text)


def _join(tables: Sequence[pa.Table], columns: Sequence[str], text: bool) -> pa.Table:
    """Return the rows of all tables with canonical types.

    `text` is True if the tables have the texts of CSV files.
    """
    tables = [table for table in tables if table.num_rows]
    if not tables:
        tables = [pa.schema([(name, pa.string()) for name in columns]).empty_table()]
    joined = pa.concat_tables(tables, promote_options="permissive").select(list(columns))
    return canonical_table(infer_types(joined) if text else joined)


# Number of files of which `read_some` reads rows, and number of row groups of each Parquet file.
SAMPLED_FILES = 20
SAMPLED_GROUPS = 4


@dataclass(frozen=True)
class SomeRows:
    """Some rows of a source that is too large to read it early.

    Attributes:
        table: The rows, with the types that these rows have.
        rows: Number of rows of the whole source.
        exact: False if `rows` is an estimate.
    """

    table: pa.Table
    rows: int
    exact: bool


def read_some(files: SourceFiles, columns: Sequence[str], most: int) -> SomeRows:
    """Read at most `most` rows of a source, from files and row groups at equal distances.

    The first rows of each chosen file or row group are read.

    Raises:
        OSError, pyarrow.ArrowException: A file cannot be read.
    """
    import pyarrow.parquet as pq

    chosen = [files.paths[i] for i in spread_indices(len(files.paths), SAMPLED_FILES)]
    rows_per_file = max(1, most // len(chosen))
    tables: list[pa.Table] = []
    counted = 0  # number of rows of the chosen Parquet files, or of the blocks that are read
    if files.format == ".parquet":
        for path in chosen:
            with files.system.open_input_file(path) as opened:
                file = pq.ParquetFile(opened)
                counted += file.metadata.num_rows
                groups = spread_indices(file.num_row_groups, SAMPLED_GROUPS)
                for i in groups:
                    rows = max(1, rows_per_file // len(groups))
                    batches = file.iter_batches(rows, row_groups=[i], columns=list(columns))
                    for batch in itertools.islice(batches, 1):  # none if the group is empty
                        tables.append(pa.Table.from_batches([batch]))
        table = _join(tables, columns, text=False)
        ratio = len(files.paths) / len(chosen)
        return SomeRows(table, round(ratio * counted), exact=ratio == 1)
    read_bytes = 0
    for path in chosen:
        for block in itertools.islice(read_blocks(files, path, columns), 1):
            tables.append(block.slice(0, rows_per_file))
            counted += block.num_rows
            read_bytes += min(uncompressed_bytes(files, path), COLUMN_BLOCK)
    table = _join(tables, columns, files.is_text)
    all_bytes = sum(uncompressed_bytes(files, path) for path in files.paths)
    rows = round(counted * all_bytes / max(1, read_bytes))
    return SomeRows(table, rows, exact=False)


def spread_indices(count: int, most: int) -> list[int]:
    """Return at most `most` indices below `count`, at equal distances.

    >>> spread_indices(10, 3), spread_indices(2, 3)
    ([0, 4, 9], [0, 1])
    """
    number = min(count, most)
    return [i * (count - 1) // max(1, number - 1) for i in range(number)]
