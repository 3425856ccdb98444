"""Read the names and types of the columns of data files, without Ray and pandas."""

import io
import itertools
import json
import re
from dataclasses import dataclass

import pyarrow as pa

from sweeps.core.errors import differences_text, first_line
from sweeps.data.columns.tables import drop_index_names

from . import text_shape
from .data_files import (
    SourceFiles,
    file_format,
    raise_problem,
    read_errors,
    unsupported_text,
)

# Number of bytes at the beginning of a file that tell its format
_START_BYTES = 4096
# Number of characters and lines at the beginning of a text file that tell its shape
_PROBE_SIZE = 256 << 10
_PROBE_LINES = 100


@dataclass(frozen=True)
class FileSchema:
    """Columns of a data file.

    Attributes:
        schema: Names and types of the columns. All columns of a text file are texts, and a column
            without a name has the name that pandas gives it, such as `Unnamed: 0`.
        rows: True if the file has any rows.
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
        with read_errors(files.place, files.display_name(path)):
            schemas[path] = probe_schema(files, path)
    first = files.paths[0]
    first_names = set(schemas[first].names)
    for path, schema in schemas.items():
        names = set(schema.names)
        differences = {"lacks": first_names - names, "also has": names - first_names}
        if text := differences_text(differences, " and "):
            text = f"`{files.display_name(path)}` {text}"
            text += f", compared with `{files.display_name(first)}`"
            raise_problem(files.place, f"{text}; all files of a source need the same columns")
    if len(schemas) == len(files.paths) and not any(schema.rows for schema in schemas.values()):
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
        start = stream.read(_START_BYTES)
    suffix = file_format(path)
    if not suffix:
        raise ValueError(unsupported_text(files.display_name(path)))
    if path.lower().endswith(".gz"):
        _check_contents(start, "a gzip file")
        with files.system.open_input_stream(path) as stream:
            start = stream.read(_START_BYTES)
    _check_contents(start, _CONTENTS.get(suffix, ""))
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        with files.system.open_input_file(path) as opened:
            meta = pq.read_metadata(opened)
        schema = meta.schema.to_arrow_schema()
        names = drop_index_names(schema.names)
        return FileSchema(pa.schema([schema.field(name) for name in names]), meta.num_rows > 0)
    if suffix == ".jsonl":
        table = json_table(files, path)
        return FileSchema(table.schema, table.num_rows > 0)
    return _probe_text(files, path, start)


def _probe_text(files: SourceFiles, path: str, start: bytes) -> FileSchema:
    """Read the schema of a text file from its first lines. `start` has its first bytes."""
    read = files.read
    if b"\0" in start and read.encoding == "utf-8":
        advice = text_shape.encoding_advice(start)
        if advice.startswith("name its"):  # the bytes fit no encoding that sweeps can recognise
            line = start[: start.index(b"\0")].count(b"\n") + 1
            advice = "it is no text, or remove the byte with `tr -d '\\0'`"
            raise ValueError(f"line {line} has a NUL byte: {advice}")
        raise ValueError(f"it is not UTF-8 text; {advice}")
    # The first two lines are read whole, however long they are.
    with files.open_text(path, read.skip_lines) as text:
        lines = [*itertools.islice(text, 2), *text.readlines(_PROBE_SIZE)[:_PROBE_LINES]]
    if not "".join(lines).strip():
        after = f" after the {read.skip_lines} lines of `skip_lines`" if read.skip_lines else ""
        raise ValueError(f"it has only blank lines{after}")
    if problem := text_shape.first_lines_problem(lines, read, files.separator):
        raise ValueError(problem)
    rows = text_shape.rows_of(lines, files.separator, read.skip_lines + 1)
    end: text_shape.Row = (read.skip_lines + len(lines) + 1, [])
    row = next(rows)
    _, names = row
    # With `data.read.names`, a file has no header. But a first line that has only these names is
    # a header nevertheless; it may lack the label.
    if read.names and not set(names) <= set(read.names):
        names = list(read.names)
    else:
        row = next(rows, end)
    duplicates = [name for name in names if name and names.count(name) > 1]
    if duplicates:
        raise ValueError(f"two columns are named `{duplicates[0]}`; rename one of them")
    fields = [(name, pa.string()) for name in text_shape.column_names(names)]
    line, _ = row
    return FileSchema(pa.schema(fields), rows=row != end, start=line - 1)


# Names of file formats by the first bytes of a file
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
# The format that a file must have, by its suffix. Text files have none of these formats.
_CONTENTS = {".parquet": "a Parquet file", ".jsonl": "JSON lines"}


def _check_contents(start: bytes, expected: str) -> None:
    """Check that a file has the format that its name promises.

    Args:
        start: The first bytes of the file.
        expected: Name of the format; "" for text.

    Raises:
        ValueError: The file is empty, or has another format.
    """
    if not start:
        raise ValueError("it is empty")
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")  # without a byte order mark and blank lines
    actual = next((name for sign, name in _SIGNATURES.items() if text.startswith(sign)), "")
    if text and actual != expected:
        message = f"it is not {expected or 'text'}"
        if actual:
            message += f", but {actual}"
        if begin := re.findall(rb"\A[ -~]{0,40}", text)[0].decode():
            message += f"; it begins with `{begin}`"
        raise ValueError(message)


def json_table(files: SourceFiles, path: str) -> pa.Table:
    """Read a file of JSON lines. A key that a line lacks is a missing value.

    Raises:
        ValueError: A line is no object, or the values of a key have different types.
    """
    rows: list[dict[str, object]] = []
    with files.system.open_input_stream(path) as stream:
        for number, line in enumerate(io.TextIOWrapper(stream, "utf-8-sig"), 1):
            if not line.strip():
                continue
            try:
                rows.append({**json.loads(line)})
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
