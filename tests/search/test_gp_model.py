"""The model of `gp` for conditional dimensions, failures, constraints, several objectives and
repeats.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from sweeps.core.trial import Report, State, Trial
from sweeps.search.samplers import gp_observations
from sweeps.search.samplers.gaussian_process import NONE, VAGUE
from sweeps.search.samplers.gp_model import GpModel
from sweeps.search.samplers.sampler import SamplerContext
from sweeps.search.samplers.trial_groups import FULL, History, Rank
from sweeps.search.search_loop import SearchLoop
from sweeps.space import Repeats
from sweeps.study.event_records import REPEAT_OF
from sweeps.study.events import TrialReported
from tests.search.next_trial import next_trial

NO_STOPS = "{name: none}"
NUMBERS = "params: {x: {uniform: [0.0, 1.0]}, y: {uniform: [0.0, 1.0]}}"


def run(loop: SearchLoop, n: int, metrics: Any, concurrency: int = 2) -> list[Trial]:
    """Begin n trials, `concurrency` side by side.

    `metrics(params)` returns the metrics of a trial, or None if the trial fails.
    """
    running: list[Trial] = []
    asked: list[Trial] = []
    for i in range(n + concurrency):
        if i < n:
            asked.append(next_trial(loop))
            running.append(asked[-1])
        if i >= concurrency and running:
            trial = running.pop(0)
            values = metrics(trial.params)
            reports = () if values is None else (Report(1, values, 1.0),)
            loop.store.append(TrialReported(1.0, trial.number, reports, seconds=0.0))
            loop.store.end(trial.number, State.FAIL if values is None else State.COMPLETE)
    return asked


CONDITIONS = """
params:
  kind: {choice: [a, {u: {uniform: [0.0, 1.0]}}, {v: {uniform: [0.0, 1.0]}}]}
  n: {randint: [1, 4]}
  w: {uniform: [0.0, 1.0], when: {params.n: ">= 2"}}
