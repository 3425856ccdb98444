"""Find the keys of a trial from its parameter values, for the repair of a study.

Pure functions, no I/O.

A key is what a sampler chooses for a dimension: the name of an option (`Option.key`), a number, or
a cumulative probability of a normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from sweeps.core.json_files import is_number
from sweeps.core.result import to_json_value
from sweeps.core.trial import Trial
from sweeps.space import Space
from sweeps.space.domains import Dimension, cumulative_probability
from sweeps.study import trial_building
from sweeps.study.distributions import distribution_of
from sweeps.study.journal_rules import UNREADABLE

# Largest number of option combinations to try.
MAX_ATTEMPTS = 5_000


class _OpenOption(Exception):
    """Raised when a trial is built and no option has been chosen yet for an active dimension, which is a grid or a choice."""

    def __init__(self, dimension: Dimension):
        super().__init__(dimension.name)
        self.dimension = dimension


def try_build(space: Space, number: int, choose: Callable[[Dimension], Any]) -> Trial | None:
    """Build a trial with `trial_building.build_trial`.

    Return None if this fails, for example because `choose` does not know a key.
    """
    try:
        return trial_building.build_trial(space, number, choose)
    except UNREADABLE:
        return None


def find_configuration(
    space: Space, number: int, described: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Find the keys of a trial from its description in the sweep's result.

    Numbers are looked up in the description. Options are found by trying all combinations, at most
    `MAX_ATTEMPTS`. A combination is accepted only if it gives the same parameters, preprocessor,
    scaling and data as in the description.

    Args:
        space: The search space.
        number: Number of the trial.
        described: Description of the trial in the sweep's result, such as the value of the result's
            key `best`.

    Returns:
        The key of each active dimension. None if no configuration matches the description.
    """
    pending: list[dict[str, Any]] = [
        {}
    ]  # combinations of options to try; the last entry is tried next
    for _ in range(MAX_ATTEMPTS):
        if not pending:
            return None
        options = pending.pop()
        keys: dict[str, Any] = {}

        def choose(
            dimension: Dimension, options: dict[str, Any] = options, keys: dict[str, Any] = keys
        ) -> Any:
            name = dimension.name
            if dimension.options and name not in options:
                raise _OpenOption(dimension)
            keys[name] = (
                options[name]
                if dimension.options
                else key_of_value(dimension, _look_up(described, name))
            )
            return keys[name]

        try:
            trial = try_build(space, number, choose)
        except _OpenOption as e:
            pending += [
                {**options, e.dimension.name: option.key}
                for option in reversed(e.dimension.options)
            ]
        else:
            if trial is not None and _matches(trial, described):
                return keys
    return None


def _matches(trial: Trial, described: Mapping[str, Any]) -> bool:
    """Return True if a trial has the parameters, preprocessor, scaling and data in a description."""
    scaling = trial.shape.scaling
    actual = [trial.chain, scaling, trial.params, trial.data]
    expected = [
        described["preprocessor"],
        {name: described["scaling"].get(name) for name in scaling},
        described["params"],
    ]
    return equal_values(to_json_value(actual), [*expected, described.get("data", {})])


def _look_up(described: Mapping[str, Any], name: str) -> Any:
    """Return the value of a numeric dimension in the description of a trial.

    If the value is missing, the exception may have any type.
    """
    section, _, rest = name.partition(".")
    if section == "preprocessor":  # a text such as "Name (option=0.5)"
        inside = described["preprocessor"].partition(" (")[2].removesuffix(")")
        values = dict(pair.partition("=")[::2] for pair in inside.split(", "))
        return float(values[rest.rpartition(".")[2]])
    value: Any = described[section]
    for part in rest.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def key_of_value(dimension: Dimension, value: Any) -> Any:
    """Return the key of a value of a dimension. This function is the inverse of `Dimension.value`.

    Raises:
        ValueError: The value is outside the dimension's domain, so the sampler cannot have chosen
            it.
    """
    if dimension.options:
        return value
    if is_number(value):
        key = (
            cumulative_probability(dimension, value)
            if dimension.mean is not None
            else int(value)
            if dimension.is_integer
            else float(value)
        )
        distribution = distribution_of(dimension)
        if distribution._contains(distribution.to_internal_repr(key)) and equal_values(
            dimension.value(key), value
        ):
            return key
    raise ValueError(f"{dimension.name}: {value!r} is not in the domain")


def equal_values(a: Any, b: Any) -> bool:
    """Return True if two JSON values are equal. Numbers may differ by rounding errors."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(equal_values, a, b))
    if is_number(a) and is_number(b):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and a == b
