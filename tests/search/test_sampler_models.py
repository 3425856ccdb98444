"""The history that samplers learn from, and the models of TPE and the Gaussian process."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import TrialState

from sweeps.search.samplers import acquisition, gp_observations, tpe_model
from sweeps.search.samplers.gaussian_process import Process
from sweeps.search.samplers.trial_groups import FULL, History
from sweeps.study.event_records import PAUSED


def study_of(trials: Any) -> optuna.Study:
    """A study in memory: of each trial its parameters' cell, its values by step, its final value or
    None, its state.
    """
    study = optuna.create_study()
    space = {
        "x": optuna.distributions.FloatDistribution(0, 1),
        "cell": optuna.distributions.CategoricalDistribution([0, 1]),
    }
    for x, cell, values, state in trials:
        value = values[-1] if state is TrialState.COMPLETE else None
        trial = optuna.trial.create_trial(
            params={"x": x, "cell": cell},
            distributions=space,
            intermediate_values=dict(enumerate(values, 1)),
            value=value,
            state=state,
            user_attrs={"events.0": {"events": [{"reports": [{"step": len(values)}]}]}},
        )
        study.add_trial(trial)
    return study


ENDS = st.sampled_from([TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL])


TRIALS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from([0, 1]),
        st.lists(st.floats(-9, 9), min_size=1, max_size=4),
        ENDS,
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=30)
@given(TRIALS, st.integers(0, 12))
def test_history_learnt_in_pieces_is_the_one_learnt_at_once(trials: Any, cut: Any) -> None:
    once, pieces = History(["cell"]), History(["cell"])
    study = study_of(trials[:cut])
    pieces.refresh(study)
    for trial in study_of(trials[cut:]).get_trials():
        study.add_trial(trial)
        pieces.refresh(study)
    once.refresh(study)
    assert once.levels == pieces.levels and once.running == pieces.running == {}
    for step in range(1, 5):
        there = [i for i, (_, _, values, _) in enumerate(trials) if len(values) >= step]
        # A complete trial that ended before a level counts there.
        ended = [values for *_, values, state in trials if state is TrialState.COMPLETE]
        early = [values for values in ended if len(values) < step]
        assert once.count(step) == (len(there) + len(early) if there else 0)
        values_of_level = (
            [v for cell in once.levels[step].values() for _, (v,), _ in cell] if there else []
        )
        assert all(values_of_level.count(values[-1]) >= 1 for values in early) or not there
    assert once.count(FULL) == sum(state is TrialState.COMPLETE for *_, state in trials)


def test_a_paused_trial_counts_as_an_ended_one_until_it_continues() -> None:
    study, pieces = optuna.create_study(), History()
    trials = [study.ask({"x": optuna.distributions.FloatDistribution(0, 1)}) for _ in range(3)]
    for paused, continued in ((None, None), (1, None), (2, None), (None, 1), (None, 2), (2, None)):
        for number, rung in ((paused, 1), (continued, None)):
            if number is not None:
                trials[number].set_user_attr(PAUSED, rung)
        if paused is not None and not study.trials[paused].intermediate_values:
            trials[paused].report(0.5, 1)
        once = History()
        once.refresh(study)
        pieces.refresh(study)
        waiting = [
            t.number for t in study.trials if t.user_attrs.get(PAUSED) and t.intermediate_values
        ]
        assert once.ended[1][""] == pieces.ended[1][""] == waiting
        assert (
            sorted(pieces.running)
            == sorted(once.running)
            == [n for n in range(3) if n not in waiting]
        )
        assert [t.number for t in pieces.trials()] == [t.number for t in once.trials()]
    study.tell(trials[2], state=TrialState.PRUNED)
    pieces.refresh(study)
    assert pieces.ended[1][""] == [2] and sorted(pieces.running) == [0, 1] and pieces.count(1) == 2


def test_a_trial_that_continued_and_paused_again_is_read_at_its_new_rung() -> None:
    study, pieces, once = optuna.create_study(), History(), History()
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    for rung in (1, 3):
        trial.set_user_attr(PAUSED, None)
        trial.report(0.5 / rung, rung)
        trial.set_user_attr(PAUSED, rung)
        pieces.refresh(study)
    once.refresh(study)
    assert pieces.levels == once.levels and pieces.count(3) == 1
    assert pieces.ended[1].get("", []) == [] and pieces.ended[3][""] == once.ended[3][""] == [0]


def test_a_trial_that_ends_without_a_new_value_is_known_as_it_ended() -> None:
    study, pieces, once = optuna.create_study(), History(), History()
    trial = study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    trial.report(0.5, 1)
    pieces.refresh(study)
    study.tell(trial, state=TrialState.PRUNED)
    pieces.refresh(study)
    once.refresh(study)
    assert pieces.known[0].state is once.known[0].state is TrialState.PRUNED


def test_highest_level_with_enough_values_is_modeled() -> None:
    ends = [TrialState.COMPLETE] * 3 + [TrialState.PRUNED] * 6 + [TrialState.FAIL]
    study = study_of(
        [(0.1, 0, [float(9 - i)] * (3 if i < 5 else 1), end) for i, end in enumerate(ends)]
    )
    history = History(["cell"])
    history.refresh(study)
    assert [history.highest(n) for n in (3, 4, 6, 10, 11)] == [FULL, 3, 1, 1, None]
    assert [number for _, _, number in history.levels[1]["[0]"]] == [8, 7, 6, 5, 4, 3, 2, 1, 0, 9]


def test_the_kernels_are_bounded_and_the_own_cell_comes_first() -> None:
    rng = np.random.RandomState(0)
    own, others = list(range(1000)), list(range(1000, 3000))
    kept = tpe_model.at_most_kernels(own, others, rng)
    assert (
        len(kept) == len(set(kept)) == tpe_model.KERNELS
        and sum(n < 1000 for n in kept) == tpe_model.KERNELS // 2
    )
    assert tpe_model.at_most_kernels(own[:5], others[:5], rng) == own[:5] + others[:5]
    sample = tpe_model.at_most_kernels(own, others[:5], rng)
    assert sum(n < 1000 for n in sample) == tpe_model.KERNELS - 5


def test_the_gradient_of_the_fit_is_the_slope() -> None:
    rng = np.random.RandomState(1)
    x = np.column_stack([rng.rand(20, 2), rng.randint(3, size=20), rng.rand(20)])
    process = Process(
        x, gp_observations.scaled(rng.rand(20))[0], np.array([False, False, True, False])
    )
    theta = np.array([0.1, -0.5, 0.3, 0.0, 0.2, -3.0])
    gradient = process._loss(theta)[1]
    for i, slope in enumerate(gradient):
        step = np.eye(len(theta))[i] * 1e-6
        assert (
            process._loss(theta + step)[0] - process._loss(theta - step)[0]
        ) / 2e-6 == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_gaussian_process_fits_observations_and_doubts_elsewhere() -> None:
    x = np.array([[0.1], [0.2], [0.5]])
    process = Process(x, np.array([1.0, 0.0, -1.0]), np.array([False]))
    process.condition(np.array([-1.0, 0.0, -9.0]))
    mean, deviation = process.predict(np.array([[0.1], [0.5], [0.99]]))
    assert mean[:2] == pytest.approx([1.0, -1.0], abs=0.01) and deviation[2] > 10 * deviation[0]
    surrogate, region = (
        acquisition.Surrogate([process], [], lambda places: places),
        acquisition.improvement_region(np.array([[-1.0]])),
    )
    before = acquisition.acquisition(surrogate, region, np.array([[0.8]]))
    surrogate.imagine(np.array([[0.8]]))
    assert acquisition.acquisition(surrogate, region, np.array([[0.8]])) < 0.1 * before, (
        "what is being tried is not tried again"
    )


def test_what_diverged_does_not_hide_how_the_others_differ() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1e9, math.inf])
    scores = gp_observations.scaled(values)[0]
    assert scores[8] == scores[7] > scores[6] and np.ptp(scores[:7]) > 1
    assert gp_observations.scaled(np.array([3.0, math.inf, 1.0]))[0].argmax() == 1
    assert gp_observations.scaled(values[:7] * 1e3 - 5)[0] == pytest.approx(
        gp_observations.scaled(values[:7])[0]
    )


def test_of_several_objectives_the_front_is_good() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1)}
    for i in range(60):
        x = i / 59
        values = [abs(x - 0.2), -abs(x - 0.3)]
        study.add_trial(
            optuna.trial.create_trial(params={"x": x}, distributions=space, values=values)
        )
    history = History()
    history.refresh(study)
    history.number = 60
    good, rest = tpe_model.split(history, FULL, "", np.random.RandomState(0))
    assert all(0.1 < t.params["x"] < 0.4 for t in good) and len(good) + len(rest) == 60
    suggestions = [
        tpe_model.TpeModel().suggest(history, {}, np.random.RandomState(seed)) for seed in range(30)
    ]
    assert np.median([f["x"] for f in suggestions if f]) == pytest.approx(0.25, abs=0.12)


def test_of_two_opposite_objectives_trials_all_along_the_front_are_good() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"])
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1)}
    # Every second trial violates a constraint. Its values are better than those of all others.
    for i in range(40):
        x = i / 39
        is_feasible = i % 2 == 0
        trial = optuna.trial.create_trial(
            params={"x": x},
            distributions=space,
            values=[x, 1 - x] if is_feasible else [-1.0, -1.0],
            constraints={"m": -1.0 if is_feasible else 1.0},
        )
        study.add_trial(trial)
    history = History()
    history.refresh(study)
    history.number = 40
    good, others = tpe_model.split(history, FULL, "", np.random.RandomState(0))
    assert [t.number % 2 for t in good] == [0] * len(good)
    assert len(good) == tpe_model.good_count(40) == 6 and len(others) == 34
    places = [t.params["x"] for t in good]
    assert min(places) < 0.3 and max(places) > 0.7, "the best of the first objective are all small"


def test_the_number_of_good_trials_grows_with_the_square_root() -> None:
    assert [tpe_model.good_count(n) for n in (1, 25, 100, 900, 10_000)] == [1, 4, 8, 24, 25]


def history_of_ended(steps: list[int | None]) -> History:
    """History of trials that a scheduler stopped at these steps; None for a complete trial."""
    study = optuna.create_study()
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1)}
    for i, step in enumerate(steps):
        x = i / len(steps)
        intermediate = {rung: x for rung in (1, 3, 9) if rung <= (step or 9)}
        state, value = (TrialState.COMPLETE, x) if step is None else (TrialState.PRUNED, None)
        trial = optuna.trial.create_trial(
            state=state,
            value=value,
            params={"x": x},
            distributions=space,
            intermediate_values=intermediate,
        )
        study.add_trial(trial)
    history = History()
    history.refresh(study)
    history.number = len(steps)
    return history


@pytest.mark.parametrize(
    ("steps", "fraction"),
    [
        ([None] * 30, 0.03),  # no scheduler, so a random trial costs as much as any other
        ([1] * 27 + [None] * 3, 1 - (27 / 27 + 3) / 30),
        ([9] * 30, 2 / 3),
        ([], 1.0),
    ],
)
def test_the_cheaper_random_trials_are_the_more_suggestions_are_random(
    steps: Any, fraction: Any
) -> None:
    history = history_of_ended(steps)
    assert tpe_model.random_fraction(history, 27) == pytest.approx(fraction)
    if steps:
        model = tpe_model.TpeModel(max_t=27)
        suggestions = [
            model.suggest(history, {}, np.random.RandomState(seed)) for seed in range(300)
        ]
        assert np.mean([not f for f in suggestions]) == pytest.approx(fraction, abs=0.08)
