"""Find the types of columns from the blocks of a stream, and convert blocks to these types.

The functions are pure.

All blocks of a stream get the types that the whole table would have in memory; see
`tables.canonical_table` and `missing.remove_markers`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from sweeps.data.columns.column_types import is_text, parse_text
from sweeps.data.columns.missing import WORDS, Markers, Profile, null_markers
from sweeps.data.columns.tables import canonical_table
from sweeps.data.columns.unified_types import unified_type


def merge_profiles(blocks: Iterable[Mapping[str, Profile]]) -> dict[str, Profile]:
    """Return the facts about the columns of texts of a source from the facts about its blocks."""
    blocks = list(blocks)
    names = blocks[0] if blocks else ()
    return {
        name: Profile(
            rows=sum(block[name].rows for block in blocks),
            markers=sum((block[name].markers for block in blocks), Counter()),
            kind=_merge_types([block[name].kind for block in blocks]),
        )
        for name in names
    }


def _merge_types(kinds: list[pa.DataType]) -> pa.DataType:
    """Return the type that `infer_type` would find in all blocks of a column of texts."""
    distinct = {kind for kind in kinds if not pa.types.is_null(kind)}
    if len(distinct) < 2:
        return next(iter(distinct), pa.null())
    return pa.float64() if distinct == {pa.int64(), pa.float64()} else pa.large_string()


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
        # A column without values may have any type.
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
        columns = [self._convert_column(table.column(f.name), f) for f in self.schema]
        return pa.table(columns, schema=self.schema)

    def _convert_column(self, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
        """Replace missing values by null, and convert a column to the type of `field`."""
        # A column without texts in the train rows has no entry. If another split has texts in this
        # column, words such as `NA` are missing.
        markers = self.missing.get(field.name, WORDS)
        column = null_markers(column, markers)
        # A marker that is a number, such as -200, is found only after the texts were parsed.
        if is_text(column.type) and not is_text(field.type):
            column = null_markers(parse_text(column, field.type), markers)
        return column if column.type == field.type else column.cast(field.type, safe=False)
