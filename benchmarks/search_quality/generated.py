"""Generated tasks: random functions with known optima, artificial learning curves, and costs.

A task's name is a family and a number, such as `mixed_3`. The number is the seed of everything that
is random in the task. All terms of a function are at least 0, and each is 0 at one configuration,
so the optimum is 0.

The families, and what is difficult in them:

- `smooth`: 2 to 12 floats, some of them logarithmic. Few matter much, and there is a second basin.
- `mixed`: 4 to 10 floats, integers, ordered numbers and categories. A category also moves the
  optimum of other dimensions.
- `conditional`: an option of a choice opens dimensions of its own, and one of these may be a choice
  that opens more.
- `rough`: 6 to 10 dimensions as in `mixed`, and values jump as in ensembles of trees. Early ranks
  mislead, as with few rows.
- `failing`: as `mixed`, and a part of the space near the optimum fails during training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.search_quality.axes import Axis, Config, draw, ordered, place

FAMILIES = ("smooth", "mixed", "conditional", "rough", "failing")
STEPS = 27
_STEP = np.arange(1, STEPS + 1)


@dataclass(frozen=True)
class Generated:
    """A generated task.

    Attributes:
        axes: Dimensions by name.
        curve: Function that returns a configuration's values at steps 1 to 27. The values are not
            numbers from the step at which it fails.
        cost: Function that returns the seconds of each step.
        typical: The last value of a median random configuration that does not fail.
        typical_cost: The seconds of all steps of a median random configuration.
        best: The configuration with the value 0 at the last step.
    """

    axes: Mapping[str, Axis]
    curve: Callable[[Config], np.ndarray]
    cost: Callable[[Config], np.ndarray]
    typical: float
    typical_cost: float
    best: Config


def generate(family: str, seed: int) -> Generated:
    """Return the task of a family with a seed."""
    rng = np.random.RandomState([FAMILIES.index(family), seed])
    axes = AXES[family](rng)
    best = draw(axes, rng)
    landscape = _Landscape(axes, best, rng, boxes=300 if family == "rough" else 0)
    some = [draw(axes, rng) for _ in range(1001)]
    training = _Training(axes, best, rng, misleading=family == "rough", fails=False)
    while (
        family == "failing"
        and not 0.05 < np.mean([np.isnan(training(config)[-1]) for config in some[:200]]) < 0.3
    ):
        training = _Training(axes, best, rng, misleading=False, fails=True)

    def curve(config: Config) -> np.ndarray:
        return landscape(config) + training(config)

    last = [float(curve(config)[-1]) for config in some]
    spent = float(np.median([training.cost(config).sum() for config in some]))
    return Generated(axes, curve, training.cost, float(np.nanmedian(last)), spent, best)


# ---- dimensions


def _number(rng: np.random.RandomState) -> Axis:
    """Return a dimension of numbers."""
    return [
        lambda: Axis("float", 0.0, 1.0),
        lambda: Axis("float", 10.0 ** -rng.randint(3, 6), 1.0, log=True),
        lambda: Axis("int", 1, int(rng.randint(4, 17))),
        lambda: Axis("int", 16, 1024, log=True),
        lambda: ordered(*(2**i for i in range(3, 3 + rng.randint(3, 7)))),
    ][rng.randint(5)]()


def _smooth(rng: np.random.RandomState) -> dict[str, Axis]:
    size = int(rng.randint(2, 13))
    return {
        f"x{i}": Axis("float", 1e-4, 1.0, log=True) if rng.rand() < 0.4 else Axis("float", 0.0, 1.0)
        for i in range(size)
    }


def _mixed(rng: np.random.RandomState, fewest: int = 4, most: int = 10) -> dict[str, Axis]:
    size = int(rng.randint(fewest, most + 1))
    choices = int(rng.randint(1, 3))
    axes = {f"c{i}": Axis("choice", 0, int(rng.randint(1, 5))) for i in range(choices)}
    return axes | {f"x{i}": _number(rng) for i in range(size - choices)}


def _conditional(rng: np.random.RandomState) -> dict[str, Axis]:
    options = int(rng.randint(2, 5))
    axes = {"kind": Axis("choice", 0, options - 1)} | {
        f"x{i}": _number(rng) for i in range(rng.randint(1, 4))
    }
    for option in range(options):
        for i in range(rng.randint(1, 4)):
            axes[f"k{option}x{i}"] = _with(_number(rng), "kind", option)
    # The first option has a choice of its own, and the choice's last option opens one more
    # dimension.
    axes["k0c"] = _with(Axis("choice", 0, 2), "kind", 0)
    axes["k0c2x"] = _with(_number(rng), "k0c", 2)
    return axes


def _with(axis: Axis, choice: str, option: int) -> Axis:
    return Axis(axis.kind, axis.low, axis.high, axis.log, axis.options, (choice, (option,)))


AXES: dict[str, Callable[[np.random.RandomState], dict[str, Axis]]] = {
    "smooth": _smooth,
    "mixed": _mixed,
    "conditional": _conditional,
    "rough": lambda rng: _mixed(rng, 6, 10),
    "failing": _mixed,
}


# ---- values


class _Landscape:
    """The last value of a configuration's curve."""

    def __init__(
        self, axes: Mapping[str, Axis], best: Config, rng: np.random.RandomState, boxes: int
    ):
        self.axes = {name: a for name, a in axes.items() if a.kind != "choice"}
        self.choices = {name: a for name, a in axes.items() if a.kind == "choice"}
        size = len(self.axes)
        self.names = {name: i for i, name in enumerate(self.axes)}
        # The best values of dimensions that are inactive in the best configuration are random, too.
        self.center = np.array(
            [place(a, best[n]) if n in best else rng.rand() for n, a in self.axes.items()]
        )
        self.weight = 10.0 ** rng.uniform(-1.5, 0.3, size)
        self.power = rng.uniform(1.2, 2.2)
        self.mix = np.eye(size) + 0.25 * rng.randn(size, size) * (rng.rand(size, size) < 0.3)
        self.offset = {n: rng.uniform(0.03, 0.4, int(a.high) + 1) for n, a in self.choices.items()}
        self.shift = {
            n: 0.25 * rng.randn(int(a.high) + 1, size) * (rng.rand(size) < 0.5)
            for n, a in self.choices.items()
        }
        for name in self.choices:
            if name in best:
                self.offset[name][best[name]] = 0
                self.shift[name][best[name]] = 0
        self.second, self.depth = rng.rand(size), rng.uniform(0.05, 0.3)
        self.low, self.width = rng.rand(boxes, size), rng.uniform(0.3, 0.9, (boxes, size))
        inside = np.all((self.center >= self.low) & (self.center < self.low + self.width), axis=1)
        self.height = np.where(inside, 0, rng.exponential(4.0 / max(boxes, 1), boxes))

    def __call__(self, config: Config) -> float:
        at, active = np.array(self.center), np.zeros(len(self.center))
        for name, i in self.names.items():
            if name in config:
                at[i], active[i] = place(self.axes[name], config[name]), 1
        moved = self.center + sum(
            (self.shift[n][config[n]] for n in self.choices if n in config), np.zeros(len(at))
        )
        value = self._bowl((at - np.clip(moved, 0, 1)) * active)
        value = min(value, self.depth + 1.5 * self._bowl((at - self.second) * active))
        value += sum(float(self.offset[n][config[n]]) for n in self.choices if n in config)
        if len(self.height):
            inside = np.all((at >= self.low) & (at < self.low + self.width), axis=1)
            value += float(self.height @ inside)
        return value

    def _bowl(self, away: np.ndarray) -> float:
        return float(self.weight @ np.abs(self.mix @ away) ** self.power / self.weight.sum() ** 0.5)


