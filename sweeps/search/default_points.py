"""The default configurations of trainers, with which the winner of a search is compared."""

import math
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from sweeps.core.json_values import is_number
from sweeps.space import Dimension, Space, TrainerSpec
from sweeps.space.model.conditions import ABSENT, Absent, Key

from .earlier_configurations import OutsideDomain, key_in, known_keys


def default_points(space: Space) -> list[Mapping[str, Key]]:
    """Return the keys of the default configuration of each trainer, as far as there are defaults.

    Return [] if the search has no portfolio, because the defaults are not tried then.
    """
    if space.search.portfolio is None:
        return []
    points = (_default_point(space, trainer) for trainer in space.trainers.values())
    return [point for point in points if point]


def is_default(points: Iterable[Mapping[str, Key]], keys: Mapping[str, Key]) -> bool:
    """Return whether the keys of a trial are one of the default configurations."""
    return any(point.items() <= keys.items() for point in points)


def default_trials(
    points: Iterable[Mapping[str, Key]], trials: Iterable[tuple[int, Mapping[str, Key]]]
) -> list[int]:
    """Return the number of the first trial with each default configuration, as far as it exists.

    Args:
        points: The default configurations; see `default_points`.
        trials: Number and keys of each trial, in the order of the numbers.
    """
    listed = list(trials)
    numbers = (
        next((number for number, keys in listed if point.items() <= keys.items()), None)
        for point in points
    )
    return sorted({number for number in numbers if number is not None})


def _default_point(space: Space, trainer: TrainerSpec) -> Mapping[str, Key]:
    """Return the keys of a trainer's default configuration."""
    parameters = trainer.definition.parameters

    def key_of(dimension: Dimension) -> Key | Absent:
        if dimension.name == "trainer":
            return trainer.label
        name = dimension.name.removeprefix(f"{trainer.params_key}.")
        default = parameters.get(name, {}).get("default")
        value = _nearest(dimension, default)
        try:
            return ABSENT if value is None else key_in(dimension, value, value)
        except OutsideDomain:
            return ABSENT

    return known_keys(space, key_of)


def _nearest(dimension: Dimension, value: JsonValue) -> JsonValue:
    """Return the value of a dimension that is nearest to a number, on the dimension's scale.

    Values that are not numbers, and all values for a normal distribution, are returned unchanged.
    """
    lower = dimension.lower
    highest = dimension.highest
    if not is_number(value):
        return value
    if lower is not None and highest is not None:
        value = min(max(value, lower), highest)
        steps = [dimension.nearest(value, step) for step in (-1, 0, 1)]
        allowed = [step for step in steps if lower <= step <= highest]
    else:  # a choice; a normal distribution has no options
        allowed = [option.value for option in dimension.options if is_number(option.value)]
    scale = math.log if dimension.is_log else float
    return min(allowed, key=lambda number: abs(scale(number) - scale(value)), default=value)
