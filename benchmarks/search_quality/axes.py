"""Dimensions of a task, and random configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Axis:
    """A dimension.

    Attributes:
        kind: `float` or `int` from low to high (both included), `choice` with options 0 to high, or
            `ordered` with the numbers `options`.
        low: Smallest value.
        high: Largest value.
        log: True if random values are drawn on a logarithmic scale.
        options: The numbers of an `ordered` dimension, in ascending order.
        when: Name of an earlier `choice` and the options with which this dimension is active. None
            if it is always active.
    """

    kind: str
    low: float
    high: float
    log: bool = False
    options: tuple[int, ...] = ()
    when: tuple[str, tuple[int, ...]] | None = None

    def active(self, config: Config) -> bool:
        """Return whether the dimension has a value in a configuration, given the values of the
        earlier dimensions.
        """
        return self.when is None or config.get(self.when[0]) in self.when[1]


def ordered(*options: int) -> Axis:
    """Return a dimension of numbers in ascending order."""
    return Axis("ordered", 0, len(options) - 1, options=options)


def draw(axes: Mapping[str, Axis], rng: np.random.RandomState) -> dict[str, Any]:
    """Return a random configuration. It has no entry for an inactive dimension."""
    values: dict[str, Any] = {}
    for name, a in axes.items():
        u = rng.rand()
        if not a.active(values):
            continue
        if a.kind == "float":
            values[name] = (
                math.exp(math.log(a.low) + u * math.log(a.high / a.low))
                if a.log
                else a.low + u * (a.high - a.low)
            )
        elif a.log:
            values[name] = int(math.exp(math.log(a.low) + u * math.log((a.high + 1) / a.low)))
        else:
            number = int(a.low + math.floor(u * (a.high - a.low + 1)))
            values[name] = a.options[number] if a.kind == "ordered" else number
    return values


def place(axis: Axis, value: float) -> float:
    """Return the place of a value between the ends of its dimension, from 0 to 1."""
    if axis.kind == "ordered":
        return axis.options.index(int(value)) / axis.high
    if axis.log:
        return math.log(value / axis.low) / math.log(axis.high / axis.low)
    return (value - axis.low) / (axis.high - axis.low)
