"""Texts about trials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import complete_trial_id, flat, without_repetition

NESTED = st.dictionaries(
    st.text("ab.#2", min_size=1, max_size=4),
    st.recursive(
        st.integers(), lambda inner: st.dictionaries(st.text("ab.", min_size=1, max_size=3), inner)
    ),
)


def leaves(value):
    return sum(map(leaves, value.values())) if isinstance(value, dict) and value else 1


@given(NESTED)
def test_no_two_parameters_have_one_flat_name(params):
    found = flat(params, "params.")
    assert len(dict(found)) == len(found) == sum(map(leaves, params.values()))
    assert all(name.startswith("params.") for name, _ in found)


def test_nested_parameters_have_dotted_names():
    assert flat({"c.d": 6, "c": {"d": 7, "e": {}}}) == [("c.d", 6), ("c.d#2", 7), ("c.e", {})]


@pytest.mark.parametrize(
    ("chain", "shown"),
    [
        ("OneHotEncoder (0=OneHotEncoder)", "OneHotEncoder"),
        (
            "OneHotEncoder+PCA (0=OneHotEncoder, n_components=8)",
            "OneHotEncoder+PCA (n_components=8)",
        ),
        ("StandardScaler (1=none)", "StandardScaler"),
        ("none (0=none)", "none"),
        ("MinMaxScaler (0=my_scaler)", "MinMaxScaler (0=my_scaler)"),
        ("PCA (n_components=8)", "PCA (n_components=8)"),
        (
            "StandardScaler(columns=[sepal length (cm), a])",
            "StandardScaler(columns=[sepal length (cm), a])",
        ),
    ],
)
def test_a_value_that_repeats_a_step_is_left_out(chain, shown):
    assert without_repetition(chain) == shown


def test_only_numbers_get_leading_zeros():
    assert [complete_trial_id(typed) for typed in ("7", "00012", "abc", "best", "-1")] == [
        "0007",
        "00012",
        "abc",
        "best",
        "-1",
    ]
