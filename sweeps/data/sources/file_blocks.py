"""Read some columns of a data file, one block at a time, without Ray and pandas."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data.columns.column_types import ALWAYS_MISSING

from . import text_shape
from .data_files import SourceFiles
from .schema_probe import FileSchema, json_table, probe_schema

# Bytes of a block. Arrow cannot read a row that is longer than a block, and a quoted field may
# contain a whole document.
CSV_BLOCK = 32 << 20
# Arrow reads 32 blocks ahead. If each row fits into a smaller block, smaller blocks are faster for
# reading the first rows.
COLUMN_BLOCK = 4 << 20


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

    If a row is longer than a block, the file is read again with larger blocks, and the rows that
    were yielded already are skipped.
    """
    from pyarrow import csv

    schema = probe_schema(files, path)
    yielded = 0  # number of rows
    for block in (COLUMN_BLOCK, CSV_BLOCK):
        position = 0  # number of rows before the batch, in this pass over the file
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
                    csv.ParseOptions(delimiter=files.separator, newlines_in_values=True),
                    csv.ConvertOptions(
                        column_types=schema.schema,
                        null_values=list(ALWAYS_MISSING),
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=True,
                    ),
                ):
                    table = pa.Table.from_batches([batch]).slice(max(0, yielded - position))
                    position += len(batch)
                    yielded = max(yielded, position)
                    # A row may repeat the header. `pc.equal` would import pandas. Few other rows
                    # match this pattern, and `_check_rows` looks again.
                    if pc.any(pc.match_like(table.columns[-1], table.column_names[-1])).as_py():
                        _check_rows(files, path, schema)
                    if len(table):
                        yield _with_points(table) if files.read.decimal == "," else table
            return
        except (pa.ArrowInvalid, UnicodeError) as e:
            # Arrow says "straddling" if a row is longer than a block.
            if block == CSV_BLOCK or "straddling" not in str(e):
                _check_rows(files, path, schema)
                raise


def _check_rows(files: SourceFiles, path: str, schema: FileSchema) -> None:
    """Read all rows of a text file slowly.

    Raise a `ValueError` that names the first line that is wrong.
    """
    with files.open_text(path, schema.start) as text:
        rows = text_shape.rows_of(text, files.separator, schema.start + 1)
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
    """Write the numbers in columns of texts with a decimal point: `1.234,5` as `1234.5`."""
    for i, texts in enumerate(table.columns):
        for comma, point in _COMMA_NUMBERS.items():
            texts = pc.replace_substring_regex(texts, comma, point)
        table = table.set_column(i, table.column_names[i], texts)
    return table
