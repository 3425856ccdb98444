"""Read the names of all columns of data files, and the values of some columns.

This module needs neither Ray nor pandas.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import differences_text, first_line
from sweeps.data.columns.missing import certain_texts
from sweeps.data.columns.tables import (
    ALWAYS_MISSING,
    canonical_table,
    drop_index_names,
    infer_types,
    is_text,
    type_name,
)
from sweeps.data.sources import text_shape
from sweeps.data.sources.data_files import (
    SourceFiles,
    file_format,
    raise_problem,
    reading,
    unsupported,
)

if TYPE_CHECKING:
    from pydantic import JsonValue

    from sweeps.space import DataSpec

# Bytes of a block. Arrow cannot read a row that is longer than a block, and a quoted field may
# contain a whole document.
CSV_BLOCK = 32 << 20
# Arrow reads 32 blocks ahead. If each row fits into a smaller block, smaller blocks are faster for
# reading the first rows.
COLUMN_BLOCK = 4 << 20
# Rows in which texts are looked for before the source is read
_PROBE_ROWS = 10_000
# Characters and lines at the beginning of a text file in which its shape is looked for
_PROBE_SIZE = 256 << 10
_PROBE_LINES = 100


@dataclass(frozen=True)
class FileSchema:
    """Columns of a data file.

    Attributes:
        schema: Names and types of the columns. All columns of a text file are texts, and a column
            without a name has the name that pandas gives it, such as `Unnamed: 0`.
        rows: Whether the file has any rows.
        start: For a text file, the number of lines before the first row.
    """

    schema: pa.Schema
    rows: bool
    start: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.schema.names)


def probe_schemas(files: SourceFiles, most: int | None = None) -> tuple[FileSchema, ...]:
    """Read the schemas of the files of a source.

    All files must have the same format (CSV, TSV, JSON lines or Parquet) and the same columns.

    Args:
        files: The files of the source.
        most: Largest number of files to read. None to read all files.

    Returns:
        The schema of each file that was read.

    Raises:
        InputError: The formats differ, the contents of a file do not match its suffix, a file has
            other columns than the first file, or no file has rows.
    """
    kinds = {file_format(path) for path in files.paths} - {""}
    if len(kinds) > 1:
        raise_problem(
            files.place, f"`{files.source}` mixes {' and '.join(sorted(kinds))} files; use one kind"
        )
    schemas: dict[str, FileSchema] = {}
    for path in files.paths[:most]:
        with reading(files.place, files.display_name(path)):
            schemas[path] = probe_schema(files, path)
    start = files.paths[0]
    first = set(schemas[start].names)
    for path, other in schemas.items():
        names = set(other.names)
        found = {"lacks": first - names, "also has": names - first}
        if text := differences_text(found, " and "):
            text = f"`{files.display_name(path)}` {text}"
            text += f", compared with `{files.display_name(start)}`"
            raise_problem(files.place, f"{text}; all files of a source need the same columns")
    if len(schemas) == len(files.paths) and not any(other.rows for other in schemas.values()):
        raise_problem(files.place, f"`{files.source}` has no rows")
    return tuple(schemas.values())


def probe_schema(files: SourceFiles, path: str) -> FileSchema:
    """Read the schema of a file.

    Args:
        files: The files of a source.
        path: Path of one of the files.

    Raises:
        ValueError: The suffix is unknown, the contents of the file do not match it, or the first
            lines are not those of a table.
        OSError, pyarrow.ArrowException: Arrow cannot read the file.
    """
    with files.system.open_input_stream(path, compression=None) as stream:
        start = stream.read(4096)
    kind = file_format(path)
    if not kind:
        raise ValueError(unsupported(files.display_name(path)))
    if path.lower().endswith(".gz"):
        _check_contents(start, "a gzip file")
        with files.system.open_input_stream(path) as stream:
            start = stream.read(4096)
    _check_contents(start, _CONTENTS.get(kind, ""))
    if kind == ".parquet":
        import pyarrow.parquet as pq

        with files.system.open_input_file(path) as opened:
            meta = pq.read_metadata(opened)
        schema = meta.schema.to_arrow_schema()
        names = drop_index_names(schema.names)
        return FileSchema(pa.schema([schema.field(name) for name in names]), meta.num_rows > 0)
    if kind == ".jsonl":
        table = json_table(files, path)
        return FileSchema(table.schema, table.num_rows > 0)
    return _probe_text(files, path, start)


def _probe_text(files: SourceFiles, path: str, start: bytes) -> FileSchema:
    """Read the schema of a text file from its first lines. `start` has its first bytes."""
    read = files.read
    if b"\0" in start and read.encoding == "utf-8":
        advice = text_shape.encoding_advice(start)
        if advice.startswith("name its"):
            line = start[: start.index(b"\0")].count(b"\n") + 1
            advice = "it is no text, or remove the byte with `tr -d '\\0'`"
            raise ValueError(f"line {line} has a NUL byte: {advice}")
        raise ValueError(f"it is not UTF-8 text; {advice}")
    with open_text(files, path, read.skip_lines) as text:
        lines = [*itertools.islice(text, 2), *text.readlines(_PROBE_SIZE)[:_PROBE_LINES]]
    if not "".join(lines).strip():
        after = f" after the {read.skip_lines} lines of `skip_lines`" if read.skip_lines else ""
        raise ValueError(f"it has only blank lines{after}")
    if problem := text_shape.first_lines_problem(lines, read, separator_of(files)):
        raise ValueError(problem)
    rows = text_shape.rows_of(lines, separator_of(files), read.skip_lines + 1)
    end: text_shape.Row = (read.skip_lines + len(lines) + 1, [])
    first = next(rows)
    # Files with these names in the first line have a header nevertheless, which may lack the label
    if not read.names or set(first[1]) <= set(read.names):
        names = first[1]
        first = next(rows, end)
    else:
        names = list(read.names)
    duplicates = [name for name in names if name and names.count(name) > 1]
    if duplicates:
        raise ValueError(f"two columns are named `{duplicates[0]}`; rename one of them")
    fields = [(name, pa.string()) for name in text_shape.column_names(names)]
    return FileSchema(pa.schema(fields), first != end, first[0] - 1)


# First bytes of some file formats
_SIGNATURES = {
    b"PAR1": "a Parquet file",
    b"PARE": "a Parquet file",
    b"PK\x03\x04": "a workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "an old workbook",
    b"\x1f\x8b": "a gzip file",
    b"version https://git-lfs": "a Git LFS pointer (run `git lfs pull`)",
    b"SQLite format 3": "an SQLite database",
    b"ARROW1": "an Arrow file",
    b"%PDF-": "a PDF document",
    b"<!": "a page of HTML",
    b"<html": "a page of HTML",
    b"<?xml": "XML",
    b'{"': "JSON lines",
    b"[{": "one array of JSON",
    b"[\n": "one array of JSON",
}
_CONTENTS = {".parquet": "a Parquet file", ".jsonl": "JSON lines"}


def _check_contents(start: bytes, wanted: str) -> None:
    """Check that a file begins with the signature that its name promises.

    Args:
        start: The first bytes of the file.
        wanted: The signature; "" for text.

    Raises:
        ValueError: The file is empty, or has another format.
    """
    if not start:
        raise ValueError("it is empty")
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    found = next((name for sign, name in _SIGNATURES.items() if text.startswith(sign)), "")
    if text and found != wanted:
        begin = re.findall(rb"\A[ -~]{0,40}", text)[0].decode()
        other = f", but {found}" if found else ""
        shown = f"; it begins with `{begin}`" if begin else ""
        raise ValueError(f"it is not {wanted or 'text'}{other}{shown}")


def certain_types(spec: DataSpec, files: SourceFiles) -> dict[str, str]:
    """Return the columns that hold no numbers whatever the other rows are, with their types.

    See `tables.type_name`. A column of texts counts only if the first rows have a text that is
    neither a number nor a marker of `data.missing`.

    Raises:
        InputError: The first file cannot be read.
    """
    path = files.paths[0]
    with reading(files.place, files.display_name(path)):
        schema = probe_schema(files, path).schema
        texts = [field.name for field in schema if is_text(field.type)]
        rows = read_some(replace(files, paths=(path,)), texts, _PROBE_ROWS).table
    certain = certain_texts(spec, rows)
    types = {field.name: type_name(field) for field in schema}
    return {n: kind for n, kind in types.items() if kind and (kind != "text" or n in certain)}


def separator_of(files: SourceFiles) -> str:
    """Return the character that separates the values of text files."""
    return files.read.separator or ("\t" if files.format == ".tsv" else ",")


def open_text(files: SourceFiles, path: str, skip: int) -> io.TextIOWrapper:
    """Open a text file after some lines.

    A byte that cannot be decoded becomes a surrogate character.
    """
    encoding = files.read.encoding
    stream = files.system.open_input_stream(path)
    text = io.TextIOWrapper(
        stream, encoding + "-sig" * (encoding == "utf-8"), "surrogateescape", newline=""
    )
    for _ in range(skip):
        text.readline()
    return text


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
    groups = map(meta.row_group, range(meta.num_row_groups))
    parts = (group.column(i) for group in groups for i in range(group.num_columns))
    return sum(
        part.total_uncompressed_size
        for part in parts
        if columns is None or {part.path_in_schema, part.path_in_schema.split(".")[0]} & {*columns}
    )


# Typical compression ratio of CSV text. A gzip file does not reliably contain its uncompressed
# size.
_GZIP_RATIO = 5


def read_columns(files: SourceFiles, columns: Sequence[str]) -> pa.Table:
    """Read some columns of all files of a source.

    A column has the same type as in the result of `sources.read_source`.

    All columns of text files are checked; see `text_shape.rows_problem`.

    Raises:
        InputError: A file cannot be read.
    """
    tables: list[pa.Table] = []
    for path in files.paths:
        with reading(files.place, files.display_name(path)):
            tables += read_blocks(files, path, columns)
    return _joined(tables, columns, files.is_text)


def _joined(tables: Sequence[pa.Table], columns: Sequence[str], text: bool) -> pa.Table:
    """Return the rows of all tables with canonical types.

    `text` is true if the tables have the texts of CSV files.
    """
    filled = [table for table in tables if table.num_rows]
    if not filled:
        filled = [pa.schema([(name, pa.string()) for name in columns]).empty_table()]
    whole = pa.concat_tables(filled, promote_options="permissive").select(list(columns))
    return canonical_table(infer_types(whole) if text else whole)


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

    Raises:
        OSError, pyarrow.ArrowException: A file cannot be read.
    """
    import pyarrow.parquet as pq

    chosen = [files.paths[i] for i in spread(len(files.paths), SAMPLED_FILES)]
    each = max(1, most // len(chosen))
    share = len(files.paths) / len(chosen)
    tables: list[pa.Table] = []
    read = 0
    if files.format == ".parquet":
        for path in chosen:
            with files.system.open_input_file(path) as opened:
                file = pq.ParquetFile(opened)
                read += file.metadata.num_rows
                groups = spread(file.num_row_groups, SAMPLED_GROUPS)
                for i in groups:
                    rows = max(1, each // len(groups))
                    batches = file.iter_batches(rows, row_groups=[i], columns=list(columns))
                    first = itertools.islice(batches, 1)
                    tables += [pa.Table.from_batches([batch]) for batch in first]
        return SomeRows(_joined(tables, columns, text=False), round(share * read), share == 1)
    size = 0
    for path in chosen:
        for block in itertools.islice(read_blocks(files, path, columns), 1):
            tables.append(block.slice(0, each))
            read += block.num_rows
            size += min(uncompressed_bytes(files, path), COLUMN_BLOCK)
    whole = sum(uncompressed_bytes(files, path) for path in files.paths)
    rows = round(read * whole / max(1, size))
    return SomeRows(_joined(tables, columns, files.is_text), rows, exact=False)


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices below `count`, at equal distances.

    >>> spread(10, 3), spread(2, 3)
    ([0, 4, 9], [0, 1])
    """
    number = min(count, most)
    return [i * (count - 1) // max(1, number - 1) for i in range(number)]


def read_blocks(files: SourceFiles, path: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of a file, in their order.

    Text files are read as text, one block at a time.

    Args:
        files: The files of a source.
        path: Path of one of the files.
        columns: Names of columns of the file, and of columns that the folders of the source define.

    Raises:
        ValueError: The file is not a table; the message names the line.
        OSError, pyarrow.ArrowException: The file cannot be read.
    """
    folders = files.partition_values(path)
    if files.is_text:
        tables = text_blocks(files, path)
    elif files.format == ".jsonl":
        tables = iter((json_table(files, path),))
    else:
        import pyarrow.parquet as pq

        inside = [name for name in columns if name not in folders]
        with files.system.open_input_file(path) as opened:
            # The option `pre_buffer` would hold a whole file in memory
            table = pq.read_table(opened, columns=inside, partitioning=None, pre_buffer=False)
        tables = iter((table,))
    for table in tables:
        for name, value in folders.items():
            if name not in table.column_names:
                table = table.append_column(name, pa.repeat(value, len(table)))
        yield table.select(list(columns))


def text_blocks(files: SourceFiles, path: str) -> Iterator[pa.Table]:
    """Yield the rows of a CSV or TSV file as text, one block at a time.

    If a row is longer than a block, reading continues from that row with larger blocks.
    """
    from pyarrow import csv

    schema = probe_schema(files, path)
    read = 0
    for block in (COLUMN_BLOCK, CSV_BLOCK):
        seen = 0
        try:
            with files.system.open_input_stream(path) as stream:
                for batch in csv.open_csv(
                    stream,
                    csv.ReadOptions(
                        use_threads=False,
                        block_size=block,
                        column_names=schema.names,
                        skip_rows=schema.start,
                        encoding=files.read.encoding,
                    ),
                    csv.ParseOptions(delimiter=separator_of(files), newlines_in_values=True),
                    csv.ConvertOptions(
                        column_types=schema.schema,
                        null_values=list(ALWAYS_MISSING),
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=True,
                    ),
                ):
                    table = pa.Table.from_batches([batch]).slice(max(0, read - seen))
                    seen += len(batch)
                    read = max(read, seen)
                    # `pc.equal` would import pandas. Few rows match by chance, and `_check_rows`
                    # looks again
                    if pc.any(pc.match_like(table.columns[-1], table.column_names[-1])).as_py():
                        _check_rows(files, path, schema)
                    if len(table):
                        yield _with_points(table) if files.read.decimal == "," else table
            return
        except (pa.ArrowInvalid, UnicodeError) as e:
            if block == CSV_BLOCK or "straddling" not in str(e):
                _check_rows(files, path, schema)
                raise


def _check_rows(files: SourceFiles, path: str, schema: FileSchema) -> None:
    """Read all rows of a text file slowly.

    Raise a `ValueError` that names the first line that is wrong.
    """
    with open_text(files, path, schema.start) as text:
        rows = text_shape.rows_of(text, separator_of(files), schema.start + 1)
        if problem := text_shape.rows_problem(
            rows, list(schema.names), files.read.encoding, files.display_name(path)
        ):
            raise ValueError(problem)


# Numbers with points between groups of three digits, and with a decimal comma, and how they are
# written with a decimal point
_COMMA_NUMBERS = {
    r"^(\s*[+-]?\d{1,3})\.(\d{3})(?:\.(\d{3}))?(,\d+)?\s*$": r"\1\2\3\4",
    r"^(\s*[+-]?\d*),(\d+)\s*$": r"\1.\2",
}


def _with_points(table: pa.Table) -> pa.Table:
    """Write the numbers in columns of texts with a decimal point."""
    for i, texts in enumerate(table.columns):
        for comma, point in _COMMA_NUMBERS.items():
            texts = pc.replace_substring_regex(texts, comma, point)
        table = table.set_column(i, table.column_names[i], texts)
    return table


def json_table(files: SourceFiles, path: str) -> pa.Table:
    """Read a file of JSON lines. A key that a line lacks is a missing value.

    Raises:
        ValueError: A line is no object, or the values of a key have different types.
    """
    rows: list[dict[str, JsonValue]] = []
    with files.system.open_input_stream(path) as stream:
        for number, line in enumerate(io.TextIOWrapper(stream, "utf-8-sig"), 1):
            try:
                rows += [{**json.loads(line)}] if line.strip() else []
            except (TypeError, ValueError):
                text = f"line {number} is not a JSON object: `{line.strip()[:40]}`"
                raise ValueError(text) from None
    names = dict.fromkeys(itertools.chain(*rows))
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except pa.ArrowException as e:
            text = f"`{name}` holds values of different types ({first_line(e)})"
            raise ValueError(f"{text}; give each column values of one type") from e
    return pa.table(columns)
