"""Canonical tables: types as in pandas, and a fingerprint that does not depend on block borders."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.data.columns.column_types import ALWAYS_MISSING, infer_types
from sweeps.data.columns.hashing import fingerprint
from sweeps.data.columns.missing import WORDS
from sweeps.data.columns.tables import canonical_table, split_equally
from sweeps.data.splits.split_tables import Splits, add_to_train


def cut(table: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, at), table.slice(at)])


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-5, 5),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.text(max_size=3),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


def table_of(rows: Any) -> pa.Table:
    kinds = (pa.int64(), pa.float64(), pa.large_string(), pa.bool_())
    columns = {
        name: pa.array([row[i] for row in rows], kind)
        for i, (name, kind) in enumerate(zip("ifsb", kinds, strict=True))
    }
    columns["l"] = pa.array(
        [None if row[0] is None else [row[2]] * abs(row[0]) for row in rows],
        pa.list_(pa.large_string()),
    )
    columns["t"] = pa.array([row[0] for row in rows], pa.int64()).cast(pa.timestamp("us"))
    return pa.table(columns)


@given(ROWS, st.integers(0, 20))
def test_a_fingerprint_is_of_the_rows_not_of_the_blocks(rows: Any, at: Any) -> None:
    table = table_of(rows)
    longer = pa.concat_tables([table, table])
    assert fingerprint({"train": cut(table, at)}) == fingerprint({"train": table})
    assert fingerprint({"train": longer.slice(len(rows))}) == fingerprint({"train": table})


@given(ROWS, ROWS)
def test_other_rows_have_another_fingerprint(a: Any, b: Any) -> None:
    one, two = table_of(a), table_of(b)
    same = one.equals(two) and repr(a) == repr(b)  # 0.0 and -0.0 are equal, but not the same bits
    if not one.equals(two) or same:
        assert (fingerprint({"train": one}) == fingerprint({"train": two})) == same


def test_names_types_and_splits_count() -> None:
    table = pa.table({"a": [1, 2]})
    seen = {
        fingerprint({"train": table}),
        fingerprint({"valid": table}),
        fingerprint({"train": table.rename_columns(["b"])}),
        fingerprint({"train": table.cast(pa.schema({"a": pa.float64()}))}),
        fingerprint({"train": table.slice(0, 1), "valid": table.slice(1)}),
    }
    assert len(seen) == 5


def test_tidy_gives_one_type_to_one_meaning() -> None:
    table = canonical_table(
        pa.table(
            {
                "d": pa.array(["x", None]).dictionary_encode(),
                "m": pa.array([Decimal("1.5"), None]),
                "n": pa.nulls(2),
                "f": pa.array([1.0, float("nan")]),
                "day": pa.array([0, 1], pa.date32()),
            }
        )
    )
    assert [str(t) for t in table.schema.types] == [
        "large_string",
        "double",
        "double",
        "double",
        "timestamp[us]",
    ]
    assert table.column("f").null_count == 1


CELLS = st.sampled_from(
    [
        "1",
        "-2",
        "+3",
        " 4",
        "1.5",
        "1e3",
        "0x1F",
        "true",
        "False",
        "TRUE",
        "x",
        "inf",
        "",
        "null",
        "1_0",
    ]
)


@given(st.lists(CELLS, min_size=1, max_size=6))
def test_csv_types_are_those_of_pandas(cells: Any) -> None:
    text = "a,b\n" + "\n".join(f"{cell},z" for cell in cells)
    expected = pd.read_csv(io.StringIO(text))
    read = infer_types(canonical_table(pa.table({"a": pa.array(cells, pa.string())}))).to_pandas()
    if expected["a"].dtype == "str":
        assert read["a"].dtype == "str"
        assert read["a"].fillna("-").tolist() == expected["a"].fillna("-").tolist()
    else:
        assert read["a"].dtype == expected["a"].dtype
        assert read["a"].fillna(-9).tolist() == expected["a"].fillna(-9).tolist()


def test_missing_values_are_those_of_pandas() -> None:
    from pandas._libs.parsers import STR_NA_VALUES

    assert {*ALWAYS_MISSING, *WORDS} == set(STR_NA_VALUES)


@given(st.integers(1, 60), st.integers(1, 7))
def test_equal_parts_are_equal_and_disjoint(n: Any, k: Any) -> None:
    table = pa.table({"a": np.arange(n)})
    if n < k:
        with pytest.raises(InputError, match=f"{k} workers, but the train split has only {n} rows"):
            split_equally(table, k)
        return
    parts = split_equally(table, k)
    assert [p.num_rows for p in parts] == [n // k] * k
    assert sorted(v for p in parts for v in p.column("a").to_pylist()) == list(range(n // k * k))


def test_equal_parts_of_sorted_rows_hold_every_class() -> None:
    parts = split_equally(pa.table({"y": [0] * 6 + [1] * 6}), 3)
    assert [p.column("y").to_pylist() for p in parts] == [[0, 0, 1, 1]] * 3


def test_train_and_valid_joined() -> None:
    train = pa.table({"x": [1.0, 2.0], "c": pa.array(["a", "b"]).dictionary_encode(), "y": [0, 1]})
    valid = pa.table(
        {"y": [1, 0], "c": pa.array([None, "z"]).dictionary_encode(), "x": [0.5, None]}
    )
    apart = Splits(train, valid, None, "y", "binary", ("no", "yes"), ("x", "c"), "f")
    both = add_to_train(apart, ["valid"])
    assert both.train.to_pydict() == {
        "x": [1.0, 2.0, 0.5, None],
        "c": ["a", "b", None, "z"],
        "y": [0, 1, 1, 0],
    }
    assert both.valid is valid and both.fingerprint == "f" and apart.train.num_rows == 2


def test_an_index_of_pandas_without_a_name_is_no_column() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "__index_level_x__": [1, 2, 3]}).iloc[[2, 0, 1]]
    table = pa.Table.from_pandas(frame)
    assert table.column_names == ["a", "__index_level_x__", "__index_level_0__"]
    assert canonical_table(table).column_names == ["a", "__index_level_x__"]
    assert canonical_table(pa.Table.from_pandas(frame.set_index("a"))).column_names == [
        "__index_level_x__",
        "a",
    ]
