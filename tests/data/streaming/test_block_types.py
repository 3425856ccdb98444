"""Blocks of a stream get the types and values that the whole table would have in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.data.streaming.block_types import (
    Convert,
    merge_text_schemas,
    text_schema,
    unify_schemas,
)
from sweeps.data.tables import canonical_table, infer_types

WORDS = (
    "1",
    "-2",
    "+3",
    " 4",
    "1.5",
    "1e3",
    "0x1F",
    "True",
    "false",
    "red",
    "9223372036854775808",
    None,
)


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), min_size=1, max_size=5))
def test_merged_types_and_converted_blocks_equal_those_of_the_whole_column(parts):
    blocks = [pa.table({"x": pa.array(part, pa.string())}) for part in parts]
    whole = canonical_table(infer_types(pa.concat_tables(blocks)))
    schema = merge_text_schemas([text_schema(block) for block in blocks])
    assert schema == whole.schema
    convert = Convert(schema, ("x",), text=True)
    assert (
        pa.concat_tables([convert(block) for block in blocks])
        .combine_chunks()
        .equals(whole.combine_chunks())
    )


def test_files_with_different_types_of_numbers_are_unified():
    first = pa.schema(
        {
            "a": pa.int32(),
            "b": pa.string(),
            "c": pa.null(),
            "d": pa.date32(),
            "__index_level_0__": pa.int64(),
        }
    )
    second = pa.schema(
        {
            "d": pa.date32(),
            "c": pa.null(),
            "b": pa.dictionary(pa.int8(), pa.string()),
            "a": pa.float64(),
        }
    )
    schema = unify_schemas({"one": first, "two": second}, "data.train")
    assert schema == pa.schema(
        {"a": pa.float64(), "b": pa.large_string(), "c": pa.float64(), "d": pa.timestamp("us")}
    )
    block = pa.table(
        {
            "a": pa.array([1, 2], pa.int32()),
            "b": ["x", None],
            "c": pa.nulls(2),
            "d": pa.array([0, 1], pa.date32()),
        }
    )
    assert Convert(schema)(block).schema == schema


def test_text_and_numbers_in_one_column_are_refused():
    with pytest.raises(
        InputError,
        match=r"data.train: column `a` holds large_string in two.csv, but int64 elsewhere",
    ):
        unify_schemas(
            {"one.csv": pa.schema({"a": pa.int64()}), "two.csv": pa.schema({"a": pa.string()})},
            "data.train",
        )
