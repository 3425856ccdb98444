"""Convert Arrow tables to a canonical form.

Equal rows then have the same types and the same fingerprint, whatever their source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from sweeps.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import ray

# Rows by split or source
Parts = dict[str, pa.Table]

# Texts that are missing values in every format and column. `sweeps.data.columns.missing`
# decides about other texts.
ALWAYS_MISSING = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "NULL",
    "NaN",
    "nan",
    "null",
)
# Share of the texts that must have the same length if the texts of a column are codes such as ZIP
# codes.
CODES_SHARE = 0.95

# Key of a field's metadata that names the extension type of the column, such as Ray Data's type of
# tensors
EXTENSION_KEY = b"ARROW:extension:name"
# Types of which `canonical_table` makes numbers or booleans
_NUMBERS = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null)
# Column name of an unnamed pandas index in a Parquet file. Pandas writes such a column for each
# frame that was filtered or shuffled.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


def string_array(*words: str) -> pa.Array:
    """Return an Arrow array of strings.

    `pa.array` would import pandas, which takes a third of the time of the early checks.
    """
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(words), pa.py_buffer(offsets), pa.py_buffer("".join(words).encode())
    )


_ALWAYS_MISSING = string_array(*ALWAYS_MISSING)
# The texts that pandas reads as booleans
_BOOLEANS = "^(True|TRUE|true|False|FALSE|false)$"


def drop_index_names(names: Iterable[str]) -> list[str]:
    """Remove names such as `__index_level_0__`.

    Pandas uses such names to store an index that has no name. This index is not a feature.
    """
    return [name for name in names if not _UNNAMED_INDEX.fullmatch(name)]


def canonical_table(table: pa.Table) -> pa.Table:
    """Convert the columns of a table to canonical types.

    A dictionary-encoded column becomes a plain column of its values. Strings become `large_string`,
    whose offsets do not overflow when blocks are joined. Decimals and columns with only nulls
    become `double`, dates become timestamps, and NaN becomes null. Blank texts and the texts in
    `ALWAYS_MISSING` become null. The metadata and an index of pandas without a name are dropped.
    """
    return pa.table(
        {
            name: _canonical_column(table.column(name))
            for name in drop_index_names(table.column_names)
        }
    )


def _canonical_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if is_text(kind):
        return null_texts(column.cast(pa.large_string()))
    if types.is_null(kind) or types.is_decimal(kind):
        return column.cast(pa.float64())
    if types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    if types.is_float16(kind):
        column = column.cast(pa.float32())
        kind = pa.float32()
    if types.is_floating(kind):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            return pc.if_else(nan, pa.scalar(None, kind), column)
    return column


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a type of texts."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def null_texts(column: pa.ChunkedArray, texts: pa.Array = _ALWAYS_MISSING) -> pa.ChunkedArray:
    """Return a column of texts in which some texts are null, with or without spaces around them.

    Blank texts are null, too.

    Args:
        column: The column.
        texts: The texts.
    """
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(trimmed, value_set=texts.cast(column.type))
    if not pc.any(missing).as_py():
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def is_number(kind: pa.DataType) -> bool:
    """Return whether `canonical_table` makes numbers or booleans of a type."""
    return any(is_of_type(kind) for is_of_type in _NUMBERS)


def extension_name(field: pa.Field) -> str:
    """Return the name of a column's extension type, known to Arrow or not; "" if it has none."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    marked: bytes = (field.metadata or {}).get(EXTENSION_KEY, b"")
    return marked.decode(errors="replace")


def type_name(field: pa.Field) -> str:
    """Return how messages name the type of a column: "text", "category", or the name of the type.

    Return "" for numbers and booleans.
    """
    if extension := extension_name(field):
        return extension
    kind = field.type
    value = kind.value_type if types.is_dictionary(kind) else kind
    if is_number(value):
        return ""
    if is_text(value):
        return "text" if value is kind else "category"
    return str(value)


def infer_types(table: pa.Table) -> pa.Table:
    """Convert columns of CSV text to the types that pandas would infer.

    These are integers, floats, booleans, or else strings. The types are inferred from the whole
    column, so they do not depend on the sizes of files and blocks. Codes with leading zeros stay
    strings, and blank texts are missing values.
    """
    return pa.table({name: infer_type(table.column(name)) for name in table.column_names})


