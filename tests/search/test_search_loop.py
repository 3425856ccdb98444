"""Initial points, repeats, several objectives and constraints of a search, in its record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import threadpoolctl
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Report, Result, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.sections.search_models import Repeats
from sweeps.study.events import TrialReported
from sweeps.study.repeats import Configurations, is_settled, merge
from sweeps.study.states import TrialState
from tests.search.next_trial import next_trial
from tests.study.studies import recorded_study

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params: {eta: {loguniform: [1e-3, 1.0]}, kind: {choice: [a, b]}, noise: {randn: [0, 1]}}
"""
C, P, F = State.COMPLETE, State.PRUNED, State.FAIL
TWO = "[{metric: loss, goal: minimize}, {metric: auc, goal: maximize}]"
NONE = "{name: none}"


def end(
    loop: SearchLoop, trial: Any, state: State = C, seconds: float = 1.0, **metrics: float
) -> TrialState:
    loop.store.append(
        TrialReported(
            1.0,
            trial.number,
            (Report(1, metrics or {"loss": trial.params["eta"]}, 0.0),),
            seconds=seconds,
            worker_seconds=seconds,
        ),
    )
    return loop.store.end(trial.number, state)


# ---- initial points

POINTS = """[{params.eta: 0.5}, {preprocessor: MinMaxScaler, params.kind: b, params.noise: 1},
  {preprocessor: StandardScaler, params.kind: a, params.eta: 0.25, \
params.noise: 0, value: 0.125}]"""


@pytest.mark.parametrize("algorithm", ["tpe", "random"])
def test_initial_points_come_first_and_the_rest_of_them_is_sampled(
    make_space: Any, tmp_path: Path, algorithm: str
) -> None:
    space = make_space(BODY, algorithm=algorithm, max_trials=6, points=POINTS)
    loop = SearchLoop.open(tmp_path, space)
    first, second, third = (next_trial(loop) for _ in range(3))
    assert (
        first.params["eta"] == 0.5
        and second.params["kind"] == "b"
        and second.params["noise"] == pytest.approx(1)
    )
    assert (first.chain, second.chain, third.chain) == (
        "StandardScaler",
        "MinMaxScaler",
        "MinMaxScaler",
    ), "cells are filled evenly"
    assert 0.001 <= second.params["eta"] <= 1 and second.params["eta"] != third.params["eta"] != 0.5
    more = [loop.ask() for _ in range(4)]
    assert [t is None for t in more] == [False] * 3 + [True], (
        "max_trials does not count what is given"
    )


