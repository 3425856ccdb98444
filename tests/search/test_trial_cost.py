"""Expected costs of trials in `gp`."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from sweeps.core.trial import Report, State
from sweeps.search.samplers.gaussian_process import NONE, Process
from sweeps.search.samplers.gp_observations import scaled
from sweeps.search.samplers.history import History
from sweeps.search.samplers.trial_cost import LEAST, MOST, TrialCost, cost_observations
from sweeps.search.search_loop import SearchLoop
from sweeps.study.live_trial import ProgressUpdate

SPACE = (
    "params: {x: {uniform: [0.0, 1.0]}, y: {uniform: [0.0, 1.0]}}\n"
    "scaling: {num_workers: {choice: [1, 2, 4]}}"
)
NO_STOPS = "{name: none}"


def history_of(seconds, steps=1, gpu: float = 1.0, state=TrialState.PRUNED) -> History:
    """Return the history of trials on one worker that took the given seconds."""
    study, space = optuna.create_study(), {"x": FloatDistribution(0, 1)}
    scaling = {"num_workers": 1, "resources_per_worker": {"CPU": 1.0, "GPU": gpu}}
    for i, spent in enumerate(seconds):
        attributes = {
            "begun": {"scaling": scaling},
            "told.0": {"reports": [], "seconds": spent, "steps": steps},
        }
        x = {"x": i / len(seconds)}
        study.add_trial(
            create_trial(
                params=x,
                distributions=space,
                intermediate_values={1: 0.5},
                user_attrs=attributes,
                state=state,
            )
        )
    history = History()
    history.refresh(study)
    return history


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=2 * MOST), st.integers(1, 50))
def test_the_costs_of_at_most_a_fixed_number_of_trials_are_observed(seconds, steps):
    observed = cost_observations(history_of(seconds, steps), "gpu_seconds")
    assert 1 <= len(observed.trials) <= MOST
    numbers = [t.number for t in observed.trials]
    assert numbers == sorted(set(numbers))
    rates = np.array([seconds[n] / steps for n in numbers])
    assert np.exp(observed.logs) == pytest.approx(np.maximum(rates, LEAST * np.median(rates)))


def test_a_trial_that_costs_nothing_counts_as_a_small_part_of_the_median():
    observed = cost_observations(history_of([0.0, 2.0, 4.0]), "seconds")
    assert np.exp(observed.logs) == pytest.approx([3 * LEAST, 2.0, 4.0])


def test_without_costs_there_are_no_observations():
    assert cost_observations(history_of([]), "seconds") is None
    assert cost_observations(history_of([5.0, 5.0], gpu=0.0), "gpu_seconds") is None
    assert cost_observations(history_of([5.0], steps=0), "seconds") is None
    assert cost_observations(history_of([5.0], state=TrialState.FAIL), "seconds") is None


@given(st.lists(st.integers(0, 20), min_size=2, max_size=12, unique=True), st.floats(0.1, 10))
def test_a_trial_that_costs_more_has_a_larger_weight(places, factor):
    x = np.array(sorted(places))[:, None] / 20
    process = Process(x, scaled(x[:, 0])[0], np.array([False]), noise=NONE)
    process.condition(process.start)
    weights = TrialCost(process, factor).weights(np.array([x[0], x[-1]]))
    assert 0 < weights[0] < weights[1]


# ---- sweeps


def run(loop: SearchLoop, n: int, seconds, steps: int = 1) -> list:
    """Run n trials, one after the other. `seconds(trial)` is the wall time of a trial."""
    asked = []
    for _ in range(n):
        trial = loop.ask()
        asked.append(trial)
        value = (trial.params["x"] - 0.5) ** 2 + (trial.params["y"] - 0.5) ** 2
        reports = tuple(Report(step, {"loss": value}, 1.0) for step in range(1, steps + 1))
        loop.report(trial.number, ProgressUpdate(reports, None, None, 1, seconds(trial)))
        loop.tell(trial.number, State.COMPLETE)
    return asked


def space_with(make_space, options: str):
    return make_space(SPACE, 60, "gp", scheduler=NO_STOPS, options=options)


@pytest.mark.timeout(60)
def test_fewer_workers_are_suggested_if_more_workers_cost_more(make_space, tmp_path):
    space = space_with(make_space, "{cost: cpu_seconds}")
    asked = run(SearchLoop.open(tmp_path, space), 30, lambda trial: 10.0 * trial.shape.workers)
    assert sum(trial.shape.workers == 1 for trial in asked[12:]) > 9, "six of random ones"


@pytest.mark.timeout(60)
def test_costs_count_if_trials_have_many_steps_and_no_scheduler(make_space, tmp_path):
    space = make_space(SPACE, 60, "gp", scheduler="{name: none}", options="{cost: cpu_seconds}")
    asked = run(
        SearchLoop.open(tmp_path, space), 30, lambda trial: 10.0 * trial.shape.workers, steps=20
    )
    assert sum(trial.shape.workers == 1 for trial in asked[12:]) > 9, "six of random ones"


@pytest.mark.timeout(60)
def test_more_workers_are_suggested_if_they_end_sooner(make_space, tmp_path):
    space = space_with(make_space, "{cost: seconds}")
    asked = run(SearchLoop.open(tmp_path, space), 30, lambda trial: 10.0 / trial.shape.workers**2)
    assert sum(trial.shape.workers == 4 for trial in asked[12:]) > 9, "six of random ones"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seconds", [0.0, 10.0])
def test_without_costs_or_with_equal_costs_the_search_is_as_without_the_option(
    seconds, make_space, tmp_path
):
    asked = []
    for i, options in enumerate(("{}", "{cost: seconds}")):
        (tmp_path / str(i)).mkdir()
        asked.append(
            run(
                SearchLoop.open(tmp_path / str(i), space_with(make_space, options)),
                16,
                lambda trial: seconds,
            )
        )
    assert [t.params for t in asked[0]] == [t.params for t in asked[1]]


@pytest.mark.timeout(60)
def test_a_resumed_sweep_suggests_the_same(make_space, tmp_path):
    space, asked = space_with(make_space, "{cost: cpu_seconds}"), []
    for again in (False, True):
        folder = tmp_path / str(again)
        folder.mkdir()
        loop = SearchLoop.open(folder, space)
        run(loop, 20, lambda trial: 1 + trial.params["x"])
        if again:
            loop = SearchLoop.open(folder, space)
        asked.append([loop.ask() for _ in range(3)])
    assert asked[0] == asked[1]
