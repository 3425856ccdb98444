"""What a space may ask of a search beside its dimensions, on record: initial points, repeats, several objectives, constraints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Report, Result, State
from sweeps.search.study_store import StudyStore
from sweeps.space.section_models import Repeats
from sweeps.study import record
from sweeps.study.repeats import Configurations, merged, settled

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params: {eta: {loguniform: [1e-3, 1.0]}, kind: {choice: [a, b]}, noise: {randn: [0, 1]}}
"""
C, P, F = State.COMPLETE, State.PRUNED, State.FAIL
TWO = "[{metric: loss, goal: minimize}, {metric: auc, goal: maximize}]"
NONE = "{name: none}"


def end(study_store: StudyStore, trial, state: State = C, seconds: float = 1.0, **metrics: float) -> Result:
    study_store.record(trial.number, (Report(1, metrics or {"loss": trial.params["eta"]}, 0.0),), None, None, 1, seconds)
    return study_store.finish(trial.number, state)


# ---- initial points

POINTS = """[{params.eta: 0.5}, {preprocessor: MinMaxScaler, params.kind: b, params.noise: 1},
  {preprocessor: StandardScaler, params.kind: a, params.eta: 0.25, params.noise: 0, value: 0.125}]"""


@pytest.mark.parametrize("algorithm", ["tpe", "random"])
def test_initial_points_come_first_and_the_rest_of_them_is_sampled(make_space, tmp_path, algorithm):
    space = make_space(BODY, algorithm=algorithm, max_trials=6, points=POINTS)
    study_store = StudyStore(tmp_path, space)
    first, second, third = (study_store.next() for _ in range(3))
    assert first.params["eta"] == 0.5 and second.params["kind"] == "b" and second.params["noise"] == pytest.approx(1)
    assert (first.chain, second.chain, third.chain) == ("StandardScaler", "MinMaxScaler", "MinMaxScaler"), "cells are filled evenly"
    assert 0.001 <= second.params["eta"] <= 1 and second.params["eta"] != third.params["eta"] != 0.5
    more = [study_store.next() for _ in range(4)]
    assert [t is None for t in more] == [False] * 3 + [True], "max_trials does not count what is given"


def test_a_known_result_is_on_record_and_neither_run_nor_the_winner(make_space, tmp_path):
    space = make_space(BODY, points=POINTS)
    study_store = StudyStore(tmp_path, space)
    study_store = StudyStore(tmp_path, space)  # once
    (given_,) = study_store.study.trials
    assert (given_.state.name, given_.value, given_.params["params.eta"]) == ("COMPLETE", 0.125, 0.25)
    assert study_store.results()[0].given and study_store.winner() is None and not study_store.course.ended
    trial = study_store.next()
    assert trial.number == 1 and trial.params["eta"] == 0.5
    end(study_store, trial, loss=0.9)
    assert study_store.winner() == 1
    read = record.read(tmp_path)
    assert [t.result.given for t in read.trials] == [True, False] and [t.id for t in read.ran] == ["0001"]
    assert read.trials[0].params["eta"] == 0.25 and read.best.id == "0001"


def test_a_point_that_a_dead_driver_had_put_in_line_is_begun_once(make_space, tmp_path):
    space = make_space(BODY, points=POINTS)
    study_store = StudyStore(tmp_path, space)
    study_store.study.enqueue_trial(space.search.initial_points[0].keys)
    study_store = StudyStore(tmp_path, space)
    assert set(study_store.results()) == {0}, "what was not begun is no trial"
    assert [study_store.next().params["eta"] == 0.5 for _ in range(3)] == [True, False, False]


def test_more_points_than_trials_are_refused(make_space):
    with pytest.raises(Exception, match=r"search.initial_points: 3 points are to be run, more than limits.max_trials, 2"):
        make_space(BODY, max_trials=2, points="[{params.eta: 0.5}, {params.eta: 0.1}, {params.eta: 0.2}]")


# ---- repeats

REPEATS = "repeats: {count: 3, aggregate: mean}"


def test_repeats_are_begun_when_the_first_has_come_to_its_end_with_other_seeds(make_space, tmp_path):
    space = make_space(BODY, max_trials=2, extra=REPEATS)
    study_store = StudyStore(tmp_path, space)
    first, other = study_store.next(), study_store.next()
    assert study_store.next() is None and study_store.queue.more_may_come and study_store.queue.total == 2
    end(study_store, first, loss=0.5)
    assert study_store.queue.total == 4
    study_store = StudyStore(tmp_path, space)  # a driver that takes it up knows what is due
    second = study_store.next()
    assert second.params == first.params and second.origin == first.number and second.seed != first.seed
    assert study_store.trial(second.number) == second == StudyStore(tmp_path, space).trial(second.number)
    third = study_store.next()
    assert third.params == first.params and study_store.next() is None
    end(study_store, second, loss=0.1)
    end(study_store, third, loss=0.3)
    assert not study_store.study.trials[second.number].intermediate_values, "no scheduler compares repeats"
    assert study_store.course.best[0] == 0 and study_store.course.best[1].value == pytest.approx(0.3)
    assert study_store.winner() == second.number, "the best of its repeats stands for a configuration"
    found = record.read(tmp_path)
    assert found.best.number == second.number and found.repeats == space.repeats
    assert other.number == 1


def test_a_configuration_that_was_stopped_is_not_repeated(make_space, tmp_path):
    study_store = StudyStore(tmp_path, make_space(BODY, max_trials=2, extra=REPEATS))
    for state in (P, F):
        end(study_store, study_store.next(), state)
    assert study_store.next() is None and not study_store.queue.more_may_come


