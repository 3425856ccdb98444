"""Find dimensions that are active in many configurations at once, and ordered choices.

The functions are pure and do no I/O. A dimension is active if all its terms are true. The terms are
those of its `when`, and for a dimension inside an option, that the option is chosen. A term on an
inactive dimension is false. `sweeps.space.model.templates.fill` applies the same rules to one
configuration.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from sweeps.space import Dimension, Space
from sweeps.space.model.conditions import TESTS, Term
from sweeps.space.model.templates import conditions_of


def is_ordered(dimension: Dimension) -> bool:
    """Return True for a grid or a choice of at least three ordered numbers.

    They are in ascending or descending order, such as `choice: [16, 32, 64]`.
    """
    values = [option.value for option in dimension.options]
    if len(values) < 3 or any(type(value) not in (int, float) for value in values):
        return False
    pairs = [*itertools.pairwise(values)]
    return all(a < b for a, b in pairs) or all(a > b for a, b in pairs)


class Activity:
    """The conditions of a space.

    Args:
        space: The search space.
        names: Names of the dimensions that have a column, in the order of the columns. The other
            dimensions have a single value.
    """

    def __init__(self, space: Space, names: Sequence[str]):
        self._dimensions = {dimension.name: dimension for dimension in space.dimensions}
        self._terms = conditions_of(space.sections)
        self._column = {name: i for i, name in enumerate(names)}

    def is_active(self, values: np.ndarray) -> np.ndarray:
        """Return a boolean array of shape (n, dimensions): the active dimensions of configurations.

        Args:
            values: Values in Optuna's internal representation, an array of shape (n, dimensions).
                Values of inactive dimensions are ignored.
        """
        active: dict[str, np.ndarray] = {}
        for name in self._dimensions:
            active_rows = np.ones(len(values), dtype=bool)
            for term in self._terms[name]:
                if term.name in active:
                    active_rows &= active[term.name] & self._holds(term, values)
                else:
                    active_rows[:] = False
            active[name] = active_rows
        if not self._column:
            return np.ones_like(values, bool)
        return np.column_stack([active[name] for name in self._column])

    def _holds(self, term: Term, values: np.ndarray) -> np.ndarray:
        """Return an array of shape (n,), True where the term's dimension has an accepted value."""
        dimension = self._dimensions[term.name]
        if term.name in self._column:
            column = values[:, self._column[term.name]]
        else:
            column = np.full(len(values), _single_value(dimension))
        if dimension.options:
            accepted = np.array([term.holds(option.key) for option in dimension.options])
            indices = np.where(np.isnan(column), 0, column).astype(int)
            is_accepted: np.ndarray = accepted[indices]
            return is_accepted
        if dimension.q is not None or dimension.mean is not None:  # The value is not the key.
            column = np.array(
                [np.nan if math.isnan(key) else dimension.value(key) for key in column.tolist()]
            )
        holds: np.ndarray = np.logical_or.reduce(
            [TESTS[sign](column, number) for sign, number in term.tests]
        )
        return holds


def _single_value(dimension: Dimension) -> float:
    """Return the only value of a dimension, in Optuna's internal representation."""
    return 0.0 if dimension.options or dimension.lower is None else float(dimension.lower)
