"""Choose the best of some configurations that are trained again and again. Pure functions, no I/O.

Configurations that are clearly worse than the leader drop out, as in a race (Birattari et al.,
2002: A racing algorithm for configuring metaheuristics).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

# `benchmarks.honesty` has found these numbers: the candidates, and their further trainings.
CANDIDATES = 5
ROUNDS = 3
# All trainings together may take this share of the time.
MOST_CONFIRMING = 0.2
# A candidate drops out if it is worse than the leader with this probability.
CERTAINTY = 0.95
# The first value of the leader is too good, so two trainings after it are needed.
LEAST_VALUES = 3

Values = Mapping[int, Sequence[float | None]]


def still_racing(values: Values, minimize: bool) -> list[int]:
    """Return the configurations that have not dropped out, the best mean first.

    Args:
        values: Values of each configuration, the value in the search first. None for a training
            that gave no value; its configuration drops out.
        minimize: True if smaller values are better.
    """
    rounds = max((len(own) for own in values.values()), default=0)
    sign = 1 if minimize else -1
    known = {
        number: [sign * value for value in own if value is not None]
        for number, own in values.items()
    }
    known = {number: own for number, own in known.items() if len(own) == rounds}
    order = sorted(known, key=lambda number: (math.fsum(known[number]), number))
    return [number for number in order if not _is_clearly_worse(known[number], known[order[0]])]


def _is_clearly_worse(losses: Sequence[float], leader: Sequence[float]) -> bool:
    """Return whether a one-sided paired t-test says that losses are larger than the leader's."""
    if len(losses) < LEAST_VALUES:
        return False
    from scipy.stats import ttest_rel

    with warnings.catch_warnings(action="ignore"):  # the differences may be equal
        test = ttest_rel(losses, leader, alternative="greater")
    return bool(test.pvalue < 1 - CERTAINTY)


def rounds_in_time(seconds: Sequence[float], slots: int, available: float) -> int:
    """Return how many times all candidates can be trained again.

    Args:
        seconds: Seconds of the training of each candidate.
        slots: Number of candidates that train side by side.
        available: The seconds that there are.
    """
    of_round = round_seconds(seconds, slots)
    if not of_round:
        return ROUNDS
    return int(min(ROUNDS, max(0.0, available) // of_round))


def round_seconds(seconds: Sequence[float], slots: int) -> float:
    """Return the seconds in which all candidates are trained once; see `rounds_in_time`."""
    return max(max(seconds, default=0.0), math.fsum(seconds) / max(1, slots))
