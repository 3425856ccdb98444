"""The search of a table follows from its size."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.scaffold.table_search import (
    MOST_ROUNDS,
    MOST_TREES,
    TRAINERS,
    choose_search,
    most_rounds,
)


@given(st.sampled_from(TRAINERS), st.integers(1, 10**7), st.integers(0, 1000))
def test_rows_are_never_given_away_where_they_are_few(
    trainer: Any, rows: Any, classes: Any
) -> None:
    search = choose_search([trainer], rows=rows, classes=classes)
    more = choose_search([trainer], rows=rows + 1, classes=classes)
    assert not (search.folds and search.has_test)
    assert search.folds >= more.folds and search.has_test <= more.has_test
    assert any(entry.startswith("patience: ") for entry in search.params[trainer])
    # The models of folds have seen all rows together.
    assert search.trains_on_all == (not search.folds)


@given(st.integers(0, 10**5))
def test_a_model_has_a_bounded_number_of_trees(classes: Any) -> None:
    rounds = most_rounds(classes)
    assert 200 <= rounds <= MOST_ROUNDS
    assert rounds == 200 or rounds * max(1, classes) <= 2 * MOST_TREES
