"""Property tests of the assignment of rows to splits, on arrays alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.data.splits.split import TEST, TRAIN, VALID, assign_splits, equals
from sweeps.space.sections.data_models import Split


def rule(kind: Any, **fields: Any) -> Any:
    return Split(kind, **fields)


def split(
    n: Any,
    valid: Any = None,
    test: Any = None,
    columns: Any = None,
    strata: Any = None,
    seed: int = 0,
) -> Any:
    return assign_splits(n, valid=valid, test=test, columns=columns or {}, strata=strata, seed=seed)


@given(
    st.integers(10, 300),
    st.floats(0.05, 0.4),
    st.floats(0.05, 0.4),
    st.integers(0, 5),
    st.integers(0, 99),
)
def test_fractions_are_of_the_whole_and_seeded(
    n: Any, valid: Any, test: Any, classes: Any, seed: Any
) -> None:
    strata = np.random.default_rng(seed).integers(0, classes, n) if classes else None
    codes = split(
        n,
        rule("fraction", fraction=valid),
        rule("fraction", fraction=test),
        strata=strata,
        seed=seed,
    )
    assert codes.dtype == np.int8 and set(codes) == {TRAIN, VALID, TEST}
    assert (codes == VALID).sum() == max(1, round(n * valid))
    assert (codes == TEST).sum() == max(1, round(n * test))
    assert np.array_equal(
        codes,
        split(
            n,
            rule("fraction", fraction=valid),
            rule("fraction", fraction=test),
            strata=strata,
            seed=seed,
        ),
    )


@given(
    st.lists(st.integers(2, 60), min_size=2, max_size=5), st.floats(0.1, 0.4), st.integers(0, 99)
)
def test_every_class_keeps_its_share_and_stays_in_train(counts: Any, share: Any, seed: Any) -> None:
    strata = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    codes = split(len(strata), rule("fraction", fraction=share), strata=strata, seed=seed)
    rows = round(len(strata) * share)
    for k, count in enumerate(counts):
        taken = ((codes == VALID) & (strata == k)).sum()
        assert taken < count
        if rows <= sum(counts) - len(counts) and min(counts) > 10:
            assert abs(taken - rows * count / len(strata)) < 1


def test_another_seed_is_another_split() -> None:
    assert not np.array_equal(*(split(100, rule("fraction", fraction=0.2), seed=s) for s in (1, 2)))


@given(st.lists(st.integers(0, 30), min_size=5, max_size=100), st.floats(0.05, 0.5))
def test_time_takes_the_latest_rows_and_keeps_ties_together(times: Any, share: Any) -> None:
    column = np.array(times)
    try:
        codes = split(len(column), rule("time", column="t", fraction=share), columns={"t": column})
    except InputError as e:
        assert len(set(times)) == 1 and "same value" in str(e)
        return
    early, late = column[codes == TRAIN], column[codes == VALID]
    assert early.max() < late.min()
    if (column == column.min()).sum() <= len(column) - round(share * len(column)):
        assert len(late) >= max(1, round(share * len(column)))


@pytest.mark.parametrize(
    "column",
    [
        np.arange(10),
        np.arange(10) / 3,
        pd.date_range("2020-01-01", periods=10).to_numpy(),
        np.array([f"2020-01-{d:02}" for d in range(1, 11)], dtype=object),
        np.array([f"2020-01-{d:02}T00:00:00+02:00" for d in range(1, 11)], dtype=object),
    ],
)
def test_time_columns_of_every_kind(column: Any) -> None:
    order = np.random.default_rng(0).permutation(10)
    by_time = rule("time", column="t", fraction=0.2)
    codes = split(10, by_time, rule("time", column="t", fraction=0.1), {"t": column[order]})
    assert set(order[codes == TEST]) == {9} and set(order[codes == VALID]) == {7, 8}


@given(
    st.lists(st.sampled_from(["a", "b", "c", None, float("nan"), 7]), min_size=2, max_size=80),
    st.floats(0.1, 0.9),
    st.integers(0, 9),
)
def test_a_group_never_straddles(groups: Any, share: Any, seed: Any) -> None:
    column = np.array(groups, dtype=object)
    keys = np.array([str(g) if g == g and g is not None else "missing" for g in groups])
    if round(len(groups) * share) >= len(groups):
        return
    try:
        codes = split(
            len(column), rule("group", column="g", fraction=share), columns={"g": column}, seed=seed
        )
    except InputError as e:
        assert len(set(keys)) == 1 and "same value" in str(e)
        return
    assert set(codes) == {TRAIN, VALID}
    assert not set(keys[codes == TRAIN]) & set(keys[codes == VALID])


def test_groups_come_near_the_share() -> None:
    groups = np.repeat(np.arange(200), np.random.default_rng(3).integers(1, 40, 200))
    codes = split(
        len(groups), rule("group", column="g", fraction=0.2), columns={"g": groups}, seed=1
    )
    assert abs((codes == VALID).mean() - 0.2) < 0.001


def test_a_column_names_the_rows_and_the_rest_is_train() -> None:
    column = np.array(["a", "valid", "a", "test", "b"], dtype=object)
    codes = split(
        5,
        rule("column", column="s", value="valid"),
        rule("column", column="s", value="test"),
        {"s": column},
    )
    assert codes.tolist() == [TRAIN, VALID, TRAIN, TEST, TRAIN]
    assert split(
        3,
        rule("column", column="s", value=2),
        columns={"s": np.array(["1", "2", "1"], dtype=object)},
    ).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("valid", "test", "columns", "text"),
    [
        (
            rule("fraction", fraction=0.6),
            rule("fraction", fraction=0.5),
            {},
            "no rows remain to train on",
        ),
        (
            rule("column", column="s", value="vlaid"),
            None,
            {"s": np.array(["train", "valid"] * 5)},
            "no row has 'vlaid'",
        ),
        (
            rule("column", column="s", value="x"),
            None,
            {"s": np.array(["x"] * 10)},
            "takes all 10 rows",
        ),
        (
            rule("time", column="t", fraction=0.2),
            None,
            {"t": np.array([1.0, np.nan] * 5)},
            "no value in 5 rows",
        ),
        (
            rule("time", column="t", fraction=0.2),
            None,
            {"t": np.array(["2020-01-01", "soon"] * 5)},
            "'soon', which is not a time",
        ),
        (
            rule("group", column="g", fraction=0.2),
            None,
            {"g": np.array(["one"] * 10)},
            "same value",
        ),
    ],
)
def test_impossible_splits_are_refused(valid: Any, test: Any, columns: Any, text: str) -> None:
    with pytest.raises(match=text):
        split(10, valid, test, columns)


VALUES = st.one_of(st.integers(-2, 3), st.sampled_from([0.5, 2.0, "2", "2.0", "x", True]))


@given(
    st.lists(st.one_of(st.integers(-2, 3), st.none()), min_size=1, max_size=20),
    VALUES,
    st.integers(0, 20),
)
def test_a_row_has_the_same_value_in_a_block_as_in_the_whole_table(
    numbers: Any, value: Any, cut: Any
) -> None:
    """A block without missing values has integers, and a block with missing values has floats."""
    whole = pa.chunked_array([pa.array(numbers, pa.int64())])
    blocks = [block for block in (whole[:cut], whole[cut:]) if len(block)]
    matches = equals(whole.to_numpy(), value)
    np.testing.assert_array_equal(
        np.concatenate([equals(block.to_numpy(), value) for block in blocks]), matches
    )
    assert matches.tolist() == [
        n is not None and (n == value or str(n) == str(value)) for n in numbers
    ]


def test_values_of_other_types_are_compared_as_text() -> None:
    assert equals(np.array(["2", "x", None], dtype=object), 2).tolist() == [True, False, False]
    assert equals(np.array([2, "2", "x"], dtype=object), 2).tolist() == [True, True, False]
    assert equals(np.array([True, False]), "True").tolist() == [True, False]
