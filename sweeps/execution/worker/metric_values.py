"""Read the metrics that a training loop reports."""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

from sweeps.core.text.secrets import hide_known

# Longest value that a message quotes, in characters.
MOST_QUOTED = 100


def flatten(metrics: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return the metrics without nested dicts.

    The name of a nested metric is the path of its keys, joined by dots.

    Args:
        metrics: Metrics, which may be in nested dicts.
        prefix: Text before each name in the result.

    >>> flatten({"a": {"b": 1}})
    {'a.b': 1}
    """
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def numbers_in(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are numbers, as floats.

    NumPy scalars and tensors with one element are numbers. Booleans are not numbers.
    """
    numbers = {}
    for name, value in metrics.items():
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            continue
        with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
            numbers[str(name)] = float(value)
    return numbers


def find_unbeatable(metrics: Mapping[str, float], goals: Mapping[str, str]) -> str | None:
    """Return the first objective whose value is infinite, so that no other trial could beat it.

    Return None if there is no such objective.

    Args:
        metrics: The reported values, by the name of the metric.
        goals: "minimize" or "maximize" for each objective, by the name of its metric.

    >>> find_unbeatable({"loss": float("-inf")}, {"loss": "minimize"})
    'loss'
    >>> find_unbeatable({"loss": float("inf")}, {"loss": "minimize"}) is None
    True
    """
    best = {"minimize": -math.inf, "maximize": math.inf}
    return next((name for name, goal in goals.items() if metrics.get(name) == best[goal]), None)


def quote(value: Any) -> str:
    """Return the `repr` of a value for an error message, cut to `MOST_QUOTED` characters."""
    try:
        text = repr(value)
    # Python refuses to print integers of more than 4,300 digits, and a user's `__repr__` may raise.
    except Exception as e:
        text = f"a {type(value).__name__} that cannot be shown ({type(e).__name__})"
    text = hide_known(text)  # before a secret is cut
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}..."
