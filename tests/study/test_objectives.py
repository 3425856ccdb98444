"""What a trial is worth follows from its reports and its cost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.resources import COSTS, costs
from sweeps.core.trial import State
from sweeps.space.section_models import Constraint, Objective
from sweeps.study.objectives import Objectives

LOSS, AUC, SECONDS = (
    Objective("loss", "minimize"),
    Objective("auc", "maximize"),
    Objective("seconds", "minimize"),
)
CURVE = ((1, 0.5), (2, 0.3), (3, 0.4))
COST = costs(10.0, 20.0, {"CPU": 2.0, "GPU": 0.5})
C, P = State.COMPLETE, State.PRUNED


def test_one_objective_is_its_best_report():
    judged = Objectives((LOSS,)).score(C, 3, CURVE, {}, COST)
    assert (judged.step, judged.values, judged.feasible, judged.missing) == (2, (0.3,), True, None)
    assert judged.metrics == {
        "seconds": 10.0,
        "cpu_seconds": 40.0,
        "gpu_seconds": 10.0,
        "loss": 0.3,
    }


def test_all_metrics_are_those_of_the_step_that_is_best_by_the_first():
    judge = Objectives((LOSS, AUC), (Constraint("latency", "<=", 5),))
    others = {"auc": [(1, 0.6), (2, 0.7), (3, 0.9)], "latency": [(3, 4.0)]}
    judged = judge.score(C, 3, CURVE, others, COST)
    assert judged.values == (0.3, 0.7) and judged.metrics["latency"] == 4.0, (
        "a metric that is not at that step: its latest"
    )
    assert judged.feasible and judge.violations(judged.metrics) == {"latency": -1.0}


def test_a_cost_is_a_value_only_of_what_came_to_its_end():
    judge = Objectives((SECONDS, LOSS))
    assert judge.metric == "loss" and judge.minimize
    assert judge.score(C, 3, CURVE, {}, COST).values == (10.0, 0.3)
    assert judge.score(P, 3, CURVE, {}, COST).values == (None, 0.3)


def test_costs_alone_stand_for_the_last_step_or_the_best_by_a_constraint():
    assert Objectives((SECONDS,)).score(C, 3, (), {}, COST).step == 3
    judge = Objectives((SECONDS,), (Constraint("auc", ">", 0.5),))
    assert (judge.metric, judge.minimize) == ("auc", False)
    judged = judge.score(C, 3, ((1, 0.4), (2, 0.8), (3, 0.6)), {}, COST)
    assert (judged.step, judged.values, judged.feasible) == (2, (10.0,), True)


def test_what_is_asked_for_and_not_there_is_named_and_never_feasible():
    judge = Objectives((LOSS,), (Constraint("latency", "<", 5),))
    judged = judge.score(C, 3, CURVE, {}, COST)
    assert (
        judged.missing == "latency"
        and not judged.feasible
        and judge.violations(judged.metrics)["latency"] > 0
    )
    assert Objectives((LOSS,)).score(C, 0, (), {}, COST).missing == "loss"
    assert (
        Objectives((LOSS, AUC)).score(C, 3, CURVE, {"auc": [(2, math.nan)]}, COST).missing == "auc"
    )


@pytest.mark.parametrize("sign", ["<=", "<", ">=", ">"])
@given(value=st.floats(allow_nan=True), bound=st.floats(-1e6, 1e6))
def test_a_violation_is_above_zero_where_the_constraint_is_broken_and_nowhere_else(
    sign, value, bound
):
    constraint = Constraint("m", sign, bound)
    violation = constraint.violation(value)
    assert not math.isnan(violation) and (violation > 0) == (not constraint.holds(value))


def test_a_judge_is_read_back():
    judge = Objectives((LOSS, SECONDS), (Constraint("auc", ">=", 0.5),))
    assert Objectives.from_json(judge.to_json()) == judge
    assert set(costs(1.0, 1, {})) == set(COSTS)


def test_a_trial_on_more_rows_is_worth_what_it_is_worth_on_most_rows():
    judge = Objectives((LOSS,), on_more_rows=True)
    assert judge.score(P, 3, CURVE, {}, COST).values == (0.4,) and not judge.need_one_report
    assert Objectives.from_json(judge.to_json()) == judge
