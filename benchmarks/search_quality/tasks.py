"""Tasks to search: functions with known optima and artificial learning curves, recorded learning
curves, and fitted ones.

Most tasks have 27 steps, so a multi-fidelity scheduler has rungs at 1, 3 and 9. The tasks of
LCBench have 52 steps, so there is a rung at 27, too. Smaller values are better.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.search_quality import generated, lcbench
from benchmarks.search_quality.axes import Axis, Config, draw

STEPS = 27
CURVES = Path(__file__).parent / "curves.npz"
# standard deviation of the noise, as a part of the distance between the optimum and a median random
# configuration
NOISE = 0.05


@dataclass(frozen=True)
class Task:
    """A task to search.

    Attributes:
        name: Name of the task.
        axes: Dimensions by name.
        curve: Function that returns a configuration's true values at each step. A value that is not
            a number says that the trial fails.
        optimum: The smallest value at any step.
        typical: The last value of a median random configuration.
        steps: Number of steps of a trial.
        noise: Standard deviation of the noise in the values that searchers see.
        seed: Seed of the noise.
        cost: Function that returns the seconds that each step of a configuration takes. None if
            every step takes one second.
        typical_cost: The seconds of all steps of a median random configuration.
    """

    name: str
    axes: Mapping[str, Axis]
    curve: Callable[[Config], np.ndarray]
    optimum: float
    typical: float
    steps: int = STEPS
    noise: float = 0.0
    seed: int = 0
    cost: Callable[[Config], np.ndarray] | None = None
    typical_cost: float = STEPS

    def regret(self, value: float) -> float:
        """Return the regret of a true value: 0 for the optimum, 1 for the last value of a median
        random configuration.
        """
        return (value - self.optimum) / (self.typical - self.optimum)

    def noise_of(self, config: Config) -> np.ndarray:
        """Return the noise at each step.

        The noise depends on the configuration, the step and the seed, and on nothing else.
        """
        if not self.noise:
            return np.zeros(self.steps)
        code = zlib.crc32(repr((self.seed, sorted(config.items()))).encode())
        return self.noise * np.random.RandomState(code).randn(self.steps)

    def cost_of(self, config: Config) -> np.ndarray:
        """Return the seconds that each step takes."""
        return np.ones(self.steps) if self.cost is None else self.cost(config)


# ---- functions


def _curve(final: float, spread: float, speed: float, dip: float = 0.0) -> np.ndarray:
    """Return a curve that falls to `final` by a power law.

    With a dip, the curve rises again at the end, as if the model overfits.
    """
    t = np.arange(1, STEPS + 1)
    fall = (t**-speed - STEPS**-speed) / (1 - STEPS**-speed)
    return final + spread * fall + dip * np.maximum(0, (t - 18) / 9) ** 2 - dip


def branin(c: Config) -> np.ndarray:
    x, y = 15 * c["x"] - 5, 15 * c["y"]
    f = (
        (y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x)
        + 10
    )
    return _curve(f, 10 + 40 * c["y"], 0.4 + c["x"])


A6 = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P6 = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(c: Config) -> np.ndarray:
    x = np.array([c[f"x{i}"] for i in range(6)])
    f = -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-np.sum(A6 * (x - P6) ** 2, axis=1)))
    return _curve(f, 0.5 + 2 * c["x0"], 0.3 + c["x1"])


def rosenbrock(c: Config) -> np.ndarray:
    x = np.array([4 * c[f"x{i}"] - 2 for i in range(4)])
    f = math.log1p(float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)))
    return _curve(f, 1 + 2 * abs(x[0]) / 2, 0.5)


def ackley(c: Config) -> np.ndarray:
    """Tune learning rates over several orders of magnitude.

    A high rate is fast at first and ends with a worse value.
    """
    x = np.array(
        [
            math.log10(c["lr"]) + 3,
            math.log10(c["decay"]) + 4,
            4 * c["drop"] - 1,
            (c["depth"] - 4) / 2,
            (c["width"] - 40) / 32,
        ]
    )
    f = (
        20
        - 20 * math.exp(-0.2 * math.sqrt(float(np.mean(x * x))))
        + math.e
        - math.exp(float(np.mean(np.cos(2 * math.pi * x / 4))))
    )
    return _curve(f, 6, 0.4 + 0.5 * (math.log10(c["lr"]) + 5) / 4)


BEST = ((0.2, 0.2, 0.5), (0.8, 0.3, 0.5), (0.5, 0.9, 0.2), (0.1, 0.7, 0.8))


def cells(c: Config) -> np.ndarray:
    """Search four cells. Each cell has a different optimum, and the third cell has the best."""
    best = BEST[c["cell"]]
    f = (
        math.sqrt(sum((c[n] - b) ** 2 for n, b in zip("xyz", best, strict=True)))
        + (0.1, 0.15, 0.0, 0.25)[c["cell"]]
    )
    return _curve(f, 0.5 + 0.5 * c["z"], 0.5 + c["x"])


def crossing(c: Config) -> np.ndarray:
    """Search a space in which slow configurations end best, so the first rung is misleading."""
    f = (
        2 * (c["x"] - 0.7) ** 2
        + 2 * (c["y"] - 0.4) ** 2
        + 0.3 * (1 - c["s"])
        + 0.5 * (c["z"] - 0.5) ** 2
    )
    return _curve(f, 0.8, 1.5 - 1.3 * c["s"])


def _floats(*names: str) -> dict[str, Axis]:
    return {name: Axis("float", 0.0, 1.0) for name in names}


FUNCTIONS: dict[str, tuple[Callable[[Config], np.ndarray], dict[str, Axis], float]] = {
    "branin": (branin, _floats("x", "y"), 0.397887),
    "hartmann6": (hartmann, _floats(*(f"x{i}" for i in range(6))), -3.32237),
    "rosenbrock4": (rosenbrock, _floats(*(f"x{i}" for i in range(4))), 0.0),
    "ackley5": (
        ackley,
        {
            "lr": Axis("float", 1e-5, 1e-1, log=True),
            "decay": Axis("float", 1e-6, 1e-2, log=True),
            "drop": Axis("float", 0.0, 1.0),
            "depth": Axis("int", 1, 9),
            "width": Axis("int", 8, 128),
        },
        0.0,
    ),
    "cells": (cells, {"cell": Axis("choice", 0, 3), **_floats("x", "y", "z")}, 0.0),
    "crossing": (crossing, _floats("x", "y", "z", "s"), 0.0),
}

# ---- tables


def _table(name: str) -> tuple[dict[str, Axis], np.ndarray]:
    """Return the dimensions and the curves of a recorded table.

    A dimension is the index of a value.
    """
    with np.load(CURVES) as file:
        curves = file[name].astype(np.float64)
    names = NAMES[name]
    return {
        n: Axis("int", 0, size - 1) for n, size in zip(names, curves.shape[:-1], strict=True)
    }, curves


NAMES = {
    "xgb_cancer": ("eta", "depth", "subsample", "weight", "columns"),
    "xgb_digits": ("eta", "depth", "subsample", "weight", "columns"),
    "xgb_california": ("eta", "depth", "subsample", "weight", "columns"),
    "mlp_digits": ("lr", "width", "batch", "decay", "dropout"),
    "mlp_california": ("lr", "width", "batch", "decay", "dropout"),
}


# ---- LCBench

LCBENCH = {
    "batch_size": Axis("int", 16, 512, log=True),
    "learning_rate": Axis("float", 1e-4, 1e-1, log=True),
    "momentum": Axis("float", 0.1, 0.99),
    "weight_decay": Axis("float", 1e-5, 0.1),
    "num_layers": Axis("int", 1, 5),
    "max_units": Axis("int", 64, 1024, log=True),
    "max_dropout": Axis("float", 0.0, 1.0),
}


def _lcbench(instance: int) -> Task:
    """Return the task that minimizes the error rate on an OpenML task."""
    weights = lcbench.network()
    row = weights["instances"].tolist().index(instance)
    lowest, typical, seconds = (
        float(weights[name][row]) for name in ("lowest", "typical", "seconds")
    )
    task = Task(
        f"lcbench_{instance}",
        LCBENCH,
        lambda c: lcbench.curve(instance, c),
        lowest,
        typical,
        lcbench.EPOCHS,
    )
    return dataclasses.replace(
        task, cost=lambda c: lcbench.seconds(instance, c), typical_cost=seconds
    )


# ---- all tasks


def names() -> list[str]:
    """Return the names of the functions and the recorded tables.

    `split` has the names of all tasks.
    """
    if not CURVES.exists():
        return [*FUNCTIONS]
    with np.load(CURVES) as file:
        return [*FUNCTIONS, *(name for name in NAMES if name in file.files)]


def task(name: str, seed: int = 0) -> Task:
    """Return the task with a name.

    If the name ends with `+noise`, searchers see noisy values; `seed` is the seed of this noise.
    """
    base, _, noise = name.partition("+")
    new = _task(base)
    if not noise:
        return new
    return dataclasses.replace(new, name=name, noise=NOISE * (new.typical - new.optimum), seed=seed)


@cache
def _task(name: str) -> Task:
    """Return the task with a name, without noise."""
    if name.startswith("lcbench_"):
        return _lcbench(int(name.removeprefix("lcbench_")))
    family, _, number = name.partition("_")
    if family in generated.FAMILIES:
        generator = generated.generate(family, int(number))
        return Task(
            name,
            generator.axes,
            generator.curve,
            0.0,
            generator.typical,
            cost=generator.cost,
            typical_cost=generator.typical_cost,
        )
    if name in FUNCTIONS:
        curve, axes, optimum = FUNCTIONS[name]
    else:
        axes, curves = _table(name)
        order = tuple(axes)

        def curve(c: Config) -> np.ndarray:
            return curves[tuple(c[n] for n in order)]

        optimum = float(curves.min())
    rng = np.random.RandomState(0)
    typical = float(np.median([curve(draw(axes, rng))[-1] for _ in range(2001)]))
    return Task(name, axes, curve, optimum, typical)
