"""Find the types of columns from the blocks of a stream, and convert blocks to these types. The functions are pure.

All blocks of a stream get the types that the whole table would have in memory; see `tables.canonical_table` and `tables.infer_types`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sweeps.core.errors import InputError, Problem
from sweeps.data.tables import canonical_table, drop_index_names, infer_types, parse_text


def text_schema(block: pa.Table) -> pa.Schema:
    """Return the type that each column of CSV text would have, judged by one block. The type of a column without values is null."""
    inferred = infer_types(block)
    empty = {name for name in block.column_names if block.column(name).null_count == block.num_rows}
    return pa.schema([(f.name, pa.null() if f.name in empty else f.type) for f in inferred.schema])


def merge_text_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the types of columns of CSV text from the types in each block. The result equals the types of the joined blocks.

    Args:
        schemas: results of `text_schema` for all blocks. There is at least one.
    """
    schemas = list(schemas)
    return pa.schema(
        [
            (name, _merged([schema.field(name).type for schema in schemas]))
            for name in schemas[0].names
        ]
    )


def _merged(kinds: list[pa.DataType]) -> pa.DataType:
    found = {str(kind): kind for kind in kinds if not pa.types.is_null(kind)}
    if not found:
        return pa.float64()
    if len(found) == 1:
        kind = next(iter(found.values()))
        return pa.large_string() if pa.types.is_string(kind) else kind
    return pa.float64() if set(found) == {"int64", "double"} else pa.large_string()


def unify_schemas(schemas: Mapping[str, pa.Schema], place: str) -> pa.Schema:
    """Return types that hold the values of several files or sources. The columns are in the order of the first schema.

    Args:
        schemas: schemas by the name of the file or split. All have the same columns.
        place: key of the space file that names the source, for messages.

    Raises:
        InputError: the types of a column cannot be unified, such as text and integers.
    """
    first = next(iter(schemas))
    fields = []
    for name in drop_index_names(schemas[first].names):
        kinds = {key: schema.field(name).type for key, schema in schemas.items()}
        fields.append(
            pa.field(
                name,
                _unified(
                    name,
                    {key: kind for key, kind in kinds.items() if not pa.types.is_null(kind)},
                    place,
                ),
            )
        )
    return pa.schema(fields)


def _unified(name: str, kinds: Mapping[str, pa.DataType], place: str) -> pa.DataType:
    result: pa.DataType | None = None
    for key, kind in kinds.items():
        canonical = canonical_type(kind)
        try:
            both = [pa.schema({name: each}) for each in (result or canonical, canonical)]
            result = pa.unify_schemas(both, promote_options="permissive").field(name).type
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            text = f"column `{name}` holds {canonical} in {key}, but {result} elsewhere; give the column the same type everywhere"
            raise InputError(Problem(place, text)) from None
    return pa.float64() if result is None else result


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """Return the type to which `canonical_table` converts a column of this type."""
    return canonical_table(pa.schema({"x": kind}).empty_table()).schema.field("x").type


@dataclass(frozen=True)
class Convert:
    """Function that converts each block of a source to the types of the whole source.

    Attributes:
        schema: names and types of the columns of the result.
        names: name of each column in the order of a block. None if the blocks have their names already.
        text: True if the blocks have CSV text.
    """

    schema: pa.Schema
    names: tuple[str, ...] | None = None
    text: bool = False

    def __call__(self, block: pa.Table) -> pa.Table:
        """Convert a block.

        Raises:
            InputError: a value does not fit the type of its column.
        """
        if self.names is not None:
            block = block.rename_columns(list(self.names))
        columns = {}
        for field in self.schema:
            column = block.column(field.name)
            if self.text and not pa.types.is_large_string(field.type):
                column = parse_text(column, field.type)
            columns[field.name] = column
        table = canonical_table(pa.table(columns))
        return pa.table(
            [_cast(table.column(f.name), f.type) for f in self.schema], schema=self.schema
        )


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind, safe=False)
