"""Sampling inside a cell; also the watch on the parts of Optuna's TPE that are private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution

from sweeps.core.trial import State
from sweeps.search.search_loop import SearchLoop
from sweeps.study.distributions import distribution_of, suggest
from sweeps.study.events import TrialReported
from tests.study.test_study_store import reports

ALL_DOMAINS = """
params:
  a: {uniform: [0.5, 1.0]}
  b: {quniform: [0.0, 1.0, 0.25]}
  c: {loguniform: [1e-4, 1e-1]}
  d: {qloguniform: [1, 1000, 5]}
  e: {randint: [1, 9]}
  f: {qrandint: [1, 21, 5]}
  g: {lograndint: [1, 1000]}
  h: {qlograndint: [8, 512, 8]}
  i: {randn: [10, 2]}
  j: {qrandn: [10, 2, 0.5]}
  k: {choice: [x, 1, null, true]}
  l: {choice: [[1, 2], [3]]}
"""


def test_every_domain_has_a_distribution_and_values_within_its_bounds(make_space: Any) -> None:
    space = make_space(ALL_DOMAINS.replace("qloguniform: [1,", "qloguniform: [5,"))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(50):
        asked = study.ask()
        p = space.fill(lambda d, asked=asked: suggest(asked, d))["params"]
        assert 0.5 <= p["a"] <= 1 and p["b"] in (0, 0.25, 0.5, 0.75, 1) and 1e-4 <= p["c"] <= 1e-1
        assert (
            p["d"] % 5 == 0
            and 5 <= p["d"] <= 1000
            and p["e"] in range(1, 9)
            and p["f"] in (1, 6, 11, 16, 21)
        )
        assert 1 <= p["g"] < 1000 and p["h"] % 8 == 0 and 8 <= p["h"] <= 512
        assert 0 < p["i"] < 20 and (p["j"] / 0.5) % 1 == 0
        assert p["k"] in ("x", 1, None, True) and p["l"] in ([1, 2], [3])
    assert isinstance(distribution_of(space.dimensions[-1]), CategoricalDistribution)


def test_tpe_conditions_on_the_cell(make_space: Any, tmp_path: Path) -> None:
    """The optimum of `x` is at 0.2 in one cell and at 0.8 in the other; late suggestions follow
    their own cell.
    """
    space = make_space(
        "preprocessor: {grid: [StandardScaler, MinMaxScaler]}\nparams: {x: {uniform: [0.0, 1.0]}}",
        80,
        scheduler="{name: none}",
    )
    loop = SearchLoop.open(tmp_path, space)
    late: dict[str, list[float]] = {"StandardScaler": [], "MinMaxScaler": []}
    best = {"StandardScaler": 0.2, "MinMaxScaler": 0.8}
    while trial := loop.ask():
        x = trial.params["x"]
        loop.store.append(
            TrialReported(1.0, trial.number, reports((x - best[trial.chain]) ** 2), seconds=0.0)
        )
        loop.store.end(trial.number, State.COMPLETE)
        if trial.number >= 50:
            late[trial.chain].append(abs(x - best[trial.chain]))
    for chain, distances in late.items():
        assert sorted(distances)[len(distances) // 2] < 0.15, (chain, distances)
