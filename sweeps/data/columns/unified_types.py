"""The common type of a column in several tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sweeps.core.errors import InputError, Problem

from .column_types import describe_type

if TYPE_CHECKING:
    from .tables import Parts


def unify_types(parts: Parts) -> Parts:
    """Convert tables so that a column has the same type in all tables.

    For example, integers become floats if another table has floats.

    Args:
        parts: Tables by split: "train", and the splits that have separate sources. All tables have
            the same columns, in any order.

    Returns:
        The tables with the columns in the order of "train".

    Raises:
        InputError: The types of a column cannot be unified, such as text and integers. The error
            names each such column.
    """
    if len(parts) == 1:
        return dict(parts)
    problems: list[Problem] = []
    tables: dict[str, dict[str, pa.ChunkedArray]] = {key: {} for key in parts}
    for name in parts["train"].column_names:
        columns = {key: part.column(name) for key, part in parts.items()}
        # A column without values may have any type.
        kinds = {key: c.type for key, c in columns.items() if c.null_count < len(c)}
        try:
            kind = unified_type(name, kinds or {"train": columns["train"].type})
        except InputError as e:
            problems += e.problems
            continue
        for key, column in columns.items():
            nulls = pa.chunked_array([pa.nulls(len(column), kind)])
            tables[key][name] = column.cast(kind) if key in kinds else nulls
    if problems:
        raise InputError(problems)
    return {key: pa.table(columns) for key, columns in tables.items()}


def unified_type(name: str, kinds: Mapping[str, pa.DataType], place: str = "") -> pa.DataType:
    """Return the type that holds the values of a column of several splits or files.

    Args:
        name: Name of the column.
        kinds: The types by split or file; at least one.
        place: Key of the space file for the message. By default, the keys of `kinds` are splits.

    Raises:
        InputError: The types cannot be unified, such as text and integers.
    """
    first, unified = next(iter(kinds.items()))
    for key, kind in kinds.items():
        schemas = [pa.schema({name: unified}), pa.schema({name: kind})]
        try:
            unified = pa.unify_schemas(schemas, promote_options="permissive").field(name).type
        except (pa.ArrowTypeError, pa.ArrowInvalid):
            start = "" if place else "data."
            text = f"column `{name}` holds {describe_type(kind)} in {start}{key}, but "
            text += f"{describe_type(unified)} in {start}{first}"
            raise InputError(place or f"data.{key}", text) from None
    return unified
