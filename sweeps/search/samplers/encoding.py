"""Encode the dimensions of a space as arrays for a model.

The value of a numeric dimension is encoded as a place: a number between 0 and 1. A category is encoded as its index. In a logarithmic
dimension, the place is a linear function of the value's logarithm. In a dimension with a step, each value is in the middle of an interval
that is one step wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution


class Axes:
    """Encoding of dimensions.

    Args:
        space: Distributions by name. A distribution with a single value is not allowed.

    Attributes:
        space: The argument.
        names: Names of the dimensions. Arrays have one column for each dimension, in this order. Values are in Optuna's internal
            representation.
        choices: Number of options of each categorical dimension, by column.
        numbers: Indices of the columns of the numeric dimensions.
        step: Step of each numeric dimension; 0 for a dimension without a step.
        log: True for each logarithmic numeric dimension.
        bounds: (numbers, 2) lower and upper bounds of the numeric dimensions.
        low: Lower end of each numeric dimension: the lower bound minus half a step. For a logarithmic dimension, the logarithm of this end.
        width: Distance from the lower end to the upper end of each numeric dimension. The upper end is the upper bound plus half a step.
    """

    def __init__(self, space: Mapping[str, BaseDistribution]):
        self.space, self.names = space, list(space)
        every: Sequence[Any] = list(space.values())
        self.choices = {i: len(d.choices) for i, d in enumerate(every) if isinstance(d, CategoricalDistribution)}
        self.numbers = [i for i in range(len(every)) if i not in self.choices]
        numeric = [every[i] for i in self.numbers]
        self.step = np.array([d.step or 0.0 for d in numeric], dtype=float)
        self.log = np.array([d.log for d in numeric], dtype=bool)
        self.bounds = np.array([(d.low, d.high) for d in numeric], dtype=float).reshape(-1, 2)
        ends = self.bounds + np.outer(self.step / 2, (-1, 1))
        ends[self.log] = np.log(ends[self.log])
        self.low, self.width = ends[:, 0], ends[:, 1] - ends[:, 0]

    def unit(self, values: np.ndarray) -> np.ndarray:
        """Convert (n, numbers) values of the numeric dimensions to (n, numbers) places on [0, 1]."""
        values = values.astype(float)
        values[:, self.log] = np.log(values[:, self.log])
        places: np.ndarray = (values - self.low) / self.width
        return places

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Convert (n, numbers) places on [0, 1] to (n, numbers) values, rounded to the steps and clipped to the bounds."""
        values = self.low + unit * self.width
        values[:, self.log] = np.exp(values[:, self.log])
        stepped = self.step > 0
        low = self.bounds[stepped, 0]
        values[:, stepped] = low + np.round((values[:, stepped] - low) / self.step[stepped]) * self.step[stepped]
        clipped: np.ndarray = np.clip(values, self.bounds[:, 0], self.bounds[:, 1])
        return clipped

    def places(self, values: np.ndarray) -> np.ndarray:
        """Convert (n, dimensions) values to (n, dimensions) places. The index of a category does not change."""
        places = values.astype(float)
        places[:, self.numbers] = self.unit(places[:, self.numbers])
        return places

    def on_steps(self, places: np.ndarray) -> np.ndarray:
        """Move (n, dimensions) places to the nearest steps. Places in dimensions without a step do not change."""
        moved = places.copy()
        moved[:, self.numbers] = self.unit(self.values(places[:, self.numbers]))
        return moved

    def anywhere(self, rng: np.random.RandomState, size: int) -> np.ndarray:
        """Draw (size, dimensions) places uniformly from the space."""
        places = rng.rand(size, len(self.names))
        for i, count in self.choices.items():
            places[:, i] = np.floor(places[:, i] * count)
        return self.on_steps(places)

    def middle(self, rng: np.random.RandomState) -> np.ndarray:
        """Return one (1, dimensions) place: the middle of each numeric dimension, and a random option of each categorical dimension."""
        place = self.anywhere(rng, 1)
        place[:, self.numbers] = 0.5
        return self.on_steps(place)

    def external(self, place: np.ndarray) -> dict[str, Any]:
        """Convert one (dimensions,) place to values by dimension, in Optuna's external representation."""
        values = place.astype(float)
        values[self.numbers] = self.values(values[None, self.numbers])[0]
        return {name: self.space[name].to_external_repr(value) for name, value in zip(self.names, values.tolist(), strict=True)}
