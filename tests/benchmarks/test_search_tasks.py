"""The tasks of the benchmark of search quality: recorded, fitted and generated ones, and their
split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from optuna.pruners import MedianPruner

from benchmarks.search_quality import generated, lcbench
from benchmarks.search_quality.axes import Axis, draw
from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.peers import Optuna, Random, Ray, RungStudies
from benchmarks.search_quality.replay import Searcher, replay
from benchmarks.search_quality.split import DEVELOPMENT, HELD
from benchmarks.search_quality.tasks import NOISE, STEPS, Task, task

KEPT = {167168, 189873, 189906}  # for a judgement by others
NEW = [
    name for name in (*DEVELOPMENT, *HELD) if name.split("_")[0] in ("lcbench", *generated.FAMILIES)
]


def test_no_task_is_in_both_halves_and_the_kept_ones_are_in_none() -> None:
    assert len({*DEVELOPMENT, *HELD}) == len(DEVELOPMENT) + len(HELD)
    assert not {name.partition("+")[0] for name in DEVELOPMENT} & {
        name.partition("+")[0] for name in HELD
    }
    assert not KEPT & {*lcbench.DEVELOPMENT, *lcbench.HELD} and not {*lcbench.DEVELOPMENT} & {
        *lcbench.HELD
    }
    assert {int(i) for i in lcbench.network()["instances"]} == {*lcbench.DEVELOPMENT, *lcbench.HELD}
    for half, instances, numbers in (
        (DEVELOPMENT, lcbench.DEVELOPMENT, range(100)),
        (HELD, lcbench.HELD, range(100, 200)),
    ):
        names_in_parts = [name.partition("+")[0].split("_") for name in half]
        assert {int(parts[1]) for parts in names_in_parts if parts[0] == "lcbench"} <= {*instances}
        assert {int(parts[1]) for parts in names_in_parts if parts[0] in generated.FAMILIES} <= {
            *numbers
        }


@pytest.mark.parametrize("instance", sorted(KEPT))
def test_kept_tasks_cannot_be_loaded(instance: Any) -> None:
    with pytest.raises(ValueError, match=str(instance)):
        task(f"lcbench_{instance}")


@pytest.mark.parametrize("name", NEW)
def test_a_task_loads_and_its_curves_are_sane(name: Any) -> None:
    t, rng = task(name), np.random.RandomState(1)
    curves = np.array([t.curve(draw(t.axes, rng)) for _ in range(60)])
    fails = name.startswith("failing")
    assert curves.shape == (60, t.steps) and t.steps == (
        52 if name.startswith("lcbench") else STEPS
    )
    assert np.isnan(curves).any() == fails and not np.isnan(curves[:, 0]).any()
    regrets = (curves - t.optimum) / (t.typical - t.optimum)
    last = regrets[:, -1][~np.isnan(regrets[:, -1])]
    assert np.nanmin(regrets) > -0.01 and 0.25 < (last < 1).mean() < 0.75
    assert last.std() > 0.05 and np.nanmedian(regrets[:, 0]) > 1
    seconds = t.cost_of(draw(t.axes, rng))
    assert (
        seconds.shape == (t.steps,)
        and seconds.min() > 0
        and 0.02 < seconds.sum() / t.typical_cost < 50
    )
    assert (t.noise > 0) == name.endswith("+noise")


@pytest.mark.parametrize("family", generated.FAMILIES)
def test_generated_spaces_vary_and_best_configuration_is_optimum(family: Any) -> None:
    tasks = [generated.generate(family, seed) for seed in range(6)]
    for g in tasks:
        assert g.curve(g.best)[-1] == pytest.approx(0, abs=1e-9) and min(g.curve(g.best)) >= -1e-9
        assert 2 <= len(g.axes) <= 20
    kinds = {a.kind for g in tasks for a in g.axes.values()}
    assert kinds == ({"float"} if family == "smooth" else {"float", "int", "choice", "ordered"})
    assert any(a.when for g in tasks for a in g.axes.values()) == (family == "conditional")
    again = generated.generate(family, 0)
    assert again.best == tasks[0].best and again.typical == tasks[0].typical


def test_noise_depends_on_the_configuration_the_step_and_the_seed() -> None:
    first, again, other = task("branin+noise", 3), task("branin+noise", 3), task("branin+noise", 4)
    config = {"x": 0.25, "y": 0.75}
    assert (first.noise_of(config) == again.noise_of({"y": 0.75, "x": 0.25})).all()
    assert (first.noise_of(config) != other.noise_of(config)).all() and (
        first.noise_of(config) != first.noise_of({"x": 0.25, "y": 0.5})
    ).all()
    many = np.array([first.noise_of({"x": x, "y": 0.5}) for x in np.linspace(0, 1, 200)])
    assert many.std() == pytest.approx(NOISE * (first.typical - first.optimum), rel=0.05)
    assert not task("branin").noise_of(config).any()


class Listed:
    """Starts listed configurations in turn, and keeps what it hears."""

    def __init__(self, configs: Any) -> None:
        self.configs = configs
        self.starts = 0
        self.failed: list[int] = []
        self.seen: dict[tuple[int, int], float] = {}
        self.paid: dict[int, float] = {}

    def begin(self) -> Any:
        self.starts += 1
        return (
            (self.starts - 1, self.configs[self.starts - 1])
            if self.starts <= len(self.configs)
            else None
        )

    def report(self, trial: int, step: int, value: float) -> bool:
        self.seen[trial, step] = value
        return True

    def end(self, trial: int) -> None:
        pass

    def fail(self, trial: int) -> None:
        self.failed.append(trial)

    def pay(self, trial: int, seconds: float) -> None:
        self.paid[trial] = self.paid.get(trial, 0) + seconds


def _small(curve: Any, **more: Any) -> Task:
    return Task(
        "small",
        {"x": Axis("int", 0, 9)},
        lambda c: np.array(curve(c["x"]), dtype=float),
        0.0,
        10.0,
        steps=3,
        **more,
    )


def test_the_regret_is_that_of_the_true_value_of_the_best_seen_value() -> None:
    t = _small(lambda x: [5, 4, x], noise=3.0)
    searcher = Listed([{"x": x} for x in range(4)])
    regret = replay(t, searcher, (4,), workers=1)
    trial, step = min(searcher.seen, key=searcher.seen.__getitem__)
    assert regret == [t.curve({"x": trial})[step - 1] / 10]
    assert any(searcher.seen[i, 3] != i for i in range(4))


def test_a_budget_of_costs_is_spent_in_seconds() -> None:
    t = _small(lambda x: [9, 8, x], cost=lambda c: np.full(3, 1.0 + c["x"]), typical_cost=6.0)
    searcher = Listed([{"x": 5}, {"x": 2}, {"x": 0}])
    assert replay(t, searcher, (1, 3.5, 5), workers=2, by_cost=True) == [0.9, 0.2, 0.0]
    assert searcher.paid == {0: 18, 1: 9, 2: 3}


SEARCHERS: dict[str, Callable[[Task], Searcher]] = {
    "sweeps tpe": lambda t: Ours(t, 0, "tpe"),
    "sweeps gp": lambda t: Ours(t, 0, "gp"),
    "sweeps random": lambda t: Ours(t, 0, "random"),
    "random": lambda t: Random(t, 0),
    "optuna": lambda t: Optuna(t, 0, MedianPruner()),
    "ray": lambda t: Ray(t, 0, "random"),
    "ray, optunasearch": lambda t: Ray(t, 0, "optuna"),
    "ray, tpe per rung": lambda t: RungStudies(t, 0),
}


@pytest.mark.parametrize("name", ["conditional_0", "failing_0+noise", "lcbench_3945"])
@pytest.mark.parametrize("searcher", SEARCHERS)
def test_searchers_replay_conditions_failures_and_52_steps(searcher: Any, name: str) -> None:
    regret = replay(task(name), SEARCHERS[searcher](task(name)), (1, 3))
    assert len(regret) == 2 and regret[0] >= regret[1] - 1 and all(-0.01 < r < 20 for r in regret)
