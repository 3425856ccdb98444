"""Texts about trials."""

from __future__ import annotations

import pytest

from sweeps.core.trial import complete_trial_id, without_repetition


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
