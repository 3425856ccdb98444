"""Encode the values of trials as arrays for a model.

A place is the encoded value of a dimension. In a numeric dimension, the place is a number between 0
and 1. In a categorical dimension, the place is the index of the category. In a logarithmic
dimension, the place is a linear function of the value's logarithm. In a dimension with a step, each
value is in the middle of an interval that is one step wide. The place and the value of an inactive
dimension are NaN.
"""

import math
from collections.abc import Collection, Mapping

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from sweeps.space.model.conditions import Key


class Axes:
    """Conversion between the values of trials and places.

    The methods take and return arrays with one row for each trial and one column for each
    dimension. Values are in Optuna's internal representation. The shape (n, dimensions) means n
    rows and a column for each dimension. An array of shape (n, numbers) has only the columns of the
    numeric dimensions.

    Args:
        space: Optuna's distribution of each dimension, by name. A distribution with a single value
            is not allowed.
        ordered: Names of categorical dimensions whose options are in order. They are numeric
            dimensions here, and the index of an option is its value.

    Attributes:
        space: The argument `space`.
        names: Names of the dimensions, in the order of the columns.
        choices: Number of options of each categorical dimension that is not ordered, by the index
            of its column.
        numbers: Indices of the columns of the numeric dimensions.
        step: Step of each numeric dimension; 0 for a dimension without a step.
        log: One boolean for each numeric dimension: True if it is logarithmic.
        bounds: Lower and upper bounds of the numeric dimensions, an array of shape (numbers, 2).
        low: Value at place 0 of each numeric dimension: the lower bound minus half a step. For a
            logarithmic dimension, the logarithm of this value.
        width: Distance of each numeric dimension from place 0 to place 1. Place 1 is at the upper
            bound plus half a step.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], ordered: Collection[str] = ()):
        self.space = space
        self.names = list(space)
        self.choices: dict[int, int] = {}
        self.numbers: list[int] = []
        numeric: list[FloatDistribution | IntDistribution] = []
        for column, (name, distribution) in enumerate(space.items()):
            if isinstance(distribution, CategoricalDistribution):
                options = len(distribution.choices)
                if name not in ordered:
                    self.choices[column] = options
                    continue
                distribution = IntDistribution(0, options - 1)
            assert isinstance(distribution, (FloatDistribution, IntDistribution))
            self.numbers.append(column)
            numeric.append(distribution)
        self.step = np.array([d.step or 0.0 for d in numeric], dtype=float)
        self.log = np.array([d.log for d in numeric], dtype=bool)
        self.bounds = np.array([(d.low, d.high) for d in numeric], dtype=float).reshape(-1, 2)
        ends = self.bounds + np.outer(self.step / 2, (-1, 1))
        ends[self.log] = np.log(ends[self.log])
        self.low = ends[:, 0]
        self.width = ends[:, 1] - ends[:, 0]

    def row(self, params: Mapping[str, Key]) -> list[float]:
        """Return the values of a trial, given its parameters.

        The value of a dimension that the trial lacks is NaN.
        """
        return [
            d.to_internal_repr(params[name]) if name in params else math.nan
            for name, d in self.space.items()
        ]

    def unit(self, values: np.ndarray) -> np.ndarray:
        """Convert values of the numeric dimensions to places on [0, 1].

        Both arrays have the shape (n, numbers).
        """
        values = values.astype(float)
        values[:, self.log] = np.log(values[:, self.log])
        places: np.ndarray = (values - self.low) / self.width
        return places

    def values(self, unit: np.ndarray) -> np.ndarray:
        """Convert places on [0, 1] to values, rounded to the steps and clipped to the bounds.

        Both arrays have the shape (n, numbers).
        """
        values = self.low + unit * self.width
        values[:, self.log] = np.exp(values[:, self.log])
        stepped = self.step > 0
        low = self.bounds[stepped, 0]
        values[:, stepped] = (
            low + np.round((values[:, stepped] - low) / self.step[stepped]) * self.step[stepped]
        )
        clipped: np.ndarray = np.clip(values, self.bounds[:, 0], self.bounds[:, 1])
        return clipped

    def places(self, values: np.ndarray) -> np.ndarray:
        """Convert values to places.

        Both arrays have the shape (n, dimensions). In a categorical dimension, both are the index
        of the category.
        """
        places = values.astype(float)
        places[:, self.numbers] = self.unit(places[:, self.numbers])
        return places

    def on_steps(self, places: np.ndarray) -> np.ndarray:
        """Move each place to the nearest step.

        The arrays have the shape (n, dimensions). Places in dimensions without a step do not
        change.
        """
        moved = places.copy()
        moved[:, self.numbers] = self.unit(self.values(places[:, self.numbers]))
        return moved

    def anywhere(self, rng: np.random.RandomState, size: int) -> np.ndarray:
        """Draw places uniformly from the space: an array of shape (size, dimensions)."""
        places = rng.rand(size, len(self.names))
        for i, count in self.choices.items():
            places[:, i] = np.floor(places[:, i] * count)
        return self.on_steps(places)

    def middle(self, rng: np.random.RandomState) -> np.ndarray:
        """Return the middle of each numeric dimension and a random option of each other dimension.

        The result is an array of shape (1, dimensions).
        """
        place = self.anywhere(rng, 1)
        place[:, self.numbers] = 0.5
        return self.on_steps(place)

    def external(self, place: np.ndarray) -> dict[str, Key]:
        """Convert the places of one trial, an array of shape (dimensions,), to values.

        The values are in Optuna's external representation, by dimension name. Inactive dimensions
        are left out.
        """
        values = self.internal(place[None])[0].tolist()
        return {
            name: self.space[name].to_external_repr(value)
            for name, value in zip(self.names, values, strict=True)
            if not math.isnan(value)
        }

    def internal(self, places: np.ndarray) -> np.ndarray:
        """Convert places to values in Optuna's internal representation.

        Both arrays have the shape (n, dimensions).
        """
        values = places.astype(float)
        values[:, self.numbers] = self.values(values[:, self.numbers])
        return values
