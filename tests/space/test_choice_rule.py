"""The rule by which a sweep chooses the trial that it exports."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweeps.space import Repeats
from sweeps.space.sections.choice_rule import choice_problem, choice_rule
from sweeps.space.sections.search_models import BundleKeys, Objective
from tests.data.test_variants import HALF, spec

ONE = Objective("valid-logloss", "minimize", "auto")
OTHER = Objective("seconds", "minimize")
BY_TIME = dataclasses.replace(HALF, kind="time", column="day")


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({}, "confirmed"),
        ({"bundle": BundleKeys(ensemble=8)}, "best"),
        ({"repeats": Repeats(3)}, "best"),
        ({"data": spec(valid=BY_TIME)}, "best"),
        ({"data": spec(ingest="stream")}, "best"),
        ({"objectives": (dataclasses.replace(ONE, choose="mean"),)}, "mean"),
        ({"objectives": (ONE, OTHER)}, "best"),
        ({"objectives": (dataclasses.replace(OTHER, choose="auto"),)}, "best"),
    ],
)
def test_auto_is_what_was_measured(changed: dict[str, Any], rule: str, space: Any) -> None:
    usual = {"objectives": (ONE,), "data": spec(), "repeats": Repeats(), "bundle": BundleKeys()}
    own = dataclasses.replace(space("params: {eta: 0.1}"), **{**usual, **changed})
    assert choice_rule(own, perturbs=False) == rule
    assert choice_rule(own, perturbs=True) == ("mean" if rule == "mean" else "best")


def test_a_mean_needs_a_known_noise() -> None:
    def problem(metric: str = "valid-logloss", repeats: int = 1, **changed: Any) -> str | None:
        objective = Objective(metric, "minimize", "mean")
        return choice_problem((objective,), spec(**changed), Repeats(repeats), perturbs=False)

    assert problem() is None and problem("made", repeats=2) is None
    assert problem("made", valid=dataclasses.replace(HALF, kind="folds", folds=3)) is None
    for text in (problem("made"), problem(label=None), problem(ingest="stream")):
        assert text is not None and text.startswith("`mean` needs to know how noisy")
