"""The objective values of a trial follow from its reports and its cost."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.best_step import Constraint
from sweeps.core.loop_context import Current
from sweeps.core.resources import COSTS, costs
from sweeps.core.trial import Result, State
from sweeps.execution.worker.loop_run import best_step
from sweeps.space.sections.search_models import Objective
from sweeps.study.objectives import Objectives
from sweeps.trainers._best import Steps
from tests.study.trial_states import known_trial

LOSS, AUC, SECONDS = (
    Objective("loss", "minimize"),
    Objective("auc", "maximize"),
    Objective("seconds", "minimize"),
)
CURVE = ((1, 0.5), (2, 0.3), (3, 0.4))
COST = costs(10.0, 20.0, {"CPU": 2.0, "GPU": 0.5})
C, P = State.COMPLETE, State.PRUNED


def test_one_objective_is_its_best_report() -> None:
    score = Objectives((LOSS,)).score(C, 3, CURVE, {}, COST)
    assert (score.step, score.values, score.feasible, score.missing) == (2, (0.3,), True, None)
    assert score.metrics == {
        "seconds": 10.0,
        "cpu_seconds": 40.0,
        "gpu_seconds": 10.0,
        "loss": 0.3,
    }


def test_all_metrics_are_those_of_the_step_that_is_best_by_the_first() -> None:
    judge = Objectives((LOSS, AUC), (Constraint("latency", "<=", 5),))
    others = {"auc": [(1, 0.6), (2, 0.7), (3, 0.9)], "latency": [(3, 4.0)]}
    score = judge.score(C, 3, CURVE, others, COST)
    assert score.values == (0.3, 0.7) and score.metrics["latency"] == 4.0, (
        "a metric that is not at that step: its latest"
    )
    assert score.feasible and judge.violations(score.metrics) == {"latency": -1.0}


def test_a_cost_is_a_value_only_of_what_came_to_its_end() -> None:
    judge = Objectives((SECONDS, LOSS))
    assert judge.metric == "loss" and judge.minimize
    assert judge.score(C, 3, CURVE, {}, COST).values == (10.0, 0.3)
    assert judge.score(P, 3, CURVE, {}, COST).values == (None, 0.3)


def test_costs_alone_stand_for_the_last_step_or_the_best_by_a_constraint() -> None:
    assert Objectives((SECONDS,)).score(C, 3, (), {}, COST).step == 3
    judge = Objectives((SECONDS,), (Constraint("auc", ">", 0.5),))
    assert (judge.metric, judge.minimize) == ("auc", False)
    score = judge.score(C, 3, ((1, 0.4), (2, 0.8), (3, 0.6)), {}, COST)
    assert (score.step, score.values, score.feasible) == (2, (10.0,), True)


def test_what_is_asked_for_and_not_there_is_named_and_never_feasible() -> None:
    judge = Objectives((LOSS,), (Constraint("latency", "<", 5),))
    score = judge.score(C, 3, CURVE, {}, COST)
    assert (
        score.missing == "latency"
        and not score.feasible
        and judge.violations(score.metrics)["latency"] > 0
    )
    assert Objectives((LOSS,)).score(C, 0, (), {}, COST).missing == "loss"
    assert (
        Objectives((LOSS, AUC)).score(C, 3, CURVE, {"auc": [(2, math.nan)]}, COST).missing == "auc"
    )


@pytest.mark.parametrize("sign", ["<=", "<", ">=", ">"])
@given(value=st.floats(allow_nan=True), bound=st.floats(-1e6, 1e6))
def test_violation_is_positive_only_if_constraint_is_broken(
    sign: str, value: Any, bound: Any
) -> None:
    constraint = Constraint("m", sign, bound)
    violation = constraint.violation(value)
    assert not math.isnan(violation) and (violation > 0) == (not constraint.holds(value))


def test_a_judge_is_read_back() -> None:
    judge = Objectives((LOSS, SECONDS), (Constraint("auc", ">=", 0.5),))
    assert Objectives.from_json(judge.to_json()) == judge
    assert set(costs(1.0, 1, {})) == set(COSTS)


def test_a_trial_on_more_rows_is_worth_what_it_is_worth_on_most_rows() -> None:
    judge = Objectives((LOSS,), on_more_rows=True)
    assert judge.score(P, 3, CURVE, {}, COST).values == (0.4,) and not judge.need_one_report
    assert Objectives.from_json(judge.to_json()) == judge


HOURS = Constraint("hours", "<=", 3)


def late(bound: Constraint = HOURS, *more: Objective) -> Objectives:
    return Objectives((AUC, *more), (bound,))


def test_the_best_step_is_the_best_of_those_that_satisfy_the_constraints() -> None:
    rising = tuple((step, step / 10) for step in range(1, 6))
    hours = {"hours": [(step, float(step)) for step in range(1, 6)]}
    score = late().score(C, 5, rising, hours, COST)
    assert (score.step, score.values, score.feasible) == (3, (0.3,), True)
    assert score.metrics["hours"] == 3.0, "all metrics are those of the best step"
    none = late(Constraint("hours", "<", 1)).score(C, 5, rising, hours, COST)
    assert (none.step, none.values, none.feasible) == (5, (0.5,), False)
    first = late(Constraint("hours", ">", 4)).score(C, 5, rising, hours, COST)
    assert (first.step, first.feasible) == (5, True)


def test_constraint_on_cost_or_fold_mean_does_not_choose_step() -> None:
    curve, others = ((1, 0.9), (2, 0.8)), {"hours": [(1, 9.0), (2, 1.0)]}
    assert late(Constraint("seconds", "<=", 1)).score(C, 2, curve, others, COST).step == 1
    folds = Objectives((AUC,), (HOURS,), cross_validated=True)
    assert folds.score(C, 2, ((1, 0.9), (2, 0.8)), {"hours": [(1, 1.0), (2, 9.0)]}, COST).step == 2


def test_schedulers_compare_the_best_feasible_value_so_far() -> None:
    hours = (5.0, 1.0, 2.0, 9.0)
    for objectives, expected in (
        (late(), [0.4, 0.6, 0.6, 0.6]),
        (Objectives((AUC,)), [0.4, 0.6, 0.5, 0.9]),
        (Objectives((LOSS,), (HOURS,)), [0.4, 0.6, 0.5, 0.5]),
    ):
        name = objectives.metric
        assert name is not None
        curve = [{name: v, "hours": h} for v, h in zip((0.4, 0.6, 0.5, 0.9), hours, strict=True)]
        state = known_trial(0, objectives, Result(State.RUNNING), curve)
        assert list(state.compared) == list(enumerate(expected, 1))


@given(
    st.lists(
        st.tuples(st.floats(-9, 9), st.one_of(st.floats(0, 6), st.just(math.nan))),
        min_size=1,
        max_size=9,
    ),
    st.booleans(),
)
def test_trainers_checkpoints_and_results_choose_the_same_step(reports: Any, minimize: Any) -> None:
    goal: Literal["minimize", "maximize"] = "minimize" if minimize else "maximize"
    judge = Objectives((Objective("auc", goal),), (HOURS,))
    curve = tuple((step, value) for step, (value, _) in enumerate(reports, 1))
    others = {"hours": [(step, hours) for step, (_, hours) in enumerate(reports, 1)]}
    metrics = [{"auc": value, "hours": hours} for value, hours in reports]
    best = judge.score(C, len(reports), curve, others, COST).step
    assert best_step(dict(enumerate(metrics, 1)), judge.order) == best
    current = Current("0", 0, None, None, None, "auc", goal, 9, 1, None, constraints=(HOURS,))
    steps = Steps(current, "auc")
    for step, each in enumerate(metrics, 1):
        steps.compare(step, each)
    assert steps.best == best


@pytest.mark.parametrize("state, value, step", [(C, 0.35, 3), (P, 0.3, 2)])
def test_a_final_value_is_the_value_of_a_complete_trial(
    state: Any, value: float, step: int
) -> None:
    score = Objectives((LOSS,)).score(state, 3, CURVE, {}, COST, {"loss": 0.35, "auc": 0.9})
    assert (score.values, score.step, score.missing) == ((value,), step, None)
    assert score.metrics["loss"] == value


def test_final_values_of_other_objectives_and_constraints_count_too() -> None:
    judge = Objectives((LOSS, AUC), (Constraint("size", "<", 5),))
    score = judge.score(C, 3, CURVE, {"auc": [(2, 0.5)]}, COST, {"auc": 0.9, "size": 4.0})
    assert score.values == (0.3, 0.9) and score.feasible and score.step == 2
    assert judge.score(C, 3, CURVE, {}, COST, {"loss": math.nan}).missing == "loss"


@pytest.mark.parametrize("bounds", [(), (HOURS,)])
def test_a_step_with_an_infinite_value_loses_to_every_finite_one(bounds: Any) -> None:
    judge = Objectives((AUC,), bounds)
    hours = {"hours": [(1, 1.0), (2, 1.0), (3, 1.0)]}
    curve = ((1, math.nan), (2, 0.1), (3, math.inf))
    assert judge.score(C, 3, curve, hours, COST).values == (0.1,)
    assert best_step({step: {"auc": value} for step, value in curve}, judge.order) == 2
