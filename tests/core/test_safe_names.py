"""No two names become equal on their way to another program, and names that it accepts stay as they
are.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweeps.core.errors import ERROR_LENGTH, shorten
from sweeps.core.files.safe_names import RESERVED, loop_name, safe_name
from sweeps.tracking.mlflow.run_contents import ILLEGAL, legal_name
from sweeps.tracking.tensorboard import encodable
from sweeps.trainers import safe_names

# Few characters, so that many of the drawn names would meet after a replacement.
NAMES = st.text(st.sampled_from("ab_@/.[<\udce9 ")) | st.text()


def for_xgboost(name: str) -> str:
    return safe_names([name], "[]<")[0]


@pytest.mark.parametrize("rename", [legal_name, encodable, for_xgboost, loop_name])
@given(NAMES, NAMES)
@example("m@1", "m_1")
@example("acc[5]", "acc<5]")
@example("seconds", "loop/seconds")
@example("loop/loop/steps", "loop/steps")
def test_two_names_stay_two_names(rename: Any, one: Any, other: Any) -> None:
    assert (rename(one) == rename(other)) == (one == other)


@pytest.mark.parametrize("rename", [legal_name, encodable, for_xgboost])
@given(NAMES)
def test_a_name_differs_from_what_another_name_became(rename: Any, name: Any) -> None:
    renamed = rename(name)
    assert renamed == name or rename(renamed) not in (name, renamed)


@given(NAMES)
def test_accepted_names_stay_and_others_become_acceptable(name: Any) -> None:
    from mlflow.utils.validation import _validate_metric_name

    renamed = legal_name(name)
    _validate_metric_name(renamed)  # type: ignore[no-untyped-call]
    assert len(renamed) <= 250
    if name and not ILLEGAL.search(name) and len(name) <= 250:
        assert renamed == name
    assert not set("[]<") & set(for_xgboost(name))
    encodable(name).encode()


@pytest.mark.parametrize("name", ["loss", "valid-auc", "final", "objectives", "a/seconds", "step"])
def test_other_names_of_a_loop_stay(name: str) -> None:
    assert loop_name(name) == name


@given(st.from_regex(RESERVED, fullmatch=True))
def test_a_name_of_sweeps_itself_is_moved(name: Any) -> None:
    assert loop_name(name) == f"loop/{name}"


def test_long_names_that_begin_alike_stay_two_names() -> None:
    one, other = ("n" * 300 + end for end in "ab")
    assert legal_name(one) != legal_name(other) and legal_name(one).startswith("nnn")
    assert safe_name(one, re.compile("@")) == one, "there is no limit"


def test_shortened_texts_differ_and_name_missing_length() -> None:
    one, other = ("a" * 10_000 + middle + "z" * 10_000 for middle in "bc")
    assert shorten(one, 6000) != shorten(other, 6000)
    assert len(shorten(one, 6000)) <= 6000 and "14,101 characters were left out" in shorten(
        one, 6000
    )
    assert shorten("x" * ERROR_LENGTH) == "x" * ERROR_LENGTH