def infer_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert a column of text; see `infer_types`."""
    column = null_texts(column)
    if column.null_count == len(column):
        return column.cast(pa.float64())
    try:
        float(pc.first(column).as_py())
    except ValueError:
        if pc.all(pc.match_substring_regex(column, _BOOLEANS)).as_py():
            return parse_text(column, pa.bool_())
        return column
    # Arrow reads 0x1F as a number, but not `+5` or ` 5`. Pandas does the opposite.
    plain = _plain_numbers(column)
    if pc.any(pc.match_substring(plain, "x", ignore_case=True)).as_py():
        return column
    for kind in (pa.int64(), pa.float64()):
        try:
            numbers = plain.cast(kind)
        except pa.ArrowInvalid:
            continue
        return column if types.is_integer(kind) and has_codes(plain) else numbers
    return column


def has_codes(texts: pa.ChunkedArray) -> bool:
    """Return whether texts are codes such as ZIP codes.

    Nearly all such texts are digits of the same length, and some begin with a zero.
    """
    digits = texts.filter(pc.match_substring_regex(texts, r"^\d+$"))
    if not pc.any(pc.match_substring_regex(digits, r"^0\d")).as_py():
        return False
    counts = pc.value_counts(pc.utf8_length(digits)).field("counts")
    return bool(pc.max(counts).as_py() >= CODES_SHARE * (len(texts) - texts.null_count))


def _plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(column), r"^\+", "")


def parse_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert a column of CSV text to int64, float64 or bool, as pandas would.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the type.
    """
    return _plain_numbers(column).cast(kind)


def part_of(dataset: ray.data.Dataset, k: int, rank: int) -> ray.data.Dataset:
    """Return the rows of a Ray Dataset for one of `k` ranks, as a Ray Dataset in memory.

    The rows are the same as in `split_equally(..., k)[rank]`.

    Raises:
        InputError: There are fewer rows than parts.
    """
    import ray.data

    table = pa.Table.from_pandas(dataset.to_pandas(), preserve_index=False)
    part: ray.data.Dataset = ray.data.from_blocks([split_equally(table, k)[rank].to_pandas()])
    return part


def copy_table(table: pa.Table) -> pa.Table:
    """Return a table with the same rows in new memory.

    The memory of the given table may belong to Ray, which frees it when it ends.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def split_equally(table: pa.Table, k: int) -> list[pa.Table]:
    """Split a table into `k` tables of exactly n // k rows, one for each rank of a gang.

    Part r has the rows r, r + k, r + 2k, ..., so that each rank gets every class even if the rows
    are sorted by class. At most k - 1 rows at the end are dropped, because ranks with different
    numbers of rows would deadlock in a collective operation.

    Args:
        table: n rows.
        k: Number of parts.

    Raises:
        InputError: There are fewer rows than parts.
    """
    if k == 1:
        return [table]
    each = table.num_rows // k
    if not each:
        raise InputError(
            "scaling.num_workers",
            f"the trial has {k} workers, but the train split has only {table.num_rows} rows",
        )
    return [table.take(pa.array(np.arange(rank, each * k, k))) for rank in range(k)]


def arrays_to_tensors(frame: pd.DataFrame, names: Collection[str] = ()) -> pd.DataFrame:
    """Convert columns of NumPy arrays to Ray Data's tensors.

    Arrow can store tensors, and training loops can read them in batches.

    Args:
        frame: Rows. Arrays with two or more dimensions become tensors. Arrays with one dimension
            are kept; Arrow stores them as lists.
        names: Columns whose arrays become tensors even if they have one dimension.
    """

    def holds_arrays(name: str) -> bool:
        values = frame[name]
        first = values.iloc[0] if len(values) and values.dtype == object else None
        return (
            isinstance(first, np.ndarray)
            and first.dtype != object
            and (first.ndim > 1 or name in names)
        )

    tensors = [name for name in frame.columns if holds_arrays(name)]
    if not tensors:
        return frame
    from ray.data.extensions import TensorArray

    return frame.assign(**{name: TensorArray(list(frame[name])) for name in tensors})


def describe_type(kind: pa.DataType) -> str:
    """Return the name of a type for messages."""
    return "text" if pa.types.is_large_string(kind) else str(kind)


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type is a type of integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
