"""Choose the configurations that are tried before the sampler suggests others.

The order is fixed: initial points, the trainer's default configuration, the best configurations of
earlier sweeps (`search.from`), then known good configurations (`search.portfolio`).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from sweeps.space import Dimension, Space
from sweeps.space.model.conditions import ABSENT, Absent, Key
from sweeps.space.sections.built_in_trainers import portfolio_files
from sweeps.space.yaml.yaml12 import parse, read_text

from .default_points import default_points
from .earlier_configurations import OutsideDomain, key_in, known_keys

Keys = Mapping[str, Key]


def first_points(space: Space, earlier: Sequence[Keys] = ()) -> list[Keys]:
    """Return the keys that are fixed in the first configurations of a sweep.

    Args:
        space: The search space. The default configuration of each trainer is tried only if there
            is a portfolio, which takes at most a third of `limits.max_trials`.
        earlier: The keys that `warm_start.starting_points` returns.
    """
    search = space.search
    points: list[Keys] = [point.keys for point in search.initial_points if point.values is None]
    if search.portfolio is None:
        return [*points, *earlier]
    points += [*_new_points(default_points(space), points), *earlier]
    portfolio = (_point(space, values) for values in _labeled_portfolio(space, search.portfolio))
    most = space.limits.max_trials // 3
    return [*points, *itertools.islice(_new_points(portfolio, points), most)]


def read_portfolio(name: str) -> list[dict[str, JsonValue]]:
    """Return the configurations of a portfolio: values of dimensions, by the dimensions' names."""
    file = portfolio_files()[name]
    points: list[dict[str, JsonValue]] = parse(read_text(file, str(file)), str(file)).plain()
    return points


def _new_points(candidates: Iterable[Keys], points: Sequence[Keys]) -> Iterator[Keys]:
    """Yield the candidates that are not in `points`, without duplicates and without {}."""
    seen = [*points, {}]
    for keys in candidates:
        if keys not in seen:
            seen.append(keys)
            yield keys


def _labeled_portfolio(space: Space, name: str) -> Iterator[dict[str, JsonValue]]:
    """Yield the configurations of a portfolio, as values of the space's dimensions.

    If there are several trainers, these are configurations of the trainer with the portfolio's
    name.
    """
    for trainer in space.trainers.values():
        if trainer.label and trainer.name != name:
            continue
        for values in read_portfolio(name):
            renamed = {
                key.replace("params", trainer.params_key, 1): value for key, value in values.items()
            }
            yield {"trainer": trainer.label, **renamed} if trainer.label else renamed


def _point(space: Space, configuration: Mapping[str, JsonValue]) -> Keys:
    """Return the keys of a configuration; {} if one of its values is outside the space."""

    def key_of(dimension: Dimension) -> Key | Absent:
        value = configuration.get(dimension.name, ABSENT)
        return ABSENT if value is ABSENT else key_in(dimension, value, value)

    try:
        return known_keys(space, key_of)
    except OutsideDomain:
        return {}