class _Training:
    """Learning curves of a generated task, as distances above the last value, and the seconds of a
    step.
    """

    def __init__(
        self,
        axes: Mapping[str, Axis],
        best: Config,
        rng: np.random.RandomState,
        misleading: bool,
        fails: bool,
    ):
        self.axes = {name: a for name, a in axes.items() if a.kind != "choice" and a.when is None}
        names = list(self.axes)
        self.fast, self.wide, self.rises, self.costly = (
            names[rng.randint(len(names))] for _ in range(4)
        )
        self.best = {name: place(self.axes[name], best[name]) for name in names}
        self.speed, self.spread = rng.uniform(0.2, 0.6), rng.uniform(0.3, 1.2)
        self.slope, self.rise = rng.uniform(-0.15, 0.6), rng.uniform(0, 0.3) * (rng.rand() < 0.5)
        self.growth, self.second = rng.uniform(0.5, 2.5), rng.uniform(1, 10)
        self.misleading = rng.uniform(0.3, 0.8) if misleading else 0.0
        self.phase, self.waves = rng.rand(len(names)) * 2 * math.pi, rng.uniform(1, 4, len(names))
        self.fails, self.share, self.side = fails, rng.uniform(0.1, 0.25), rng.choice([-1, 1])

    def __call__(self, config: Config) -> np.ndarray:
        u = {name: place(a, config[name]) for name, a in self.axes.items()}
        speed = self.speed + self.slope * u[self.fast]
        above = (
            (self.spread * (0.5 + u[self.wide]))
            * (_STEP**-speed - STEPS**-speed)
            / (1 - STEPS**-speed)
        )
        above = (
            above
            + self.rise
            * max(0.0, u[self.rises] - self.best[self.rises])
            * np.maximum(0, (_STEP - 15) / (STEPS - 15)) ** 2
        )
        if self.misleading:
            wave = (
                np.mean(np.sin(self.phase + self.waves * math.pi * np.array(list(u.values())))) + 1
            )
            above = above + self.misleading * wave * (1 - (_STEP / STEPS) ** 0.4)
        if self.fails:
            # A configuration fails if it is beyond the best value in two dimensions, and the
            # earlier, the farther it is.
            beyond = min(self.side * (u[n] - self.best[n]) for n in (self.fast, self.wide))
            if beyond > 0.02:
                above = np.where(max(2, STEPS * (1 - beyond / self.share)) <= _STEP, np.nan, above)
        return above

    def cost(self, config: Config) -> np.ndarray:
        """Return the seconds of each step."""
        return np.full(
            STEPS,
            self.second
            * math.exp(self.growth * place(self.axes[self.costly], config[self.costly])),
        )
