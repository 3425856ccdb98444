"""Hash rows and tables with pandas, and assign rows to splits by their hash. Pure functions.

The split of a row depends only on the row and the seed, not on other rows. So a stream can be split
without a pass over the data. Copies of a row are always in the same split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from .column_types import is_text
from .tables import Parts

if TYPE_CHECKING:
    import pandas as pd

# The purposes of a mask: the rows of valid, and the rows that `data.rows` takes
VALID_PURPOSE = "valid"
SHARE_PURPOSE = "rows"


def hash_mask(
    table: pa.Table, columns: Sequence[str], share: float, purpose: str, seed: int
) -> np.ndarray:
    """Return which rows are among the fraction `share` of all rows, as a mask of shape (n,).

    Args:
        table: n rows.
        columns: Columns whose values decide.
        share: Fraction between 0 and 1.
        purpose: `VALID_PURPOSE` or `SHARE_PURPOSE`. Masks of different purposes are independent.
        seed: Seed of the sweep.
    """
    import pandas as pd

    start = pd.util.hash_array(np.array([f"{purpose} {int(seed)}"], dtype=object))
    hashes = pd.util.hash_array(row_hashes(table, columns) ^ start)
    # The upper 53 bits of a hash are a random fraction below 1, which a float64 holds exactly.
    return np.asarray((hashes >> np.uint64(11)) * 2.0**-53 < share)


def row_hashes(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Return a hash of the values of each row in some columns, uint64 of shape (n,).

    The hash does not depend on the block in which a row is.
    """
    import pandas as pd

    values = {i: _hashable(table.column(name)) for i, name in enumerate(columns)}
    frame = pd.DataFrame(values, index=pd.RangeIndex(table.num_rows))
    return np.asarray(pd.util.hash_pandas_object(frame, index=False))


def _hashable(column: pa.ChunkedArray) -> np.ndarray | pd.Series:
    """Return values that pandas hashes alike, whatever the other values of the block are."""
    kind = column.type
    if is_text(kind):
        return column.dictionary_encode().to_pandas()
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
        kind = column.type
    if pa.types.is_integer(kind):  # pandas would make floats of integers with missing values
        missing = np.iinfo(kind.to_pandas_dtype()).min
        return column.fill_null(missing).to_numpy()
    if pa.types.is_floating(kind):
        return column.to_numpy() + 0.0  # 0.0 and -0.0 are equal
    if pa.types.is_timestamp(kind):
        return column.to_pandas()
    # An extension type, such as Ray Data's type of tensors, stores its values in `storage`.
    chunks = [getattr(chunk, "storage", chunk) for chunk in column.chunks]
    values = np.empty(len(column), dtype=object)
    values[:] = [_to_bytes(v) for chunk in chunks for v in chunk.to_numpy(zero_copy_only=False)]
    return values


def _to_bytes(value: Any) -> bytes:
    """Return the bytes of a value such as an encoded image, an array, a list or a struct."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.tobytes()
    return repr(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def fingerprint(parts: Parts, extra: Iterable[str] = ()) -> str:
    """Hash the names, types and values of tables.

    The hash depends on the order of the rows, but not on the sizes of blocks.

    Args:
        parts: Tables by name.
        extra: Further strings to hash.

    Returns:
        The SHA-256 in hex.
    """
    digest = hashlib.sha256()
    for text in extra:
        digest.update(f"{text}\0".encode())
    for part, table in parts.items():
        fields = [f"{field.name} {field.type}" for field in table.schema]
        digest.update(f"{part}\0{table.num_rows}\0{fields}\0".encode())
        digest.update(row_hashes(table, table.column_names).tobytes())
    return digest.hexdigest()


def hash_of(parts: Sequence[object]) -> str:
    """Return the SHA-256 of values that JSON can store, in hex. Other values count by `repr`.

    `fingerprint` hashes tables.
    """
    return hashlib.sha256(json.dumps(parts, default=repr).encode()).hexdigest()
