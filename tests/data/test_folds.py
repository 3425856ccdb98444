"""The rows of each fold of a cross-validation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.data.splits.folds import assign_folds
from sweeps.space import Split

FOLDS = st.integers(2, 6)


def checked(folds: Any, n: int, rule: Split) -> None:
    assert len(folds) == rule.folds
    for train, valid in folds:
        assert len(train) and len(valid) and not set(train) & set(valid)
        assert (
            (np.diff(train) > 0).all()
            and (np.diff(valid) > 0).all()
            and max(train.max(), valid.max()) < n
        )


@given(FOLDS, st.integers(0, 60), st.integers())
def test_each_row_is_validated_once(count: Any, more: Any, seed: Any) -> None:
    n, rule = count + more, Split("folds", folds=count)
    folds = assign_folds(rule, n, None, None, seed)
    checked(folds, n, rule)
    assert sorted(np.concatenate([valid for _, valid in folds])) == list(range(n))
    assert all(len(train) + len(valid) == n for train, valid in folds)


@given(
    FOLDS,
    st.lists(st.sampled_from("abcdefghij"), min_size=12, max_size=60),
    st.booleans(),
    st.integers(0, 9),
)
def test_a_group_is_never_on_both_sides(count: Any, some: Any, classify: Any, seed: Any) -> None:
    column = np.array([*some, *"klmnop"], dtype=object)
    strata = np.arange(len(column)) % 2 if classify else None
    rule = Split("folds", column="g", folds=count)
    try:
        folds = assign_folds(rule, len(column), column, strata, seed)
    except InputError as e:
        assert classify and "a fold would have no rows" in str(e)
        return
    checked(folds, len(column), rule)
    assert all(not set(column[train]) & set(column[valid]) for train, valid in folds)


@given(FOLDS, st.lists(st.integers(0, 40), min_size=10, max_size=80))
def test_rolling_folds_validate_on_later_rows(count: Any, times: Any) -> None:
    column = np.array([*times, *range(50, 58)])
    rule = Split("rolling", column="t", folds=count)
    folds = assign_folds(rule, len(column), column, None, 0)
    checked(folds, len(column), rule)
    assert all(column[train].max() < column[valid].min() for train, valid in folds)
    assert all(set(first) < set(second) for (first, _), (second, _) in itertools.pairwise(folds))


def test_rolling_reads_dates() -> None:
    column = np.array(["2026-01-03", "2026-01-01", "2026-01-02", "2026-01-01"])
    assert [
        list(map(list, fold))
        for fold in assign_folds(Split("rolling", column="t", folds=2), 4, column, None, 0)
    ] == [
        [[1, 3], [2]],
        [[1, 2, 3], [0]],
    ]


def test_the_seed_decides_the_folds() -> None:
    rule = Split("folds", folds=3)
    first, same, other = (
        assign_folds(rule, 50, None, None, seed)[0][1].tolist() for seed in (1, 1, 2)
    )
    assert first == same != other


@pytest.mark.parametrize(
    ("rule", "n", "column", "strata", "expected"),
    [
        (
            Split("folds", folds=5),
            3,
            None,
            None,
            "5 folds need at least 5 rows, got 3; use fewer folds",
        ),
        (Split("folds", column="g", folds=3), 4, ["a", "a", "b", None], None, None),
        (
            Split("folds", column="g", folds=3),
            4,
            ["a", "a", "b", "b"],
            None,
            "3 different values in column `g`, got 2",
        ),
        (
            Split("rolling", column="t", folds=3),
            4,
            [1, 1, 2, 3],
            None,
            "3 different times after the first in column `t`, got 2",
        ),
        (
            Split("rolling", column="t", folds=2),
            3,
            [1.0, float("nan"), 2.0],
            None,
            "has no value in 1 rows",
        ),
        (Split("rolling", column="t", folds=2), 3, ["a", "b", "c"], None, "which is not a time"),
    ],
)
def test_too_few_rows_are_refused(
    rule: Any, n: int, column: Any, strata: Any, expected: str | None
) -> None:
    arguments = (
        rule,
        n,
        None if column is None else np.array(column, dtype=object),
        None if strata is None else np.array(strata),
        0,
    )
    if column and not isinstance(column[0], str):
        arguments = (*arguments[:2], np.array(column), *arguments[3:])
    if expected is None:
        assert len(assign_folds(*arguments)) == 3
        return
    with pytest.raises(InputError, match=expected.replace("(", r"\(")):
        assign_folds(*arguments)
