"""The domains of the space file as functions, for search spaces in Python.

Each function returns the mapping that stands for the domain in a space file: `loguniform(1e-4, 1)`
is `{"loguniform": [0.0001, 1]}`. Names and meanings are those of Ray Tune, except `grid`, which Ray
Tune calls `grid_search`. The arguments are checked when the search space is loaded, together with
the rest of the space.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

When = Mapping[str, Any] | None
P = ParamSpec("P")


def _checked(function: Callable[P, dict[str, Any]]) -> Callable[P, dict[str, Any]]:
    """Let a call with a wrong number of arguments, or with options that are no list, raise a TypeError that shows the right form."""
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name != "when"]

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> dict[str, Any]:
        try:
            options = signature.bind(*args, **keywords).arguments.get("options", ())
            fits = isinstance(options, Iterable) and not isinstance(options, (str, bytes))
        except TypeError:
            fits = False
        if not fits:
            raise TypeError(_right_form(function.__name__, names, args, keywords))
        return function(*args, **keywords)

    return call


def _right_form(
    name: str, names: list[str], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> str:
    """Return the message for a wrong call of a domain function.

    Args:
        name: Name of the function.
        names: Names of its arguments without `when`.
        args: The positional arguments of the call.
        keywords: The other arguments of the call.
    """
    given = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in keywords.items())])
    right = ", ".join(names)
    if names == ["options"]:
        right = f"[{', '.join(map(repr, args))}]" if args else "[OPTION, OPTION]"
    elif len(args) == 1 and isinstance(args[0], (list, tuple)) and len(args[0]) == len(names):
        right = ", ".join(map(repr, args[0]))
    return f"sweeps.{name}({given}): write sweeps.{name}({right})"


@_checked
def grid(options: Iterable[Any], *, when: When = None) -> dict[str, Any]:
    """Return a domain in which the options get equally many trials. Some may get one trial more.

    Args:
        options: The options. An option may contain further domains.
        when: Condition: a mapping from the name of another dimension, such as `params.booster`, to
            a value, a comparison such as `"> 3"`, or a list of values.
    """
    return _domain("grid", list(options), when)


@_checked
def choice(options: Iterable[Any], *, when: When = None) -> dict[str, Any]:
    """Return a domain of options from which the sampler chooses. For the arguments, see `grid`."""
    return _domain("choice", list(options), when)


@_checked
def uniform(lower: float, upper: float, *, when: When = None) -> dict[str, Any]:
    """Return the domain of the numbers from `lower` to `upper`. For `when`, see `grid`."""
    return _domain("uniform", [lower, upper], when)


@_checked
def quniform(lower: float, upper: float, q: float, *, when: When = None) -> dict[str, Any]:
    """Return the domain of `lower`, `lower + q` and so on to `upper`. For `when`, see `grid`."""
    return _domain("quniform", [lower, upper, q], when)


@_checked
def loguniform(lower: float, upper: float, *, when: When = None) -> dict[str, Any]:
    """Return the domain of the numbers from `lower` to `upper`, sampled on a logarithmic scale.

    For `when`, see `grid`.
    """
    return _domain("loguniform", [lower, upper], when)


@_checked
def qloguniform(lower: float, upper: float, q: float, *, when: When = None) -> dict[str, Any]:
    """Return the domain of `lower`, `lower + q` and so on to `upper`, on a logarithmic scale.

    For `when`, see `grid`.
    """
    return _domain("qloguniform", [lower, upper, q], when)


@_checked
def randint(lower: int, upper: int, *, when: When = None) -> dict[str, Any]:
    """Return the domain of the integers from `lower` to `upper - 1`. For `when`, see `grid`."""
    return _domain("randint", [lower, upper], when)


@_checked
def qrandint(lower: int, upper: int, q: int | None = None, *, when: When = None) -> dict[str, Any]:
    """Return the domain of `lower`, `lower + q` and so on to `upper`. For `when`, see `grid`.

    Without `q`, or with q = 1, these are the integers from `lower` to `upper - 1`.
    """
    return _domain("qrandint", _given(lower, upper, q), when)


@_checked
def lograndint(lower: int, upper: int, *, when: When = None) -> dict[str, Any]:
    """Return the domain of the integers from `lower` to `upper - 1`, sampled on a logarithmic scale. For `when`, see `grid`."""
    return _domain("lograndint", [lower, upper], when)


@_checked
def qlograndint(lower: int, upper: int, q: int, *, when: When = None) -> dict[str, Any]:
    """Return the domain of `lower`, `lower + q` and so on to `upper`, on a logarithmic scale.

    With q = 1, `upper` is excluded. For `when`, see `grid`.
    """
    return _domain("qlograndint", [lower, upper, q], when)


@_checked
def randn(
    mean: float | None = None, sd: float | None = None, *, when: When = None
) -> dict[str, Any]:
    """Return a normal distribution with a mean, by default 0, and a standard deviation, by default 1. For `when`, see `grid`."""
    return _domain("randn", _given(0.0 if mean is None and sd is not None else mean, sd), when)


@_checked
def qrandn(mean: float, sd: float, q: float, *, when: When = None) -> dict[str, Any]:
    """Return a normal distribution whose values are rounded to multiples of `q`.

    For `when`, see `grid`.
    """
    return _domain("qrandn", [mean, sd, q], when)


def _given(*arguments: float | None) -> list[Any]:
    return [argument for argument in arguments if argument is not None]


def _domain(kind: str, arguments: list[Any], when: When) -> dict[str, Any]:
    return {kind: arguments} if when is None else {kind: arguments, "when": dict(when)}
