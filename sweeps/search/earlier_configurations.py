"""Translate a configuration of an earlier sweep to the dimensions of a new space.

Pure functions, no I/O.
"""

import math
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from sweeps.core.json_values import is_number
from sweeps.space import Dimension, Space
from sweeps.space.model.conditions import ABSENT, Absent, Key
from sweeps.space.model.domains import cumulative_probability
from sweeps.space.model.enumeration import any_key
from sweeps.space.model.templates import conditions_of
from sweeps.study.distributions import distribution_of


class OutsideDomain(Exception):
    """A configuration has a value that the new space does not allow.

    Attributes:
        reason: Reason why the new sweep does not learn from the configuration, such as "outside
            the domain of params.eta".
    """

    def __init__(self, dimension: Dimension):
        self.reason = f"outside the domain of {dimension.name}"
        super().__init__(self.reason)


def translate(
    earlier: Space, space: Space, keys: Mapping[str, Key], constants: Mapping[str, JsonValue]
) -> dict[str, Key]:
    """Return the key of each new dimension for which an earlier configuration has a value.

    A dimension that the earlier configuration lacks is left out, and so are the dimensions that
    depend on it. A constant of the earlier space is taken if the new dimension has its value.

    Args:
        earlier: Space of the earlier sweep.
        space: The new space.
        keys: Key of each active dimension of the earlier configuration, by name; see
            `Dimension.value`.
        constants: The sections `params`, `scaling` and `data` of the configuration, with all their
            values.

    Raises:
        OutsideDomain: The new space does not allow a value of the configuration.
    """
    earlier_dimensions = {dimension.name: dimension for dimension in earlier.dimensions}

    def key_of(dimension: Dimension) -> Key | Absent:
        """Return the new key of a dimension; ABSENT if the earlier configuration has no value."""
        name = dimension.name
        if name in keys and name in earlier_dimensions:
            earlier_dimension = earlier_dimensions[name]
            option_key = keys[name] if earlier_dimension.options else ABSENT
            return key_in(dimension, earlier_dimension.value(keys[name]), option_key)
        constant = _constant(name, constants)
        try:
            return ABSENT if constant is None else key_in(dimension, constant)
        except OutsideDomain:
            return ABSENT

    return known_keys(space, key_of)


def _constant(name: str, constants: Mapping[str, JsonValue]) -> JsonValue:
    """Return the value of a constant of the earlier space; None if there is none."""
    value: JsonValue = dict(constants)
    for part in name.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, Mapping) and part in value:
            value = value[part]
        else:
            return None
    return value


def known_keys(space: Space, key_of: Callable[[Dimension], Key | Absent]) -> dict[str, Key]:
    """Return the key of each active dimension for which `key_of` does not return ABSENT.

    The dimensions that depend on a dimension without a key are left out, too.
    """
    conditions = conditions_of(space.sections)
    keys: dict[str, Key] = {}
    missing: set[str] = set()

    def choose(dimension: Dimension) -> Key:
        needs_missing = any(term.name in missing for term in conditions[dimension.name])
        key = ABSENT if needs_missing else key_of(dimension)
        if key is ABSENT:
            missing.add(dimension.name)
            return any_key(dimension)  # `fill` needs a key to continue
        keys[dimension.name] = key
        return key

    space.fill(choose)
    return keys


def key_in(dimension: Dimension, value: JsonValue, option_key: JsonValue | Absent = ABSENT) -> Key:
    """Return the key of an earlier value in a dimension of the new space.

    A number is rounded to the dimension's steps.

    Args:
        dimension: Dimension of the new space.
        value: The earlier value. For an option of a grid or a choice, the option's value.
        option_key: Key that the value had as an option; ABSENT if it was no option. An option with
            this key comes before an option with this value.

    Raises:
        OutsideDomain: The dimension does not have the value.
    """
    if dimension.options:
        for option in dimension.options:
            if option_key is not ABSENT and _are_equal(option.key, option_key):
                return option.key
        for option in dimension.options:
            if _are_equal(option.value, value):
                return option.key
        raise OutsideDomain(dimension)
    if not is_number(value):
        raise OutsideDomain(dimension)
    if (
        dimension.lower is not None
        and dimension.highest is not None
        and not dimension.lower <= value <= dimension.highest
    ):
        raise OutsideDomain(dimension)
    value = dimension.nearest(value)
    number: Key
    if dimension.mean is not None:
        number = cumulative_probability(dimension, value)
    else:
        number = round(value) if dimension.is_integer else float(value)
    distribution = distribution_of(dimension)
    is_inside = distribution._contains(distribution.to_internal_repr(number))
    # In the tails of a normal distribution, different values have the same key.
    if not is_inside or not _are_equal(dimension.value(number), value):
        raise OutsideDomain(dimension)
    return number


def _are_equal(a: JsonValue, b: JsonValue) -> bool:
    """Return True if two JSON values are equal. Numbers may differ by rounding errors."""
    if is_number(a) and is_number(b):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and a == b