def test_a_known_result_is_on_record_and_neither_run_nor_the_winner(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space(BODY, points=POINTS)
    loop = SearchLoop.open(tmp_path, space)
    loop = SearchLoop.open(tmp_path, space)  # once
    (given_,) = loop.store.study.trials
    assert (given_.state.name, given_.value, given_.params["params.eta"]) == (
        "COMPLETE",
        0.125,
        0.25,
    )
    assert loop.store.results()[0].given and loop.store.winner() is None and not loop.budget.ended
    trial = next_trial(loop)
    assert trial.number == 1 and trial.params["eta"] == 0.5
    end(loop, trial, loss=0.9)
    assert loop.store.winner() == 1
    read = recorded_study(tmp_path)
    assert [t.result.given for t in read.trials] == [True, False] and [t.id for t in read.ran] == [
        "0001"
    ]
    assert read.trials[0].params["eta"] == 0.25
    assert read.best is not None and read.best.id == "0001"


def test_a_point_that_a_dead_driver_had_queued_starts_once(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, points=POINTS)
    loop = SearchLoop.open(tmp_path, space)
    loop.store.study.enqueue_trial(space.search.initial_points[0].keys)
    loop = SearchLoop.open(tmp_path, space)
    assert set(loop.store.results()) == {0}, "what was not begun is no trial"
    assert [next_trial(loop).params["eta"] == 0.5 for _ in range(3)] == [True, False, False]


# ---- repeats

REPEATS = "repeats: {count: 3, aggregate: mean}"


def test_repeat_starts_before_enqueued_configuration(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, max_trials=3, extra=REPEATS)
    loop = SearchLoop.open(tmp_path, space)
    first = next_trial(loop)
    loop.enqueue({"params.eta": 0.5}, "a command")
    end(loop, first, loss=0.5)
    assert next_trial(loop).repeat_of == first.number
    loop = SearchLoop.open(tmp_path, space)
    started = [next_trial(loop) for _ in range(2)]
    assert [trial.repeat_of for trial in started] == [first.number, None]
    assert started[1].enqueued and started[1].params["eta"] == 0.5


def test_repeats_start_after_first_trial_with_other_seeds(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, max_trials=2, extra=REPEATS)
    loop = SearchLoop.open(tmp_path, space)
    first, other = next_trial(loop), next_trial(loop)
    assert loop.ask() is None and loop.queue.may_grow and loop.queue.known_total == 2
    end(loop, first, loss=0.5)
    assert loop.queue.known_total == 4
    loop = SearchLoop.open(tmp_path, space)  # a driver that takes it up knows what is due
    second = next_trial(loop)
    assert (
        second.params == first.params
        and second.repeat_of == first.number
        and second.seed != first.seed
    )
    assert (
        loop.store.trial(second.number)
        == second
        == SearchLoop.open(tmp_path, space).store.trial(second.number)
    )
    third = next_trial(loop)
    assert third.params == first.params and loop.ask() is None
    end(loop, second, loss=0.1)
    end(loop, third, loss=0.3)
    assert not loop.store.study.trials[second.number].intermediate_values, (
        "no scheduler compares repeats"
    )
    assert loop.budget.best is not None
    assert loop.budget.best[0] == 0 and loop.budget.best[1].value == pytest.approx(0.3)
    assert loop.store.winner() == second.number, (
        "the best of its repeats stands for a configuration"
    )
    study = recorded_study(tmp_path)
    assert study.best is not None and study.best.number == second.number
    assert study.repeats == space.repeats
    assert other.number == 1


def test_a_configuration_that_was_stopped_is_not_repeated(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY, max_trials=2, extra=REPEATS))
    for state in (P, F):
        end(loop, next_trial(loop), state)
    assert loop.ask() is None and not loop.queue.may_grow


def test_without_a_scheduler_the_number_of_trials_is_known(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY, max_trials=4, extra=REPEATS, scheduler=NONE))
    assert loop.queue.known_total == 12
    end(loop, next_trial(loop), F)
    assert loop.queue.known_total == 10


ENDED = st.builds(
    lambda s, v: Result(s, v, values=(v,)), st.sampled_from([C, P, F]), st.floats(-5, 5)
)


@given(st.lists(ENDED, min_size=1, max_size=4), st.sampled_from(["mean", "median", "min", "max"]))
def test_a_configuration_has_the_aggregate_of_all_its_values(results: Any, aggregate: Any) -> None:
    repeats = Repeats(len(results), aggregate)
    whole = merge(results, repeats)
    values = [r.value for r in results]
    if all(r.state is C for r in results):
        assert (
            whole.state is C
            and min(values) - 1e-9 <= whole.value <= max(values) + 1e-9
            and is_settled(results, repeats)
        )
        if aggregate in ("min", "max"):
            assert whole.value in values
    else:
        assert whole.state is not C or len(results) == 1


def test_whole_configurations_win_over_those_that_lack_a_repeat() -> None:
    rows = [(0, None, 0.5, C), (1, 0, 0.5, C), (2, None, 0.1, C), (3, 2, 0.1, F), (4, None, 0.2, P)]
    trials = [(n, first, Result(state, v, values=(v,))) for n, first, v, state in rows]
    assert Configurations.of(trials, Repeats(2)).winner((True,)) == 0
    assert Configurations.of(trials[2:], Repeats(2)).winner((True,)) == 2, (
        "the best of what there is"
    )


# ---- several objectives, constraints


