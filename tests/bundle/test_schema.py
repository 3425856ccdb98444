"""Infer the schema of raw columns, and enforce it on later rows."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.manifest import ColumnSchema
from sweeps.bundle.schema import enforce_schema, infer_schema, tensors_to_arrow
from sweeps.core.errors import InputError
from sweeps.data.columns.column_values import InvalidColumnValue

RAW = pd.DataFrame(
    {
        "whole": np.array([1, 2, 3], dtype="int32"),
        "real": [0.5, np.nan, 2.0],
        "flag": [True, False, True],
        "text": ["007", None, "x"],
        "when": pd.to_datetime(["2020-01-01", "2020-02-03", None]),
        "kind": pd.Categorical(["a", "b", None], categories=["a", "b", "c"]),
    }
)
COLUMNS = infer_schema(RAW)


def test_types() -> None:
    assert [c.type for c in COLUMNS] == [
        "integer",
        "double",
        "boolean",
        "string",
        "datetime",
        "category",
    ]
    pd.testing.assert_frame_equal(enforce_schema(RAW, COLUMNS), RAW)


@pytest.mark.parametrize(
    ("column", "given_", "becomes"),
    [
        ("whole", [1.0, 2.0, 3.0], np.array([1, 2, 3], dtype="int32")),
        ("whole", [1.0, np.nan, 3.0], [1.0, np.nan, 3.0]),
        ("whole", ["1", "2", "3"], np.array([1, 2, 3], dtype="int32")),
        ("whole", ["1", " ", None], [1.0, np.nan, np.nan]),
        ("whole", [1.5, 2.0, 3.0], [1.5, 2.0, 3.0]),
        ("whole", [2**40, 2, 3], [2**40, 2, 3]),
        ("whole", pd.array([1, None, 3], dtype="Int64"), [1.0, np.nan, 3.0]),
        ("whole", pd.Series([1, None, 3], dtype=object), [1.0, np.nan, 3.0]),
        ("real", [1, 2, 3], [1.0, 2.0, 3.0]),
        ("real", np.array([1, 2, 3], dtype=np.float32), [1.0, 2.0, 3.0]),
        ("flag", [1, 0, 1], [True, False, True]),
        ("flag", ["True", "false", "1"], [True, False, True]),
        ("flag", [True, None, False], pd.Series([True, None, False], dtype=object)),
        ("text", [7, 8, 9], ["7", "8", "9"]),
        ("text", [7.0, np.nan, 9.5], ["7", None, "9.5"]),
        ("text", [np.nan] * 3, pd.Series([None] * 3, dtype="str")),
        ("text", pd.Categorical(["a", "b", "a"]), ["a", "b", "a"]),
        ("when", ["2020-01-01", "2020-02-03", None], RAW["when"]),
        ("kind", ["a", "z", "c"], pd.Categorical(["a", None, "c"], categories=["a", "b", "c"])),
    ],
)
def test_the_same_values_in_another_dress(column: str, given_: Any, becomes: Any) -> None:
    got = enforce_schema(RAW.assign(**{column: given_}), COLUMNS)
    pd.testing.assert_series_equal(got[column], pd.Series(becomes, name=column))
    assert list(got.columns) == list(RAW.columns)


def test_order_and_extra_columns_do_not_matter() -> None:
    shuffled = RAW[RAW.columns[::-1]].assign(extra=1).set_index(pd.Index([7, 8, 9]))
    pd.testing.assert_frame_equal(
        enforce_schema(shuffled, COLUMNS), RAW.set_index(pd.Index([7, 8, 9]))
    )


def test_every_missing_column_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError) as e:
        enforce_schema(RAW.drop(columns=["real", "when"]).assign(reel=1.0), COLUMNS)
    assert str(e.value) == "input: columns `real` (did you mean `reel`?), `when` are missing"


def test_every_value_that_a_column_cannot_hold_is_named() -> None:
    with pytest.raises(InputError) as e:
        enforce_schema(RAW.assign(whole=["1", "two", "3"], when=["yesterday", None, None]), COLUMNS)
    first, second = str(e.value).splitlines()
    assert first == "input: column `whole` holds 'two' in row 2, but must hold numbers"
    assert second.startswith("input: column `when` holds 'yesterday' in row 1, but must hold dates")


@given(st.lists(st.one_of(st.none(), st.integers(-(2**53), 2**53)), min_size=1))
def test_integers_survive_a_csv_file(values: Any) -> None:
    import io

    columns = infer_schema(pd.DataFrame({"n": [1]}))
    read = pd.read_csv(
        io.StringIO(
            pd.DataFrame({"n": pd.array(values, dtype="Int64"), "other": 1}).to_csv(index=False)
        )
    )
    got = enforce_schema(read, columns)["n"]
    assert [None if pd.isna(v) else int(v) for v in got] == values
    if None not in values:
        assert got.dtype == "int64"


def test_dates_in_a_column_of_numbers_are_refused() -> None:
    for dates in (
        pd.to_datetime([None, "2020-01-01", None]),
        pd.to_timedelta([None, 2, 3], "h"),
        [None, datetime.date(2020, 1, 1), 2],
    ):
        with pytest.raises(
            InputError,
            match=r"column `real` holds (Timestamp|Timedelta|datetime).* in row 2, but must hold "
            r"numbers",
        ):
            enforce_schema(RAW.assign(real=dates), COLUMNS)
    assert enforce_schema(RAW.assign(real=pd.to_datetime([None] * 3)), COLUMNS)["real"].isna().all()


def test_dates_come_as_text_in_either_form_and_a_bad_one_is_named() -> None:
    columns = infer_schema(
        pd.DataFrame({"at": pd.to_datetime(["2020-01-01"])}).astype("datetime64[us]")
    )
    frame = pd.DataFrame({"at": ["2020-01-02 03:04:05", "2020-01-02T03:04:05", None, "2020-01-02"]})
    dates = enforce_schema(frame, columns)["at"]
    assert (
        str(dates.dtype) == "datetime64[us]"
        and dates[0] == dates[1]
        and dates.isna().tolist() == [False, False, True, False]
    )
    with pytest.raises(InputError, match="column `at` holds 'soon' in row 2, but must hold dates"):
        enforce_schema(pd.DataFrame({"at": ["2020-01-02", "soon"]}), columns)


PIXELS = np.arange(6, dtype="float32").reshape(2, 3)
TENSOR = ColumnSchema(name="image", type="tensor", dtype="float32", shape=[2, 3])


def test_a_column_of_arrays_is_a_tensor_of_no_fixed_shape() -> None:
    cells = {
        "image": [PIXELS, PIXELS],
        "list": [np.array([1]), np.array([2, 3])],
        "gap": [None, PIXELS],
        "text": [np.array(["a"], dtype=object)] * 2,
        "mixed": [PIXELS, 1],
    }
    columns = {
        c.name: c
        for c in infer_schema(
            pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in cells.items()})
        )
    }
    assert {name: c.type for name, c in columns.items()} == {
        "image": "tensor",
        "list": "tensor",
        "gap": "tensor",
        "text": "any",
        "mixed": "any",
    }
    assert (columns["image"].dtype, columns["image"].shape, columns["list"].dtype) == (
        "float32",
        None,
        "int64",
    )
    assert (
        enforce_schema(pd.DataFrame({"gap": [PIXELS, None]}), [columns["gap"]])["gap"].tolist()[1]
        is None
    )


@pytest.mark.parametrize(
    "cell",
    [
        PIXELS,
        PIXELS.astype("float64"),
        PIXELS.tolist(),
        PIXELS.ravel(),  # as Ray Data writes tensors to Parquet
        {"data": PIXELS.ravel(), "shape": np.array([2, 3])},  # likewise where their shapes differ
        np.array([*PIXELS, None], dtype=object)[:2],  # as pandas reads nested lists
    ],
    ids=["array", "wider", "lists", "flat", "ragged", "nested"],
)
def test_an_array_in_another_dress(cell: Any) -> None:
    frame = pd.DataFrame({"image": pd.Series([cell, PIXELS], dtype=object, index=[5, 6])})
    got = enforce_schema(frame, [TENSOR])["image"]
    assert all(
        type(v) is np.ndarray and v.dtype == "float32" and np.array_equal(v, PIXELS) for v in got
    )
    assert list(got.index) == [5, 6]


@pytest.mark.parametrize(
    ("cell", "dtype"),
    [
        (PIXELS[:1], "float32"),
        (PIXELS.ravel()[:5], "float32"),
        ("red", "float32"),
        (1.5, "float32"),
        (None, "float32"),
        ([[1, 2, 3], [4]], "float32"),
        ([["a", "b", "c"]] * 2, "float32"),
        ([[0, 0, 0], [0, 0, 256]], "uint8"),
    ],
)
def test_misfit_cell_of_tensor_column_is_refused_with_its_row(cell: Any, dtype: str) -> None:
    column = TENSOR.model_copy(update={"dtype": dtype})
    frame = pd.DataFrame({"image": pd.Series([PIXELS, cell], dtype=object)})
    with pytest.raises(InputError) as e:
        enforce_schema(frame, [column])
    (wrong,) = e.value.problems
    assert (
        isinstance(wrong, InvalidColumnValue)
        and (wrong.column, wrong.row) == ("image", 1)
        and "(2, 3)" in wrong.rule
    )
    assert len(str(wrong)) < 200 and wrong.shifted(10).row == 11


def test_arrays_come_back_from_nested_lists_in_a_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ragged = ColumnSchema(name="image", type="tensor", dtype="float32")
    for cells, column in (
        ([PIXELS, PIXELS + 1], TENSOR),
        ([PIXELS, PIXELS[:1]], ragged),
        ([PIXELS, None], ragged),
    ):
        pq.write_table(
            pa.table({"image": tensors_to_arrow(pd.Series(cells, dtype=object))}),
            tmp_path / "rows.parquet",
        )
        got = enforce_schema(pd.read_parquet(tmp_path / "rows.parquet"), [column])["image"]
        assert all(
            a is b if b is None else np.array_equal(a, b) for a, b in zip(got, cells, strict=True)
        )
