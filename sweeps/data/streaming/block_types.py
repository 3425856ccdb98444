"""Find the types of columns from the blocks of a stream, and convert blocks to these types.

The functions are pure.

All blocks of a stream get the types that the whole table would have in memory; see
`tables.canonical_table` and `missing.take_out`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from sweeps.data.columns.column_types import is_text, parse_text
from sweeps.data.columns.missing import WORDS, Markers, Profile, without_markers
from sweeps.data.columns.tables import canonical_table
from sweeps.data.columns.unified_types import unified_type


def merge_profiles(blocks: Iterable[Mapping[str, Profile]]) -> dict[str, Profile]:
    """Return the facts about the columns of texts of a source from the facts about its blocks."""
    blocks = list(blocks)
    return {
        name: Profile(
            sum(block[name].rows for block in blocks),
            sum((block[name].markers for block in blocks), Counter()),
            _merged([block[name].kind for block in blocks]),
        )
        for name in (blocks[0] if blocks else ())
    }


def _merged(kinds: list[pa.DataType]) -> pa.DataType:
    distinct = {str(kind): kind for kind in kinds if not pa.types.is_null(kind)}
    if not distinct:
        return pa.null()
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    return pa.float64() if set(distinct) == {"int64", "double"} else pa.large_string()


def unify_schemas(schemas: Mapping[str, pa.Schema], place: str) -> pa.Schema:
    """Return types that hold the values of several files or sources.

    The columns are in the order of the first schema.

    Args:
        schemas: Schemas by the name of the file or split. All have the same columns.
        place: Key of the space file that names the source, for messages.

    Raises:
        InputError: The types of a column cannot be unified, such as text and integers.
    """
    first = next(iter(schemas))
    canonical = {
        key: canonical_table(schema.empty_table()).schema for key, schema in schemas.items()
    }
    types = {}
    for name in canonical[first].names:
        known = {
            key: schema.field(name).type
            for key, schema in canonical.items()
            if not pa.types.is_null(schemas[key].field(name).type)
        }
        types[name] = unified_type(name, known or {first: pa.float64()}, place)
    return pa.schema(types)


@dataclass(frozen=True)
class Convert:
    """Function that converts each block of a source to the types of the whole source.

    Attributes:
        schema: Names and types of the columns of the result.
        text: True if the blocks have the texts of CSV files.
        missing: The markers of missing values, by column; see `sweeps.data.columns.missing`.
    """

    schema: pa.Schema
    text: bool = False
    missing: Markers = field(default_factory=dict)

    def __call__(self, block: pa.Table) -> pa.Table:
        """Convert a block.

        Raises:
            InputError: A value does not fit the type of its column.
        """
        table = canonical_table(block.select(self.schema.names))
        columns = [self._column(table.column(f.name), f) for f in self.schema]
        return pa.table(columns, schema=self.schema)

    def _column(self, column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
        """Take missing values out of a column, and convert it to the type of the whole source."""
        markers = self.missing.get(wanted.name, WORDS)
        column = without_markers(column, markers)
        if is_text(column.type) and not is_text(wanted.type):
            column = without_markers(parse_text(column, wanted.type), markers)
        return column if column.type == wanted.type else column.cast(wanted.type, safe=False)
