"""Decide which donor a trial of Population Based Training gets, and perturb its parameters.

The functions are pure and do no I/O. The members of a population are its trials. A donor is the
member from whose checkpoint another member continues. All random numbers depend only on the sweep's
seed, the member's number and the perturbation step.
"""

import math
import random
from collections.abc import Collection, Mapping

from sweeps.space import Dimension
from sweeps.space.model.conditions import Key
from sweeps.space.model.domains import EDGES, cumulative_probability

# Factors for the perturbation of a number.
FACTORS = (0.8, 1.2)


def rng_of(seed: int, number: int, step: int) -> random.Random:
    """Return the random number generator for a member at a perturbation step.

    Args:
        seed: Seed of the sweep.
        number: The member's trial number.
        step: Step at which the member may be perturbed.
    """
    return random.Random(f"{seed}/{number}/{step}/pbt")


def choose_donor(
    own: int,
    values: Mapping[int, float],
    donors: Collection[int],
    minimize: bool,
    fraction: float,
    rng: random.Random,
) -> int | None:
    """Choose the donor from whose checkpoint the member `own` continues.

    Args:
        own: Number of the member that has reached the perturbation step.
        values: Values of all members that have reached the step, by number, including the member
            `own`. NaN is the worst value. Members with equal values are ranked by number.
        donors: Numbers of the members from whose checkpoints another member can continue.
        minimize: True if smaller values are better.
        fraction: Fraction of the members that continue from a donor (the worst members), and also
            fraction of the members that can be donors (the best members). In both cases, the number
            of members is rounded up, but is at most half of all members.
        rng: Generator that `rng_of` returned.

    Returns:
        The donor's number. None if `own` continues unchanged, because it is not among the worst or
        no better member can be a donor.
    """
    sign = 1 if minimize else -1
    badness = {n: math.inf if math.isnan(v) else sign * v for n, v in values.items()}
    ranked = sorted(values, key=lambda number: (badness[number], number))
    size = min(math.ceil(len(ranked) * fraction), len(ranked) // 2)
    if own not in ranked[len(ranked) - size :]:
        return None
    better = [n for n in ranked[:size] if n in donors and badness[n] < badness[own]]
    return rng.choice(better) if better else None


def is_perturbed(dimension: Dimension) -> bool:
    """Return True if perturbations change a dimension: it belongs to `params` and is not a grid."""
    return dimension.name.startswith("params.") and not dimension.is_grid


def explore(dimension: Dimension, key: Key, resample: float, rng: random.Random) -> Key:
    """Return a new key of a dimension: either a perturbation of the donor's key or a random key.

    To perturb a number, its value is multiplied by 0.8 or 1.2 and clipped to the bounds of the
    dimension. An integer changes by at least 1, and a value of a domain with `q` by at least `q`,
    unless the bounds prevent this. To perturb an option, it is replaced by the next or the previous
    option. `Dimension.value` converts the returned key to the new value.

    Args:
        dimension: A dimension that is not a grid.
        key: The donor's key; None if the dimension is not active for the donor. In this case, the
            new key is random.
        resample: Probability that the new key is random although the donor has a key.
        rng: Generator that `rng_of` returned.
    """
    options = dimension.options
    # None is also the key of an option `null`.
    is_inactive = key is None and not any(option.key is None for option in options)
    if rng.random() < resample or is_inactive:
        return draw_key(dimension, rng)
    if options:
        index = options.index(dimension.option(key))
        neighbors = [i for i in (index - 1, index + 1) if 0 <= i < len(options)]
        return options[rng.choice(neighbors)].key if neighbors else key
    value = dimension.value(key)
    factor = rng.choice(FACTORS)
    new = dimension.nearest(value * factor)
    rises = (factor > 1) == (value >= 0)
    if new == value or (new > value) != rises:  # rounded to the same value, or past it
        new = dimension.nearest(value, steps=1 if rises else -1)
    return _clipped_key(dimension, new)


def draw_key(dimension: Dimension, rng: random.Random) -> Key:
    """Return the key of a random value of a dimension.

    A key is what the study records for a value: the key of an option, a probability in (0, 1) for a
    normal distribution (`randn` and `qrandn`), and the number itself for any other domain; see
    `sweeps.space.model.domains`.
    """
    if dimension.options:
        return rng.choice(dimension.options).key
    if dimension.lower is None or dimension.highest is None:
        return rng.uniform(*EDGES)
    low = dimension.lower
    high = dimension.highest
    if dimension.is_log:
        value: float = math.exp(rng.uniform(math.log(low), math.log(high)))
    elif dimension.is_integer and dimension.q is None:
        value = rng.randint(int(low), int(high))
    else:
        value = rng.uniform(low, high)
    return _clipped_key(dimension, dimension.nearest(value))


def _clipped_key(dimension: Dimension, value: float) -> float:
    """Clip a value to the bounds of a dimension, and return the key of the clipped value."""
    if dimension.mean is not None:
        return cumulative_probability(dimension, value)
    assert dimension.lower is not None and dimension.highest is not None
    clipped = min(max(value, dimension.lower), dimension.highest)
    return int(clipped) if dimension.is_integer else float(clipped)
