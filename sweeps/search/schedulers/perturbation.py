"""Population Based Training (Jaderberg et al. 2017) as pure functions: who takes over from whom, and with which parameters.

As in Ray Tune it is asynchronous: a member that comes to a milestone is compared with those that have come there, and waits for nobody.
The members of a cell are a population of their own, as a checkpoint is of no use beside another preprocessor. What is drawn is drawn
from the sweep's seed, the member's number and the milestone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.space import Dimension
from sweeps.space.domains import EDGES, multiple, quantile

# By one of these a number is multiplied.
FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class Member:
    """What of a member counts at a milestone.

    Attributes:
        number: the trial's.
        value: what it reported there.
        gives: it still trains, and its latest checkpoint is of this milestone or later.
    """

    number: int
    value: float
    gives: bool = True


def chance(seed: int, number: int, step: int) -> random.Random:
    """What a member draws from at a milestone."""
    return random.Random(f"{seed}/{number}/{step}/pbt")


def donor(own: int, members: Sequence[Member], minimize: bool, fraction: float, draw: random.Random) -> int | None:
    """The number of the member that another takes over from; None if it goes on with what it has.

    Args:
        own: the number of the one that has come to the milestone.
        members: all of its population that have come there, itself too, in any order. NaN is the worst value; equal values rank by number.
        minimize: whether smaller is better.
        fraction: of these, so many, rounded up but no more than half, are the best, and as many the worst.
        draw: see `chance`.
    """

    def badness(m: Member) -> float:
        return math.inf if math.isnan(m.value) else m.value if minimize else -m.value

    ranked = sorted(members, key=lambda m: (badness(m), m.number))
    size = min(math.ceil(len(ranked) * fraction), len(ranked) // 2)
    mine = next((m for m in ranked[len(ranked) - size :] if m.number == own), None)
    if mine is None:
        return None
    better = [m.number for m in ranked[:size] if m.gives and badness(m) < badness(mine)]
    return draw.choice(better) if better else None


def perturbed(dimension: Dimension) -> bool:
    """Whether a dimension is one that perturbations change: of `params`, and sampled."""
    return dimension.name.startswith("params.") and not dimension.is_grid


def explored(dimension: Dimension, key: Any, resample: float, draw: random.Random) -> Any:
    """The key with which a member goes on, near the donor's or drawn anew; see `Dimension.value` for the way from key to value.

    A number is multiplied by 0.8 or 1.2 and stays within its bounds; an integer, and a number with a step, moves by one step at
    least, where its bounds allow. An option becomes the next or the one before it.

    Args:
        dimension: a sampled one.
        key: the donor's; None if the dimension is not active there, and then it is drawn.
        resample: the probability with which it is drawn anew.
        draw: see `chance`.
    """
    anew = draw.random() < resample
    if anew or (key is None and not any(option.key is None for option in dimension.options)):
        return drawn(dimension, draw)
    if dimension.options:
        at = dimension.options.index(dimension.option(key))
        near = [i for i in (at - 1, at + 1) if 0 <= i < len(dimension.options)]
        return dimension.options[draw.choice(near)].key if near else key
    value, factor = dimension.value(key), draw.choice(FACTORS)
    new = value * factor
    if (step := 1 if dimension.is_integer and dimension.q is None else dimension.q) is not None:
        up = (factor > 1) == (value >= 0)
        new = multiple(new, step)
        if new == value or (new > value) != up:
            new = multiple(value + (step if up else -step), step)
    return _key(dimension, new)


def drawn(dimension: Dimension, draw: random.Random) -> Any:
    """A key of a dimension, drawn as its domain says."""
    if dimension.options:
        return draw.choice(dimension.options).key
    if dimension.lower is None or dimension.highest is None:
        return draw.uniform(*EDGES)
    low, high = dimension.lower, dimension.highest
    if dimension.is_log:
        value: float = math.exp(draw.uniform(math.log(low), math.log(high)))
    elif dimension.is_integer and dimension.q is None:
        value = draw.randint(int(low), int(high))
    else:
        value = draw.uniform(low, high)
    if dimension.is_integer or dimension.q is not None:
        value = multiple(value, 1 if dimension.q is None else dimension.q)
    return _key(dimension, value)


def _key(dimension: Dimension, value: Any) -> Any:
    """The key of a value, within the bounds."""
    if dimension.mean is not None:
        return quantile(dimension, value)
    assert dimension.lower is not None and dimension.highest is not None
    kept = min(max(value, dimension.lower), dimension.highest)
    return int(kept) if dimension.is_integer else float(kept)
