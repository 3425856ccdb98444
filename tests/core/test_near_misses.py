"""Misspelt names are recognized, and other names are not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.near_misses import near_misses, refused

NAMES = st.from_regex(r"[a-z][a-z0-9_]{1,11}[a-z]", fullmatch=True)


@given(NAMES, st.data())
def test_each_single_mistake_is_recognized(name, data):
    at = data.draw(st.integers(0, len(name) - 1))
    letter = data.draw(st.sampled_from("abcxyz_9"))
    swapped = name[:at] + name[at : at + 2][::-1] + name[at + 2 :]
    expression = near_misses(name)
    for wrong in (
        name[:at] + name[at + 1 :],
        name[:at] + letter + name[at:],
        name[:at] + letter + name[at + 1 :],
        swapped,
        name.upper(),
    ):
        assert bool(re.search(expression, wrong)) == (wrong != name)
        assert bool(re.search(refused(expression), wrong)) == (wrong == name)


@given(NAMES, NAMES)
def test_a_name_with_several_differences_is_not_a_misspelling(name, other):
    if abs(len(name) - len(other)) > 1 and name.replace("_", "") != other.replace("_", ""):
        assert not re.search(near_misses(name), other)


@pytest.mark.parametrize(
    "word", ["xgb", "XGB", "XGBoost", "xg_boost", "xgbost", "xgboots", "xgboost2"]
)
def test_other_words_and_other_cases_are_recognized(word):
    assert re.search(near_misses("xgboost", ["xgb"]), word)


@pytest.mark.parametrize("word", ["xgboost", "my_xgboost", "boost", "xgboost_ranker", ""])
def test_other_names_are_left_alone(word):
    assert not re.search(near_misses("xgboost", ["xgb"]), word)
