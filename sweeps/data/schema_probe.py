"""Read the names of all columns of data files, and the values of some columns. This module needs neither Ray nor pandas."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sweeps.data.files import SUFFIXES, SourceFiles, data_suffix, first_line, raise_problem
from sweeps.data.tables import (
    ALWAYS_MISSING,
    canonical_table,
    drop_index_names,
    infer_types,
    is_text,
)

_LFS_POINTER = b"version https://git-lfs"
# Bytes of a block. Arrow cannot read a row that is longer than a block, and a quoted field may contain a whole document.
CSV_BLOCK = 32 << 20
# Arrow reads 32 blocks ahead. If each row fits into a smaller block, smaller blocks are faster for reading the first rows or some columns.
_PROBE_BLOCK = 64 << 10
# Rows that are read from the beginning of a Parquet file.
_PROBE_ROWS = 1_000
COLUMN_BLOCK = 4 << 20


@dataclass(frozen=True)
class FileSchema:
    """Columns of a data file, read from the beginning of the file.

    Attributes:
        names: column names. "" for a CSV column without a name.
        rows: whether the file has any rows.
    """

    names: tuple[str, ...]
    rows: bool


def probe_schemas(files: SourceFiles, most: int | None = None) -> tuple[FileSchema, ...]:
    """Read the schemas of the files of a source. All files must have the same format (CSV, TSV or Parquet) and the same columns.

    Args:
        files: the files of the source.
        most: largest number of files to read. None to read all files.

    Returns:
        The schema of each file that was read.

    Raises:
        InputError: the formats differ, the contents of a file do not match its suffix, a file has other columns than the first file, or
            no file has rows.
    """
    kinds = {
        (data_suffix(f) or "").removesuffix(".gz").replace("pq", "parquet") for f in files.paths
    } - {""}
    if len(kinds) > 1:
        raise_problem(
            files.place, f"`{files.source}` mixes {' and '.join(sorted(kinds))} files; use one kind"
        )
    schemas: dict[str, FileSchema] = {}
    for path in files.paths[:most]:
        try:
            schemas[path] = probe_schema(files.system, path)
        except (OSError, pa.ArrowException, ValueError) as e:
            raise_problem(
                files.place, f"`{files.display_name(path)}` cannot be read: {first_line(e)}", e
            )
    start = files.paths[0]
    first = set(schemas[start].names)
    for path, other in schemas.items():
        if set(other.names) != first:
            lacks, more = sorted(first - set(other.names)), sorted(set(other.names) - first)
            texts = [f"lacks {_column_list(lacks)}"] * bool(lacks) + [
                f"also has {_column_list(more)}"
            ] * bool(more)
            text = f"`{files.display_name(path)}` {' and '.join(texts)}, compared with `{files.display_name(start)}`"
            raise_problem(files.place, f"{text}; all files of a source need the same columns")
    if len(schemas) == len(files.paths) and not any(other.rows for other in schemas.values()):
        raise_problem(files.place, f"`{files.source}` has no rows")
    return tuple(schemas.values())


def _column_list(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(f"`{n}`" for n in names)


def probe_schema(system: Any, path: str) -> FileSchema:
    """Read the schema of a file.

    Args:
        system: Arrow's file system.
        path: path of the file.

    Raises:
        ValueError: the suffix is unknown, or the contents of the file do not match it.
        OSError, pyarrow.ArrowException: Arrow cannot read the file.
    """
    with system.open_input_stream(path, compression=None) as stream:
        start = stream.read(4096)
    if start.startswith(_LFS_POINTER):
        raise ValueError("it is a Git LFS pointer, not the data; run `git lfs pull`")
    kind = data_suffix(path)
    if kind is None:
        raise ValueError(f"unsupported suffix; valid: {', '.join(SUFFIXES)}")
    if not start:
        raise ValueError("it is empty")
    if kind in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        if start[:4] not in (b"PAR1", b"PARE"):
            raise ValueError("it is not a Parquet file")
        with system.open_input_file(path) as opened:
            meta = pq.read_metadata(opened)
        return FileSchema(
            tuple(drop_index_names(meta.schema.to_arrow_schema().names)), meta.num_rows > 0
        )
    if kind.endswith(".gz"):
        if start[:2] != b"\x1f\x8b":
            raise ValueError("it is not compressed with gzip, but its name ends in .gz")
        with system.open_input_stream(path) as stream:
            start = stream.read(4096)
        if not start:
            raise ValueError("it is empty")
    _check_text(start)
    if not start.strip() and len(start) < 4096:
        raise ValueError("it has only blank lines")
    try:
        return _probe_csv(system, path, _PROBE_BLOCK)
    except pa.ArrowInvalid:  # a row may be longer than a block
        return _probe_csv(system, path, CSV_BLOCK)


# First bytes of other file formats, and the message for each
_FILE_SIGNATURES = {
    b"PAR1": "it is a Parquet file, not text",
    b"PK\x03\x04": "it is a workbook or a zip archive, not text",
    b"\x1f\x8b": "it is compressed with gzip, but its name does not end in .gz",
    b"\xff\xfe": "it is UTF-16; convert the file to UTF-8",
    b"\xfe\xff": "it is UTF-16; convert the file to UTF-8",
}


def _check_text(start: bytes) -> None:
    for begin, text in _FILE_SIGNATURES.items():
        if start.startswith(begin):
            raise ValueError(text)
    if b"\0" in start:
        raise ValueError("it is not text")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError as e:
        raise ValueError(
            f"it is not UTF-8 text (byte 0x{start[e.start]:02x}); convert the file to UTF-8"
        ) from None


def _probe_csv(system: Any, path: str, block: int) -> FileSchema:
    from pyarrow import csv

    with system.open_input_stream(path) as stream:
        reader = csv.open_csv(stream, **csv_options(path, block=block))
        names = reader.schema.names
        rows = any(batch.num_rows for batch in reader)
    duplicates = [n for n in names if names.count(n) > 1]
    if duplicates:
        raise ValueError(f"two columns are named `{duplicates[0]}`")
    return FileSchema(tuple(names), rows)


def first_rows(files: SourceFiles) -> pa.Table | None:
    """Return the first rows of the first file, with the types that these rows have; None if they cannot be read.

    Of a Parquet file, only the columns of texts are read.
    """
    import pyarrow.parquet as pq
    from pyarrow import csv

    path = files.paths[0]
    text = data_suffix(path) not in (".parquet", ".pq")
    try:
        names = list(probe_schema(files.system, path).names)
        if text:
            with files.system.open_input_stream(path) as stream:
                options = csv_options(path, names, block=_PROBE_BLOCK)
                first = next(iter(csv.open_csv(stream, **options)), None)
        else:
            with files.system.open_input_file(path) as opened:
                file = pq.ParquetFile(opened)
                names = [field.name for field in file.schema_arrow if is_text(field.type)]
                first = next(file.iter_batches(_PROBE_ROWS, columns=names), None)
    except (OSError, pa.ArrowException, ValueError):
        return None
    if first is None:
        return None
    table = _joined([pa.Table.from_batches([first])], names, text)
    return table.rename_columns(pandas_names(table.column_names))


def csv_options(
    path: str, names: Sequence[str] | None = None, only: Sequence[str] = (), block: int = CSV_BLOCK
) -> dict[str, Any]:
    """Return options for Arrow's CSV reader, which then reads a file in the same way as pandas.

    Args:
        path: path of the file. Its suffix determines the separator.
        names: columns to read as text. Their types are inferred later, from all rows. Arrow infers the types of the other columns. None
            means no columns.
        only: columns to read. If empty, all columns are read.
        block: size of a block in bytes. No row may be longer than a block.
    """
    from pyarrow import csv

    return {
        "read_options": csv.ReadOptions(use_threads=False, block_size=block),
        "parse_options": csv.ParseOptions(
            newlines_in_values=True, delimiter="\t" if ".tsv" in path.lower()[-7:] else ","
        ),
        "convert_options": csv.ConvertOptions(
            column_types={name: pa.string() for name in names or ()},
            include_columns=list(only),
            null_values=list(ALWAYS_MISSING),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    }


def pandas_names(names: Sequence[str]) -> list[str]:
    """Return the column names that pandas would use: an empty name at index N becomes `Unnamed: N`."""
    return [name or f"Unnamed: {i}" for i, name in enumerate(names)]


def bytes_to_read(files: SourceFiles, columns: Sequence[str]) -> int:
    """Estimate how many bytes must be read to get some columns of a source. CSV files must be read completely."""
    total = 0
    for path in files.paths:
        kind = data_suffix(path) or ""
        if kind in (".parquet", ".pq"):
            import pyarrow.parquet as pq

            with files.system.open_input_file(path) as opened:
                meta = pq.read_metadata(opened)
            for group in map(meta.row_group, range(meta.num_row_groups)):
                parts = map(group.column, range(group.num_columns))
                total += sum(
                    p.total_uncompressed_size
                    for p in parts
                    if {p.path_in_schema, p.path_in_schema.split(".")[0]} & {*columns}
                )
        else:
            size = files.system.get_file_info(path).size
            total += size * (_GZIP_RATIO if kind.endswith(".gz") else 1)
    return total


def uncompressed_bytes(system: Any, path: str) -> int:
    """Return the size of all columns of a Parquet file, or of the text of a CSV file, in bytes. For a gzip file, this is an estimate."""
    kind = data_suffix(path) or ""
    if kind in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        with system.open_input_file(path) as opened:
            meta = pq.read_metadata(opened)
        return sum(meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
    return int(system.get_file_info(path).size) * (_GZIP_RATIO if kind.endswith(".gz") else 1)


# Typical compression ratio of CSV text. A gzip file does not reliably contain its uncompressed size.
_GZIP_RATIO = 5


def read_columns(files: SourceFiles, columns: Sequence[str]) -> pa.Table:
    """Read some columns of all files of a source. A column has the same type as in the result of `sources.read_source`.

    Raises:
        InputError: a file cannot be read.
    """
    import pyarrow.parquet as pq

    tables: list[pa.Table] = []
    text = data_suffix(files.paths[0]) not in (".parquet", ".pq")
    for path in files.paths:
        try:
            if text:
                tables += csv_blocks(files.system, path, columns, columns)
            else:
                with files.system.open_input_file(path) as opened:
                    tables.append(pq.read_table(opened, columns=list(columns), partitioning=None))
        except (OSError, pa.ArrowException, ValueError) as e:
            raise_problem(
                files.place, f"`{files.display_name(path)}` cannot be read: {first_line(e)}", e
            )
    return _joined(tables, columns, text)


def _joined(tables: Sequence[pa.Table], columns: Sequence[str], text: bool) -> pa.Table:
    """Return the rows of all tables with canonical types. `text` is true if the tables have the texts of CSV files."""
    filled = (
        [t for t in tables if t.num_rows]
        or tables[:1]
        or [pa.schema([(name, pa.string()) for name in columns]).empty_table()]
    )
    whole = pa.concat_tables(
        [t.select(list(columns)).replace_schema_metadata(None) for t in filled],
        promote_options="permissive",
    )
    return canonical_table(infer_types(whole) if text else whole)


# Number of files of which `read_some` reads rows, and number of row groups of each Parquet file.
SAMPLED_FILES, SAMPLED_GROUPS = 20, 4


@dataclass(frozen=True)
class SomeRows:
    """Some rows of a source that is too large to read it early.

    Attributes:
        table: the rows, with the types that these rows have.
        rows: number of rows of the whole source.
        exact: False if `rows` is an estimate.
    """

    table: pa.Table
    rows: int
    exact: bool


def read_some(files: SourceFiles, columns: Sequence[str], most: int) -> SomeRows:
    """Read at most `most` rows of a source, from files and row groups at equal distances.

    Raises:
        OSError, pyarrow.ArrowException: a file cannot be read.
    """
    import pyarrow.parquet as pq

    chosen = [files.paths[i] for i in spread(len(files.paths), SAMPLED_FILES)]
    each, share = max(1, most // len(chosen)), len(files.paths) / len(chosen)
    tables, read, size = [], 0, 0
    if data_suffix(chosen[0]) in (".parquet", ".pq"):
        for path in chosen:
            with files.system.open_input_file(path) as opened:
                file = pq.ParquetFile(opened)
                read += file.metadata.num_rows
                groups = spread(file.num_row_groups, SAMPLED_GROUPS)
                tables += [
                    file.read_row_group(i, columns=list(columns)).slice(
                        0, max(1, each // len(groups))
                    )
                    for i in groups
                ]
        return SomeRows(_joined(tables, columns, text=False), round(share * read), share == 1)
    for path in chosen:
        block = next(csv_blocks(files.system, path, columns, columns))
        whole = uncompressed_bytes(files.system, path)
        tables.append(block.slice(0, each))
        read, size = read + block.num_rows, size + min(whole, COLUMN_BLOCK)
    whole = sum(uncompressed_bytes(files.system, path) for path in files.paths)
    return SomeRows(_joined(tables, columns, text=True), round(read * whole / max(1, size)), False)


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices below `count`, at equal distances.

    >>> spread(10, 3), spread(2, 3)
    ([0, 4, 9], [0, 1])
    """
    number = min(count, most)
    return [i * (count - 1) // max(1, number - 1) for i in range(number)]


def csv_blocks(
    system: Any, path: str, names: Sequence[str], only: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows of a CSV file as text, one block at a time.

    If a row is longer than a block, reading continues from that row with larger blocks.

    Args:
        system: Arrow's file system.
        path: path of the file. A file with the suffix `.gz` is decompressed.
        names: names of all columns.
        only: columns to read.
    """
    from pyarrow import csv

    read = 0
    for block in (COLUMN_BLOCK, CSV_BLOCK):
        seen = 0
        try:
            with system.open_input_stream(path) as stream:
                for batch in csv.open_csv(stream, **csv_options(path, names, only, block)):
                    table, seen = (
                        pa.Table.from_batches([batch]).slice(max(0, read - seen)),
                        seen + len(batch),
                    )
                    if len(table):
                        yield table
                    read = max(read, seen)
            return
        except pa.ArrowInvalid as e:
            if block == CSV_BLOCK or "straddling" not in str(e):
                raise