"""


def conditional(params: Any) -> dict[str, float]:
    kind, extra = params["kind"], 2 * (params.get("w", 0.9) - 0.2) ** 2 + 0.1 * (params["n"] == 3)
    inside = (
        0.3
        if kind == "a"
        else (kind["u"] - 0.8) ** 2
        if "u" in kind
        else 0.2 + (kind["v"] - 0.4) ** 2
    )
    return {"loss": inside + extra}


@pytest.mark.timeout(60)
def test_conditional_dimensions_are_modeled(make_space: Any, tmp_path: Path) -> None:
    asked = run(
        SearchLoop.open(tmp_path, make_space(CONDITIONS, 60, "gp", scheduler=NO_STOPS)),
        40,
        lambda p: conditional(p),
    )
    late = [t.params for t in asked[25:]]
    near = [
        p
        for p in late
        if p["n"] > 1
        and "u" in p["kind"]
        and abs(p["kind"]["u"] - 0.8) < 0.15
        and abs(p["w"] - 0.2) < 0.15
    ]
    assert len(near) > len(late) / 3, "one in fifty of random ones"
    assert all(("w" in p) == (p["n"] > 1) for p in late)


@pytest.mark.timeout(60)
def test_the_search_reaches_the_best_values_next_to_failures(
    make_space: Any, tmp_path: Path
) -> None:
    loop = SearchLoop.open(tmp_path, make_space(NUMBERS, 60, "gp", scheduler=NO_STOPS))
    asked = run(
        loop, 30, lambda p: None if p["x"] > 0.6 else {"loss": 1 - p["x"] + (p["y"] - 0.5) ** 2}
    )
    assert any(0.58 < t.params["x"] <= 0.6 and abs(t.params["y"] - 0.5) < 0.05 for t in asked), (
        "one of 500 random ones"
    )
    assert sum(0.55 < t.params["x"] < 0.65 for t in asked[15:]) > 7, "a tenth of random ones"


@pytest.mark.timeout(60)
def test_constraints_are_modeled(make_space: Any, tmp_path: Path) -> None:
    space = make_space(NUMBERS, 60, "gp", scheduler=NO_STOPS, extra='constraints: {size: "<= 5"}')
    asked = run(
        SearchLoop.open(tmp_path, space),
        40,
        lambda p: {"loss": -p["x"] - p["y"], "size": 10 * p["x"] + p["y"]},
    )
    feasible = [
        t.params["x"] + t.params["y"] for t in asked if 10 * t.params["x"] + t.params["y"] <= 5
    ]
    assert max(feasible) > 1.3, "the best possible is 1.4"
    assert sum(10 * t.params["x"] + t.params["y"] <= 5.5 for t in asked[25:]) >= 8


@pytest.mark.timeout(60)
def test_several_objectives_have_their_front_searched(make_space: Any, tmp_path: Path) -> None:
    objective = "[{metric: a, goal: minimize}, {metric: b, goal: maximize}]"
    loop = SearchLoop.open(
        tmp_path, make_space(NUMBERS, 60, "gp", scheduler=NO_STOPS, objective=objective)
    )
    asked = run(loop, 40, lambda p: {"a": p["x"] ** 2 + p["y"], "b": -((p["x"] - 1) ** 2) - p["y"]})
    late = [t.params for t in asked[20:]]
    assert sum(p["y"] < 0.1 for p in late) > 10, "one in ten of random ones"
    assert np.ptp([p["x"] for p in late if p["y"] < 0.1]) > 0.5, "along the whole front"


@pytest.mark.timeout(60)
def test_resumed_sweep_suggests_the_same_for_every_kind_of_space(
    make_space: Any, tmp_path: Path
) -> None:
    body = CONDITIONS + "  size: {choice: [16, 32, 64, 128]}\n"
    space = make_space(body, 60, "gp", scheduler=NO_STOPS, extra='constraints: {size: "<= 100"}')

    def metrics(params: Any) -> Any:
        return (
            None
            if params.get("w", 0) > 0.7
            else {**conditional(params), "size": params["size"] * (1 + params["n"])}
        )

    asked = []
    for again in (False, True):
        folder = tmp_path / str(again)
        folder.mkdir()
        loop = SearchLoop.open(folder, space)
        run(loop, 24, metrics)
        if again:
            loop = SearchLoop.open(folder, space)
        asked.append([loop.ask() for _ in range(3)])
    assert asked[0] == asked[1]


# ---- observations


def filled(n: int, cells: int = 1) -> History:
    """Return a history of n trials with values at step 1. A third of them reached step 3."""
    study, rng = optuna.create_study(), np.random.RandomState(0)
    space = {"x": FloatDistribution(0, 1), "cell": CategoricalDistribution(list(range(cells)))}
    for i in range(n):
        value = float(rng.rand())
        study.add_trial(
            create_trial(
                params={"x": value, "cell": i % cells},
                distributions=space,
                intermediate_values={1: value + 2, 3: value} if i % 3 == 0 else {1: value + 2},
                state=TrialState.PRUNED,
            )
        )
    history = History(["cell"] if cells > 1 else [])
    history.refresh(study)
    return history


@pytest.mark.parametrize("cells", [1, 3])
def test_the_observations_are_the_best_trials_and_a_sample_of_the_others(cells: int) -> None:
    history = filled(600, cells)
    observations = gp_observations.observations(history, np.random.RandomState(0))
    assert len(observations.trials) == len(observations.values) == gp_observations.MOST
    share = gp_observations.MOST // 2
    for level, ranked in (
        (1, sorted(r for cell in history.levels[1].values() for r in cell)),
        (3, None),
    ):
        numbers = [
            t.number
            for t, at in zip(observations.trials, observations.levels, strict=True)
            if at == level
        ]
        assert len(numbers) == len(set(numbers)) == share
        if ranked:
            assert numbers[: share // 2] == [number for _, _, number in ranked[: share // 2]]
    assert observations.values[:, 0] == pytest.approx(
        [t.params["x"] for t in observations.trials]
    ), "shifted to the highest rung"


@pytest.mark.parametrize("objectives", [2, 3])
def test_with_several_objectives_the_fronts_are_observed_first(objectives: int) -> None:
    rng = np.random.RandomState(0)
    ranked = [Rank(0.0, tuple(rng.rand(objectives)), number) for number in range(60)]
    ranked += [Rank(0.0, (np.inf,) * objectives, 60), Rank(1.0, (0.0,) * objectives, 61)]
    order = gp_observations.front_first(ranked, 20)
    assert sorted(order) == list(range(62))
    values = np.array([one[1] for one in ranked[:60]])
    left = list(range(60))
    best: list[int] = []
    while len(best) < 20:
        front = [i for i in left if not any((values[j] <= values[i]).all() for j in left if j != i)]
        best += sorted(front, key=lambda i: values[i].sum())
        left = [i for i in left if i not in front]
    assert order[:20].tolist() == best[:20]


def test_the_noise_is_the_variance_among_repeats() -> None:
    study, rng = optuna.create_study(), np.random.RandomState(1)
    space: dict[str, BaseDistribution] = {"x": FloatDistribution(0, 1)}
    pieces, once = History((), Repeats(3)), History((), Repeats(3))
    values = rng.normal(0, 0.3, (40, 3)) + 10 * rng.rand(40, 1)
    for row in values:
        first = len(study.trials)
        for value in row:
            attrs = {} if len(study.trials) == first else {REPEAT_OF: first}
            study.add_trial(
                create_trial(
                    params={"x": 0.5}, distributions=space, value=float(value), user_attrs=attrs
                )
            )
            pieces.refresh(study)
    once.refresh(study)
    freedom, (variance,) = once.noise()
    assert (freedom, [variance]) == pieces.noise() and freedom == 80
    assert variance == pytest.approx(values.var(axis=1, ddof=1).mean()) and math.sqrt(
        variance
    ) == pytest.approx(0.3, rel=0.2)
    assert [VAGUE.with_estimate(0.01, n).width for n in (0, 8, 80)] == pytest.approx(
        [2.0, 0.485, 0.158], abs=1e-3
    )
    logs = [VAGUE.with_estimate(0.01, n).log for n in (0, 8, 80)]
    assert logs[0] == VAGUE.log and [abs(a - math.log(0.01)) for a in logs] == sorted(
        (abs(a - math.log(0.01)) for a in logs), reverse=True
    )
    assert NONE.with_estimate(0.01, 8) == NONE and VAGUE.with_estimate(0.0, 8).log < -5


def test_a_mean_of_repeats_has_less_noise() -> None:
    shares = [
        gp_observations.share_of_noise(Repeats(4, aggregate))
        for aggregate in ("mean", "median", "min")
    ]
    assert (
        shares == pytest.approx([0.25, math.pi / 8, 1.0])
        and gp_observations.share_of_noise(Repeats()) == 1
    )


def test_the_fidelity_of_a_level_is_the_logarithm_of_its_step() -> None:
    levels = np.array([1, 3, 9, FULL])
    assert gp_observations.fidelity(levels, 1, 27) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert all(a < b for a, b in itertools.pairwise(gp_observations.fidelity(levels, 1, 27)))


def final_means(loop: SearchLoop, variance: float) -> dict[int, float]:
    model = GpModel(SamplerContext(loop.space), 1, deterministic_objective=False)
    return model.final_means(loop.store.study, variance)


def test_the_mean_of_an_ended_sweep_smooths_noise_and_keeps_clear_values(
    make_space: Any, tmp_path: Path
) -> None:
    noise = dict(enumerate(np.random.default_rng(0).normal(size=40) * 0.2))

    def value(params: Any) -> float:
        return float((params["x"] - 0.3) ** 2 + (params["y"] - 0.6) ** 2)

    space = make_space(NUMBERS, algorithm="random", scheduler=NO_STOPS, max_trials=40)
    loop = SearchLoop.open(tmp_path, space)
    count = itertools.count()
    trials = run(loop, 40, lambda params: {"loss": value(params) + noise[next(count)]})
    true = {trial.number: value(trial.params) for trial in trials}
    values = {number: result.value for number, result in loop.store.results().items()}
    means = final_means(loop, variance=0.04)
    assert means.keys() == values.keys()
    smooth = np.corrcoef([means[n] for n in true], list(true.values()))[0, 1]
    noisy = np.corrcoef([values[n] or 0.0 for n in true], list(true.values()))[0, 1]
    assert smooth > noisy + 0.2
    exact = final_means(loop, variance=0.0)
    assert min(exact, key=exact.__getitem__) == loop.store.winner()


def test_equal_values_or_no_dimensions_have_no_means(make_space: Any, tmp_path: Path) -> None:
    for body, folder in ((NUMBERS, "equal"), ("params: {x: 1}", "none")):
        (tmp_path / folder).mkdir()
        space = make_space(body, algorithm="random", scheduler=NO_STOPS, max_trials=1)
        loop = SearchLoop.open(tmp_path / folder, space)
        run(loop, 1, lambda params: {"loss": 1.0})
        assert final_means(loop, variance=0.1) == {}


def test_means_exist_for_conditional_dimensions(make_space: Any, tmp_path: Path) -> None:
    space = make_space(CONDITIONS, algorithm="random", scheduler=NO_STOPS, max_trials=25)
    loop = SearchLoop.open(tmp_path, space)
    run(loop, 25, conditional)
    means = final_means(loop, variance=1e-6)
    assert len(means) == 25 and min(means, key=means.__getitem__) == loop.store.winner()