@pytest.mark.parametrize("algorithm", ["tpe", "gp", "nsga2", "random"])
def test_several_objectives_have_a_front_and_no_winner(
    make_space: Any, tmp_path: Path, algorithm: str
) -> None:
    space = make_space(BODY, objective=TWO, scheduler=NONE, algorithm=algorithm)
    loop = SearchLoop.open(tmp_path, space)
    for i in range(25):
        trial = next_trial(loop)
        end(loop, trial, loss=float(i % 5), auc=float(i % 5) if i % 2 else -1.0)
    nan, stopped, failed = (next_trial(loop) for _ in range(3))
    assert end(loop, nan, loss=-1.0, auc=math.nan).state is F
    error = loop.store.results()[nan.number].error
    assert error is not None and "`auc` was NaN" in error
    assert end(loop, stopped, P, loss=-1.0, auc=9.0).state is P
    end(loop, failed, F, loss=-2.0, auc=9.0)
    assert not any(t.intermediate_values for t in loop.store.study.trials)
    front = loop.store.front()
    assert loop.store.winner() is None and {loop.store.results()[n].values for n in front} == {
        (float(v), float(v)) for v in range(5)
    }
    assert [t.number for t in recorded_study(tmp_path).front] == front == list(loop.budget.front)
    assert sorted(n for n in front) == sorted(t.number for t in loop.store.study.best_trials), (
        "as Optuna sees it"
    )
    assert SearchLoop.open(tmp_path, space).store.front() == front


def test_infeasible_trial_is_complete_and_never_wins(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, extra='constraints: {latency: "<= 5", seconds: "< 9"}', scheduler=NONE)
    loop = SearchLoop.open(tmp_path, space)
    for loss, latency, seconds in (
        (0.1, 7.0, 1.0),
        (0.3, 5.0, 1.0),
        (0.2, 1.0, 9.0),
        (0.4, 1.0, 1.0),
    ):
        assert end(loop, next_trial(loop), seconds=seconds, loss=loss, latency=latency).state is C
    assert loop.store.winner() == 1
    assert loop.budget.best is not None and loop.budget.best[0] == 1
    assert [r.feasible for r in loop.store.results().values()] == [False, True, False, True]
    assert (
        loop.store.study.trials[0].constraints == {"latency": 2.0, "seconds": -8.0}
        and loop.store.study.best_trial.number == 1
    )
    assert loop.store.results()[1].metrics == {
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "gpu_seconds": 0.0,
        "loss": 0.3,
        "latency": 5.0,
    }
    unsaid = end(loop, next_trial(loop), loss=0.0)
    assert (
        unsaid.state is F
        and unsaid.error == "the loop ended without reporting the constraint's metric `latency`"
    )
    for _ in range(12):  # the sampler takes them into account
        trial = next_trial(loop)
        end(loop, trial, loss=trial.params["eta"], latency=10 * trial.params["eta"])


def test_where_nothing_keeps_the_constraints_the_best_of_the_rest_wins(
    make_space: Any, tmp_path: Path
) -> None:
    loop = SearchLoop.open(
        tmp_path, make_space(BODY, extra='constraints: {latency: "<= 5"}', scheduler=NONE)
    )
    for loss in (0.2, 0.1):
        end(loop, next_trial(loop), loss=loss, latency=9.0)
    assert loop.store.winner() == 1 and not loop.store.results()[1].feasible


# ---- threads


def thread_counts() -> list[int]:
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


class ThreadCounting:
    """Sampler that notes the threads of BLAS and OpenMP when it is built and at each suggestion."""

    def __init__(self) -> None:
        self.seen = [thread_counts()]

    def suggest(self, history: Any, cell: Any, rng: Any) -> Any:
        self.seen.append(thread_counts())
        return {}


def test_samplers_have_one_thread_and_the_process_has_its_threads_again(
    make_space: Any, tmp_path: Path
) -> None:
    algorithm = '"tests.search.test_search_loop:ThreadCounting"'
    with threadpoolctl.threadpool_limits(2):
        before = thread_counts()
        loop = SearchLoop.open(tmp_path, make_space(BODY, algorithm=algorithm))
        end(loop, next_trial(loop))
        loop.ask()
        assert thread_counts() == before and 2 in before
    sampler = loop.sampler.model
    assert isinstance(sampler, ThreadCounting)
    assert len(sampler.seen) == 3
    assert all(set(counts) == {1} for counts in sampler.seen)
