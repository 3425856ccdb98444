"""Decide the type of an Arrow column, and name it in messages."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

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
# The texts that pandas reads as booleans
_BOOLEANS = "^(True|TRUE|true|False|FALSE|false)$"
# Arrow's tests for the types of which `canonical_table` makes numbers or booleans
_TYPE_TESTS = (
    types.is_boolean,
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_null,
)


def string_array(*words: str) -> pa.Array:
    """Return an Arrow array of strings.

    `pa.array` would import pandas, which takes a third of the time of the early checks.
    """
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(words), pa.py_buffer(offsets), pa.py_buffer("".join(words).encode())
    )


_ALWAYS_MISSING = string_array(*ALWAYS_MISSING)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a type of texts."""
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def null_texts(column: pa.ChunkedArray, texts: pa.Array = _ALWAYS_MISSING) -> pa.ChunkedArray:
    """Replace some texts of a column by null, also if there are spaces around them.

    Args:
        column: A column of texts.
        texts: The texts to replace. Blank texts are replaced if "" is among them.
    """
    trimmed = pc.utf8_trim_whitespace(column)
    missing = pc.is_in(trimmed, value_set=texts.cast(column.type))
    if not pc.any(missing).as_py():
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def is_number_or_boolean(kind: pa.DataType) -> bool:
    """Return whether `canonical_table` makes numbers or booleans of a type."""
    return any(is_of_type(kind) for is_of_type in _TYPE_TESTS)


def extension_name(field: pa.Field) -> str:
    """Return the name of a column's extension type, known to Arrow or not; "" if it has none."""
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    marked: bytes = (field.metadata or {}).get(EXTENSION_KEY, b"")
    return marked.decode(errors="replace")


def type_name(field: pa.Field) -> str:
    """Return the type of a column that steps or trainers may refuse; "" for numbers and booleans.

    The type is "text", "category", or Arrow's name of the type. Unlike `describe_type`, the
    function knows extension types and dictionaries.
    """
    if extension := extension_name(field):
        return extension
    kind = field.type
    value = kind.value_type if types.is_dictionary(kind) else kind
    if is_number_or_boolean(value):
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
        float(pc.first(column).as_py())  # one text that is no number is enough
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
    """Remove spaces and a leading `+`, which Arrow does not accept in numbers."""
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(column), r"^\+", "")


def parse_text(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert a column of CSV text to int64, float64 or bool, as pandas would.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit the type.
    """
    return _plain_numbers(column).cast(kind)


def describe_type(kind: pa.DataType) -> str:
    """Return the name of a type for messages: "text", or Arrow's name, such as "int64".

    The column must be canonical; see `canonical_table`.
    """
    return "text" if pa.types.is_large_string(kind) else str(kind)


def is_numeric(kind: pa.DataType) -> bool:
    """Return whether a type is a type of integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
