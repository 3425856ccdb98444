"""Encode the dimensions of a space for a model: numbers as places on [0, 1], categories by their index.

A logarithmic dimension is encoded by its logarithm. A value with a step stands for the whole width of the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution


class Axes:
    """Encoding of dimensions.

    Args:
        space: Distributions by name, none of them with a single value.

    Attributes:
        names: Names of the dimensions. An array of values has a column for each, in Optuna's internal representation.
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
        """Return the (n, numbers) places on [0, 1] of (n, numbers) values."""
        values = values.astype(float)
        values[:, self.log] = np.log(values[:, self.log])
        places: np.ndarray = (values - self.low) / self.width
        return places

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Return the (n, numbers) values of places on [0, 1], rounded to whole steps where there are steps."""
        found = self.low + unit * self.width
        found[:, self.log] = np.exp(found[:, self.log])
        stepped = self.step > 0
        low = self.bounds[stepped, 0]
        found[:, stepped] = low + np.round((found[:, stepped] - low) / self.step[stepped]) * self.step[stepped]
        clipped: np.ndarray = np.clip(found, self.bounds[:, 0], self.bounds[:, 1])
        return clipped

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the (n, dimensions) places of (n, dimensions) values."""
        found = values.astype(float)
        found[:, self.numbers] = self.unit(found[:, self.numbers])
        return found

    def on_steps(self, places: np.ndarray) -> np.ndarray:
        """Return (n, dimensions) places, moved to the nearest step where there are steps."""
        found = places.copy()
        found[:, self.numbers] = self.unit(self.values(places[:, self.numbers]))
        return found

    def anywhere(self, rng: np.random.RandomState, size: int) -> np.ndarray:
        """Draw (size, dimensions) places uniformly."""
        found = rng.rand(size, len(self.names))
        for i, count in self.choices.items():
            found[:, i] = np.floor(found[:, i] * count)
        return self.on_steps(found)

    def middle(self, rng: np.random.RandomState) -> np.ndarray:
        """Return the (1, dimensions) place in the middle of the numbers. The option of a choice is drawn."""
        found = self.anywhere(rng, 1)
        found[:, self.numbers] = 0.5
        return self.on_steps(found)

    def external(self, place: np.ndarray) -> dict[str, Any]:
        """Return the values by dimension, as a trial has them, of a (dimensions,) place."""
        values = place.astype(float)
        values[self.numbers] = self.values(values[None, self.numbers])[0]
        return {name: self.space[name].to_external_repr(value) for name, value in zip(self.names, values.tolist(), strict=True)}
