"""Suggestions of each algorithm: in the cell, repeated after a crash, better with more trials."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.plugins import plugin_registry
from sweeps.core.trial import Action, State, Trial
from sweeps.search.samplers.sampler import SamplerContext
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialReported
from tests.search.decisions import decided
from tests.search.next_trial import next_trial
from tests.study.test_study_store import reports

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
params:
  x: {uniform: [0.0, 1.0]}
  y: {loguniform: [1e-3, 1.0]}
  depth: {randint: [1, 9]}
  kind: {choice: [a, b]}
  drop: {uniform: [0, 1], when: {params.kind: b}}
"""
NUMBERS = "params: {x: {uniform: [0.0, 1.0]}, y: {uniform: [0.0, 1.0]}}"
WITH_CMAES = pytest.param(
    "cmaes",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("cmaes") is None, reason="cmaes is not installed"
    ),
)
ALGORITHMS = ["tpe", "gp", "random", "qmc", "nsga2", WITH_CMAES]


def run(
    loop: SearchLoop, n: int, value: Any = lambda trial: trial.params["x"], concurrency: int = 3
) -> list[Trial]:
    """Begin n trials, `concurrency` side by side, that have their value at steps 1, 3 and 9."""
    running: list[Trial] = []
    asked: list[Trial] = []
    for _ in range(n):
        trial = next_trial(loop)
        asked.append(trial)
        running.append(trial)
        if len(running) == concurrency:
            end(loop, running.pop(0), value)
    for trial in running:
        end(loop, trial, value)
    return asked


def end(loop: SearchLoop, trial: Any, value: Any) -> None:
    for step in (1, 3, 9):
        loop.store.append(
            TrialReported(
                1.0, trial.number, reports(value(trial) + 1 / step, start=step), seconds=0.0
            ),
        )
        if step in loop.scheduler.rungs() and decided(loop, trial.number, step) is Action.STOP:
            loop.store.end(trial.number, State.PRUNED)
            return
    loop.store.end(trial.number, State.COMPLETE)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cells_are_even_and_what_is_not_active_is_absent(
    make_space: Any, tmp_path: Path, algorithm: Any
) -> None:
    asked = run(SearchLoop.open(tmp_path, make_space(BODY, 80, algorithm)), 24)
    assert sorted([t.chain for t in asked].count(chain) for chain in {t.chain for t in asked}) == [
        12,
        12,
    ]
    assert all(("drop" in t.params) == (t.params["kind"] == "b") for t in asked)
    assert {t.params["kind"] for t in asked} == {"a", "b"}


NESTED = """
preprocessor:
  - {grid: [StandardScaler, {UniformKBinsDiscretizer: {bins: {randint: [4, 17]}}}]}
params:
  x: {uniform: [0.0, 1.0]}
  y: {uniform: [0.0, 1.0]}
  kind: {choice: [a, {k: {uniform: [0.0, 1.0]}, sub: {choice: [c, {m: {randint: [1, 9]}}]}}]}
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nested_dimension_is_active_only_with_its_option(
    make_space: Any, tmp_path: Path, algorithm: Any
) -> None:
    space = make_space(NESTED, 60, algorithm, scheduler="{name: none}")
    if algorithm == "nsga2":
        space = dataclasses.replace(
            space, search=dataclasses.replace(space.search, options={"population_size": 6})
        )
    asked = run(SearchLoop.open(tmp_path, space), 60, lambda t: (t.params["x"] - 0.3) ** 2)
    assert all(t.params["kind"] == "a" or t.params["kind"].keys() == {"k", "sub"} for t in asked)
    assert all(("params.kind.choice.1.k" in t.labels) == (t.params["kind"] != "a") for t in asked)
    assert {d.name for d in space.always} == {
        "preprocessor.0",
        "params.x",
        "params.y",
        "params.kind",
    }


@pytest.mark.parametrize(
    "scheduler", ["{name: none}", "{name: asha, max_t: 9}", "{name: median, max_t: 9}"]
)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("algorithm", ["tpe", "gp"])
def test_a_model_comes_to_the_optimum(
    make_space: Any, tmp_path: Path, algorithm: str, scheduler: str
) -> None:
    space = make_space(NUMBERS, 60, algorithm, scheduler=scheduler)
    asked = run(
        SearchLoop.open(tmp_path, space),
        60,
        lambda t: (t.params["x"] - 0.3) ** 2 + (t.params["y"] - 0.8) ** 2,
    )
    late = sorted(math.hypot(t.params["x"] - 0.3, t.params["y"] - 0.8) for t in asked[20:40])
    assert late[4] < 0.15, "of twenty random ones the fifth is 0.28 away"


def test_gp_begins_in_the_middle_of_the_space(make_space: Any, tmp_path: Path) -> None:
    params = (
        "params: {x: {uniform: [0.0, 1.0]}, lr: {loguniform: [1.0e-5, 1.0e-1]}, k: {choice: [a, "
        "b]}}"
    )
    body = "preprocessor: {grid: [StandardScaler, none]}\n" + params
    first, second = run(SearchLoop.open(tmp_path, make_space(body, 2, "gp")), 2, lambda t: 1.0)
    assert (first.params["x"], first.params["lr"]) == (0.5, pytest.approx(1e-3)) and first.params[
        "k"
    ] in "ab"
    assert second.params["x"] != 0.5


def test_options_reach_the_sampler(make_space: Any) -> None:
    context = SamplerContext(make_space("params: {x: {uniform: [0.0, 1.0]}}", 9))

    def built(name: Any, **options: Any) -> Any:
        return plugin_registry.built_in("sampler", name)(**options).build(context)

    assert built("tpe", n_startup_trials=3, n_ei_candidates=5).candidates == 5
    assert [built("qmc", qmc_type=kind).sampler._qmc_type for kind in ("halton", "sobol")] == [
        "halton",
        "sobol",
    ]
    assert built("nsga2", population_size=7).sampler.population_size == 7


def test_qmc_fills_each_cell_with_the_same_even_sequence(make_space: Any, tmp_path: Path) -> None:
    body = (
        "preprocessor: {grid: [StandardScaler, MinMaxScaler]}\nparams: {x: {uniform: [0.0, 1.0]}}"
    )
    asked = run(SearchLoop.open(tmp_path, make_space(body, 64, "qmc")), 32)
    for chain in ("StandardScaler", "MinMaxScaler"):
        assert sorted(int(16 * t.params["x"]) for t in asked if t.chain == chain) == list(
            range(16)
        ), "one in each sixteenth"


def test_without_its_package_cmaes_is_refused_in_a_line(
    make_space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"sweeps-ray\[cmaes\]"):
        SearchLoop.open(tmp_path, make_space(NUMBERS, 20, "cmaes"))


# ---- history


# ---- the Gaussian process
