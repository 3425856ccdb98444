"""The dimensions of a space as samplers calculate with them: numbers as places on [0, 1], categories by their index.

Of logarithmic numbers the logarithm counts; of what has steps, a step's whole width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution


class Axes:
    """Dimensions, and the way from their values to [0, 1].

    Args:
        space: distributions by name, none of a single value.

    Attributes:
        names: of the dimensions; an array of values has a column for each, as Optuna calculates with them (the index of a category).
    """

    def __init__(self, space: Mapping[str, BaseDistribution]):
        self.space, self.names = space, list(space)
        every: Sequence[Any] = list(space.values())
        self.choices = {i: len(d.choices) for i, d in enumerate(every) if isinstance(d, CategoricalDistribution)}
        self.numbers = [i for i in range(len(every)) if i not in self.choices]
        own = [every[i] for i in self.numbers]
        self.step = np.array([d.step or 0.0 for d in own], dtype=float)
        self.log = np.array([d.log for d in own], dtype=bool)
        self.bounds = np.array([(d.low, d.high) for d in own], dtype=float).reshape(-1, 2)
        ends = self.bounds + np.outer(self.step / 2, (-1, 1))
        ends[self.log] = np.log(ends[self.log])
        self.low, self.width = ends[:, 0], ends[:, 1] - ends[:, 0]

    def unit(self, values: np.ndarray) -> np.ndarray:
        """(n, numbers) places on [0, 1] of (n, numbers) values."""
        values = values.astype(float)
        values[:, self.log] = np.log(values[:, self.log])
        return (values - self.low) / self.width

    def values(self, unit: np.ndarray) -> np.ndarray:
        """(n, numbers) values, whole steps where there are steps, of places on [0, 1]."""
        found = self.low + unit * self.width
        found[:, self.log] = np.exp(found[:, self.log])
        stepped = self.step > 0
        low = self.bounds[stepped, 0]
        found[:, stepped] = low + np.round((found[:, stepped] - low) / self.step[stepped]) * self.step[stepped]
        return np.clip(found, self.bounds[:, 0], self.bounds[:, 1])

    def places(self, values: np.ndarray) -> np.ndarray:
        """(n, dimensions) places of (n, dimensions) values."""
        found = values.astype(float)
        found[:, self.numbers] = self.unit(found[:, self.numbers])
        return found

    def on_steps(self, places: np.ndarray) -> np.ndarray:
        """(n, dimensions) places, those of what has steps moved to the next one."""
        found = places.copy()
        found[:, self.numbers] = self.unit(self.values(places[:, self.numbers]))
        return found

    def anywhere(self, rng: np.random.RandomState, size: int) -> np.ndarray:
        """(size, dimensions) places, drawn evenly."""
        found = rng.rand(size, len(self.names))
        for i, count in self.choices.items():
            found[:, i] = np.floor(found[:, i] * count)
        return self.on_steps(found)

    def middle(self, rng: np.random.RandomState) -> np.ndarray:
        """(1, dimensions) place in the middle of the numbers; a choice has none, and is drawn."""
        found = self.anywhere(rng, 1)
        found[:, self.numbers] = 0.5
        return self.on_steps(found)

    def external(self, place: np.ndarray) -> dict[str, Any]:
        """The values, as a trial has them, of a (dimensions,) place."""
        values = place.astype(float)
        values[self.numbers] = self.values(values[None, self.numbers])[0]
        return {name: self.space[name].to_external_repr(value) for name, value in zip(self.names, values.tolist(), strict=True)}
