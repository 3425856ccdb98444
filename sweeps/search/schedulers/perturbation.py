"""The decisions of Population Based Training: which member to exploit, and how to perturb its parameters. Pure functions.

All random numbers follow from the sweep's seed, the member's number and the perturbation step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.space import Dimension
from sweeps.space.domains import EDGES, multiple, quantile

# Factors by which a number is perturbed.
FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class Member:
    """A member of the population at a perturbation step.

    Attributes:
        number: Number of the trial.
        value: Value that the trial reported at the step.
        can_donate: Whether the trial still runs, and its latest checkpoint is of this step or a later one.
    """

    number: int
    value: float
    can_donate: bool = True


def rng_of(seed: int, number: int, step: int) -> random.Random:
    """Return the random generator of a member at a perturbation step."""
    return random.Random(f"{seed}/{number}/{step}/pbt")


def choose_donor(own: int, members: Sequence[Member], minimize: bool, fraction: float, rng: random.Random) -> int | None:
    """Return the number of the member to exploit, or None to continue unchanged.

    Args:
        own: Number of the member that has reached the perturbation step.
        members: All members that have reached the step, this one included, in any order. NaN is the worst value; equal values rank
            by number.
        minimize: Whether smaller values are better.
        fraction: Part of the members that is exploited, and part that exploits; rounded up, but no more than half.
        rng: See `rng_of`.
    """

    def badness(m: Member) -> float:
        return math.inf if math.isnan(m.value) else m.value if minimize else -m.value

    ranked = sorted(members, key=lambda m: (badness(m), m.number))
    size = min(math.ceil(len(ranked) * fraction), len(ranked) // 2)
    mine = next((m for m in ranked[len(ranked) - size :] if m.number == own), None)
    if mine is None:
        return None
    better = [m.number for m in ranked[:size] if m.can_donate and badness(m) < badness(mine)]
    return rng.choice(better) if better else None


def is_perturbed(dimension: Dimension) -> bool:
    """Return whether perturbations change a dimension: it is a sampled dimension of `params`."""
    return dimension.name.startswith("params.") and not dimension.is_grid


def explore(dimension: Dimension, key: Any, resample: float, rng: random.Random) -> Any:
    """Return a new key of a dimension, near the donor's key or drawn anew. (`Dimension.value` turns keys into values.)

    A number is multiplied by 0.8 or 1.2 and stays within its bounds. An integer, and a number with a step, moves by at least one
    step where its bounds allow. An option becomes the next or the previous option.

    Args:
        dimension: A sampled dimension.
        key: The donor's key, or None if the dimension is not active there; then a key is drawn.
        resample: Probability of drawing the key anew.
        rng: See `rng_of`.
    """
    anew = rng.random() < resample
    if anew or (key is None and not any(option.key is None for option in dimension.options)):
        return draw_key(dimension, rng)
    if dimension.options:
        at = dimension.options.index(dimension.option(key))
        near = [i for i in (at - 1, at + 1) if 0 <= i < len(dimension.options)]
        return dimension.options[rng.choice(near)].key if near else key
    value, factor = dimension.value(key), rng.choice(FACTORS)
    new = value * factor
    if (step := 1 if dimension.is_integer and dimension.q is None else dimension.q) is not None:
        up = (factor > 1) == (value >= 0)
        new = multiple(new, step)
        if new == value or (new > value) != up:
            new = multiple(value + (step if up else -step), step)
    return _key(dimension, new)


def draw_key(dimension: Dimension, rng: random.Random) -> Any:
    """Draw a key of a dimension from its domain."""
    if dimension.options:
        return rng.choice(dimension.options).key
    if dimension.lower is None or dimension.highest is None:
        return rng.uniform(*EDGES)
    low, high = dimension.lower, dimension.highest
    if dimension.is_log:
        value: float = math.exp(rng.uniform(math.log(low), math.log(high)))
    elif dimension.is_integer and dimension.q is None:
        value = rng.randint(int(low), int(high))
    else:
        value = rng.uniform(low, high)
    if dimension.is_integer or dimension.q is not None:
        value = multiple(value, 1 if dimension.q is None else dimension.q)
    return _key(dimension, value)


def _key(dimension: Dimension, value: Any) -> Any:
    """Return the key of a value, clipped to the bounds."""
    if dimension.mean is not None:
        return quantile(dimension, value)
    assert dimension.lower is not None and dimension.highest is not None
    kept = min(max(value, dimension.lower), dimension.highest)
    return int(kept) if dimension.is_integer else float(kept)
