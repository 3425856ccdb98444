"""The replay of sweeps under a simulated clock, in small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.search_quality.axes import draw
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.peers import Random
from benchmarks.search_quality.replay import replay
from benchmarks.search_quality.tasks import FUNCTIONS, STEPS, names, task


class Scripted:
    """Stops every trial at a step."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.starts = 0
        self.heard: list[tuple[int, int]] = []
        self.running: set[int] = set()
        self.most = 0

    def begin(self) -> tuple[int, dict[str, Any]]:
        self.starts += 1
        self.running.add(self.starts)
        self.most = max(self.most, len(self.running))
        return self.starts, {"x": 0.1 * (self.starts % 10), "y": 0.5}

    def report(self, trial: int, step: int, value: float) -> bool:
        self.heard.append((trial, step))
        if step == self.at:
            self.running.remove(trial)
        return step < self.at

    def end(self, trial: int) -> None:
        self.running.discard(trial)

    def fail(self, trial: int) -> None:
        raise AssertionError("no task of these tests fails")


def test_trials_run_on_all_workers_and_steps_are_counted() -> None:
    searcher = Scripted(3)
    regrets = replay(task("branin"), searcher, budgets=(1, 2), workers=4)
    assert searcher.most == 4 and len(searcher.heard) == 2 * STEPS
    assert [step for trial, step in searcher.heard if trial == 1] == [1, 2, 3]
    assert regrets[1] <= regrets[0]


@pytest.mark.parametrize("name", names())
def test_generated_task_has_true_optimum_and_typical_value(name: Any) -> None:
    t, rng = task(name), np.random.RandomState(1)
    last = [t.regret(float(t.curve(draw(t.axes, rng))[-1])) for _ in range(300)]
    lowest = [t.regret(float(t.curve(draw(t.axes, rng)).min())) for _ in range(300)]
    assert min(lowest) >= -1e-6 and 0.35 < sum(r < 1 for r in last) / 300 < 0.65
    assert t.curve(draw(t.axes, rng)).shape == (STEPS,)


def test_the_optima_of_the_test_functions_are_where_they_are_documented() -> None:
    best = {
        "branin": {"x": (np.pi + 5) / 15, "y": 2.275 / 15},
        "rosenbrock4": {f"x{i}": 0.75 for i in range(4)},
        "ackley5": {"lr": 1e-3, "decay": 1e-4, "drop": 0.25, "depth": 4, "width": 40},
        "cells": {"cell": 2, "x": 0.5, "y": 0.9, "z": 0.2},
        "crossing": {"x": 0.7, "y": 0.4, "z": 0.5, "s": 1.0},
        "hartmann6": dict(
            zip(
                [f"x{i}" for i in range(6)],
                (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
                strict=True,
            )
        ),
    }
    assert set(best) == set(FUNCTIONS)
    for name, config in best.items():
        assert task(name).regret(float(task(name).curve(config)[-1])) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("algorithm", ["tpe", "gp"])
def test_a_replay_of_our_searcher_repeats_its_result(algorithm: str) -> None:
    first, second = (
        replay(task("branin"), Ours(task("branin"), 3, algorithm), budgets=(1, 2)) for _ in range(2)
    )
    assert (
        first == second
        and first[1] < replay(task("branin"), Random(task("branin"), 3), budgets=(1, 2))[0] + 1
    )
