"""Decisions of Population Based Training: which member to exploit, and how to perturb its parameters. Pure functions, no I/O.

A member is a trial of the population. All random numbers depend only on the sweep's seed, the member's number and the perturbation step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.space import Dimension
from sweeps.space.domains import EDGES, multiple, quantile

# Factors for the perturbation of a number.
FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class Member:
    """A member of the population at a perturbation step.

    Attributes:
        number: Number of the trial.
        value: Value that the trial reported at the step.
        can_donate: True if another trial can continue from this trial's checkpoint. This requires that the trial is running, and that its
            latest checkpoint is from this step or a later step but before `max_t`.
    """

    number: int
    value: float
    can_donate: bool = True


def rng_of(seed: int, number: int, step: int) -> random.Random:
    """Return the random number generator for a member at a perturbation step.

    Args:
        seed: Seed of the sweep.
        number: Number of the member.
        step: The perturbation step.
    """
    return random.Random(f"{seed}/{number}/{step}/pbt")


def choose_donor(own: int, members: Sequence[Member], minimize: bool, fraction: float, rng: random.Random) -> int | None:
    """Return the number of the member to exploit; None if the member continues unchanged.

    Args:
        own: Number of the member that has reached the perturbation step.
        members: All members that have reached the step, including the member `own`, in any order. NaN is the worst value. Members with
            equal values are ranked by number.
        minimize: True if smaller values are better.
        fraction: Fraction of the members that exploit, and also the fraction that can be exploited. The resulting number of members is
            rounded up, but is at most half of all members.
        rng: Generator that `rng_of` returned.
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
    """Return True if perturbations change a dimension. Perturbations change the dimensions of `params` that are not grids."""
    return dimension.name.startswith("params.") and not dimension.is_grid


def explore(dimension: Dimension, key: Any, resample: float, rng: random.Random) -> Any:
    """Return a new key of a dimension: either a perturbation of the donor's key or a random key.

    A numeric value is multiplied by 0.8 or 1.2 and clipped to the bounds of the dimension. An integer or a number with a step moves by at
    least one step, unless the bounds prevent this. An option is replaced by the next or the previous option. The returned key belongs to
    the new value; `Dimension.value` converts a key to a value.

    Args:
        dimension: A sampled dimension.
        key: The donor's key; None if the dimension is not active for the donor. In this case, the new key is random.
        resample: Probability of a random key.
        rng: Generator that `rng_of` returned.
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
    """Draw a random key from the domain of a dimension.

    Args:
        dimension: The dimension.
        rng: Random number generator.
    """
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
    """Clip a value to the bounds of a dimension, and return its key."""
    if dimension.mean is not None:
        return quantile(dimension, value)
    assert dimension.lower is not None and dimension.highest is not None
    clipped = min(max(value, dimension.lower), dimension.highest)
    return int(clipped) if dimension.is_integer else float(clipped)
