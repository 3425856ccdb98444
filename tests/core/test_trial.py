"""Texts about trials, and the steps of reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sweeps.core.loop_context import Current, set_current, take_step
from sweeps.core.trial import complete_trial_id, flatten_params, shorten_chain


def leaves(value: Any) -> Any:
    return sum(map(leaves, value.values())) if isinstance(value, dict) and value else 1


def test_nested_parameters_have_dotted_names() -> None:
    assert flatten_params({"c.d": 6, "c": {"d": 7, "e": {}}}) == [
        ("c.d", 6),
        ("c.d#2", 7),
        ("c.e", {}),
    ]


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
def test_a_value_that_repeats_a_step_is_left_out(chain: str, shown: str) -> None:
    assert shorten_chain(chain) == shown


def test_only_numbers_get_leading_zeros() -> None:
    assert [complete_trial_id(typed) for typed in ("7", "00012", "abc", "best", "-1")] == [
        "0007",
        "00012",
        "abc",
        "best",
        "-1",
    ]


@pytest.fixture
def current() -> Iterator[Any]:
    """A trial that must report step 4, a checkpoint at step 6, and `max_t`."""
    now = Current("0000", 0, None, None, None, "loss", "minimize", 9, 1, None)
    now.required_steps, now.milestones = frozenset({4}), range(6, 7)
    set_current(now)
    yield now
    set_current(None)


def test_report_step_is_next_unless_loop_names_it(current: Any) -> None:
    assert [take_step(latest) for latest in (0, 1, 7)] == [1, 2, 8]
    due = [step for step in range(1, 10) if current.report_due(step, step % 5 == 0)]
    assert due == [4, 5, 6, 9]
    current.report_due(3)
    assert take_step(1) == 3 and take_step(3) == 4, "the step is forgotten"


@pytest.mark.parametrize("step, latest, between", [(5, 2, 4), (7, 4, 6), (12, 8, 9)])
def test_a_loop_cannot_leave_out_a_step_that_the_scheduler_needs(
    current: Any, step: int, latest: int, between: int
) -> None:
    current.report_due(step)
    with pytest.raises(
        ValueError, match=f"reports step {step} after step {latest}.*needs step {between};"
    ):
        take_step(latest)


def test_steps_increase(current: Any) -> None:
    current.report_due(3)
    with pytest.raises(ValueError, match="reports step 3 after step 3; steps must increase"):
        take_step(3)
