"""The domains of the space file as functions, for search spaces in Python.

Each function returns the mapping that stands for the domain in a space file: `loguniform(1e-4, 1)`
is `{"loguniform": [0.0001, 1]}`. Names and meanings are those of Ray Tune, except `grid`, which Ray
Tune calls `grid_search`. The arguments are checked when the search space is loaded, together with
the rest of the space.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

When = Mapping[str, Any] | None
# A domain as a space file has it, such as {"uniform": [0, 1]}.
Domain = dict[str, Any]


def grid(options: Iterable[Any], *, when: When = None) -> Domain:
    """Return a domain in which the options get equally many trials. Some may get one trial more.

    Args:
        options: The options. An option may contain further domains.
        when: Condition: a mapping from the name of another dimension, such as `params.booster`, to
            a value, a comparison such as `"> 3"`, or a list of values.
    """
    return _domain("grid", _option_list(options), when)


def choice(options: Iterable[Any], *, when: When = None) -> Domain:
    """Return a domain of options from which the sampler chooses. For the arguments, see `grid`."""
    return _domain("choice", _option_list(options), when)


def uniform(lower: float, upper: float, *, when: When = None) -> Domain:
    """Return the domain of the numbers from `lower` to `upper`. For `when`, see `grid`."""
    return _domain("uniform", [lower, upper], when)


def quniform(lower: float, upper: float, q: float, *, when: When = None) -> Domain:
    """Return the domain of `lower`, `lower + q` and so on to `upper`. For `when`, see `grid`."""
    return _domain("quniform", [lower, upper, q], when)


def loguniform(lower: float, upper: float, *, when: When = None) -> Domain:
    """Return the domain of the numbers from `lower` to `upper`, sampled on a logarithmic scale.

    For `when`, see `grid`.
    """
    return _domain("loguniform", [lower, upper], when)


def qloguniform(lower: float, upper: float, q: float, *, when: When = None) -> Domain:
    """Return the domain of `lower`, `lower + q` and so on to `upper`, on a logarithmic scale.

    For `when`, see `grid`.
    """
    return _domain("qloguniform", [lower, upper, q], when)


def randint(lower: int, upper: int, *, when: When = None) -> Domain:
    """Return the domain of the integers from `lower` to `upper - 1`. For `when`, see `grid`."""
    return _domain("randint", [lower, upper], when)


def qrandint(lower: int, upper: int, q: int | None = None, *, when: When = None) -> Domain:
    """Return the domain of `lower`, `lower + q` and so on to `upper`. For `when`, see `grid`.

    Without `q`, or with q = 1, these are the integers from `lower` to `upper - 1`.
    """
    return _domain("qrandint", _without_none(lower, upper, q), when)


def lograndint(lower: int, upper: int, *, when: When = None) -> Domain:
    """Return the domain of the integers from `lower` to `upper - 1` on a logarithmic scale.

    For `when`, see `grid`.
    """
    return _domain("lograndint", [lower, upper], when)


def qlograndint(lower: int, upper: int, q: int, *, when: When = None) -> Domain:
    """Return the domain of `lower`, `lower + q` and so on to `upper`, on a logarithmic scale.

    With q = 1, `upper` is excluded. For `when`, see `grid`.
    """
    return _domain("qlograndint", [lower, upper, q], when)


def randn(mean: float | None = None, sd: float | None = None, *, when: When = None) -> Domain:
    """Return a normal distribution with a mean and a standard deviation.

    The mean is 0 by default, and the standard deviation 1. For `when`, see `grid`.
    """
    if mean is None and sd is not None:
        mean = 0.0
    return _domain("randn", _without_none(mean, sd), when)


def qrandn(mean: float, sd: float, q: float, *, when: When = None) -> Domain:
    """Return a normal distribution whose values are rounded to multiples of `q`.

    For `when`, see `grid`.
    """
    return _domain("qrandn", [mean, sd, q], when)


def _option_list(options: Iterable[Any]) -> str | list[Any]:
    """Return options as a list. A text stays a text, which the parser of spaces refuses."""
    return options if isinstance(options, str) else list(options)


def _without_none(*arguments: float | None) -> list[float]:
    """Return the arguments that are not None."""
    return [argument for argument in arguments if argument is not None]


def _domain(kind: str, arguments: str | Sequence[Any], when: When) -> Domain:
    """Return the mapping that stands for a domain in a space file."""
    return {kind: arguments} if when is None else {kind: arguments, "when": dict(when)}