def test_without_a_scheduler_the_number_of_trials_is_known(make_space, tmp_path):
    study_store = StudyStore(tmp_path, make_space(BODY, max_trials=4, extra=REPEATS, scheduler=NONE))
    assert study_store.queue.total == 12
    end(study_store, study_store.next(), F)
    assert study_store.queue.total == 10


ENDED = st.builds(lambda s, v: Result(s, v, values=(v,)), st.sampled_from([C, P, F]), st.floats(-5, 5))


@given(st.lists(ENDED, min_size=1, max_size=4), st.sampled_from(["mean", "median", "min", "max"]))
def test_a_configuration_is_judged_by_all_its_values(results, aggregate):
    repeats = Repeats(len(results), aggregate)
    together = merged(results, repeats)
    values = [r.value for r in results]
    if all(r.state is C for r in results):
        assert together.state is C and min(values) <= together.value <= max(values) and settled(results, repeats)
        if aggregate in ("min", "max"):
            assert together.value in values
    else:
        assert together.state is not C or len(results) == 1


def test_without_repeats_each_trial_is_a_configuration():
    results = [(0, None, Result(C, 0.3, values=(0.3,))), (1, None, Result(C, 0.2, values=(0.2,)))]
    assert Configurations.of(results, Repeats()).winner((True,)) == 1


def test_whole_configurations_win_over_those_that_lack_a_repeat():
    made = [(0, None, 0.5, C), (1, 0, 0.5, C), (2, None, 0.1, C), (3, 2, 0.1, F), (4, None, 0.2, P)]
    trials = [(n, origin, Result(state, v, values=(v,))) for n, origin, v, state in made]
    assert Configurations.of(trials, Repeats(2)).winner((True,)) == 0
    assert Configurations.of(trials[2:], Repeats(2)).winner((True,)) == 2, "the best of what there is"


# ---- several objectives, constraints


@pytest.mark.parametrize("algorithm", ["tpe", "nsga2", "random"])
def test_several_objectives_have_a_front_and_no_winner(make_space, tmp_path, algorithm):
    try:
        space = make_space(BODY, objective=TWO, scheduler=NONE, algorithm=algorithm)
    except Exception as e:
        pytest.skip(str(e))  # an algorithm that is not there yet
    study_store = StudyStore(tmp_path, space)
    for i in range(25):
        trial = study_store.next()
        end(study_store, trial, loss=float(i % 5), auc=float(i % 5) if i % 2 else -1.0)
    nan, stopped, failed = study_store.next(), study_store.next(), study_store.next()
    assert end(study_store, nan, loss=-1.0, auc=math.nan).state is F
    assert "`auc` was NaN" in study_store.results()[nan.number].error
    assert end(study_store, stopped, P, loss=-1.0, auc=9.0).state is P
    end(study_store, failed, F, loss=-2.0, auc=9.0)
    assert not any(t.intermediate_values for t in study_store.study.trials)
    front = study_store.front()
    assert study_store.winner() is None and {study_store.results()[n].values for n in front} == {(float(v), float(v)) for v in range(5)}
    assert [t.number for t in record.read(tmp_path).front] == front == list(study_store.course.front)
    assert sorted(n for n in front) == sorted(t.number for t in study_store.study.best_trials), "as Optuna sees it"
    assert StudyStore(tmp_path, space).front() == front


def test_what_breaks_a_constraint_is_complete_and_never_wins_over_what_keeps_it(make_space, tmp_path):
    space = make_space(BODY, extra='constraints: {latency: "<= 5", seconds: "< 9"}', scheduler=NONE)
    study_store = StudyStore(tmp_path, space)
    for loss, latency, seconds in ((0.1, 7.0, 1.0), (0.3, 5.0, 1.0), (0.2, 1.0, 9.0), (0.4, 1.0, 1.0)):
        assert end(study_store, study_store.next(), seconds=seconds, loss=loss, latency=latency).state is C
    assert study_store.winner() == 1 and study_store.course.best[0] == 1
    assert [r.feasible for r in study_store.results().values()] == [False, True, False, True]
    assert study_store.study.trials[0].constraints == {"latency": 2.0, "seconds": -8.0} and study_store.study.best_trial.number == 1
    assert study_store.results()[1].metrics == {"seconds": 1.0, "cpu_seconds": 1.0, "gpu_seconds": 0.0, "loss": 0.3, "latency": 5.0}
    unsaid = end(study_store, study_store.next(), loss=0.0)
    assert unsaid.state is F and unsaid.error == "the loop ended without reporting the constraint's metric `latency`"
    for _ in range(12):  # the sampler takes them into account
        trial = study_store.next()
        end(study_store, trial, loss=trial.params["eta"], latency=10 * trial.params["eta"])


def test_where_nothing_keeps_the_constraints_the_best_of_the_rest_wins(make_space, tmp_path):
    study_store = StudyStore(tmp_path, make_space(BODY, extra='constraints: {latency: "<= 5"}', scheduler=NONE))
    for loss in (0.2, 0.1):
        end(study_store, study_store.next(), loss=loss, latency=9.0)
    assert study_store.winner() == 1 and not study_store.results()[1].feasible


def test_a_cost_is_searched_for_like_any_objective(make_space, tmp_path):
    study_store = StudyStore(tmp_path, make_space(BODY, objective="{metric: cpu_seconds, goal: minimize}", scheduler=NONE))
    for seconds in (3.0, 2.0, 4.0):
        assert end(study_store, study_store.next(), seconds=seconds, whatever=1.0).value == seconds
    end(study_store, study_store.next(), P, seconds=0.5, whatever=1.0)
    assert study_store.winner() == 1 and study_store.study.best_value == 2.0
    assert study_store.results()[1].best_step == 1 and study_store.standing(1).curve.keys() == {1}
