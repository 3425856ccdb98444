"""The configurations of a space, if they are few. Pure functions, no I/O.

A configuration is one point of the search space: a value for each active dimension.
"""

import json
from collections.abc import Mapping

from sweeps.space import Space
from sweeps.space.model.conditions import Key
from sweeps.space.model.enumeration import assignments
from sweeps.space.sections.search_sections import perturbs

# The largest number of configurations that are listed.
MOST_LISTED = 10_000


def configuration_of(values: Mapping[str, Key]) -> str:
    """Return a configuration as a text.

    `values` has the value of each active dimension; see `Trial.labels`.
    """
    return json.dumps(values, sort_keys=True)


def list_configurations(space: Space) -> dict[str, Mapping[str, Key]] | None:
    """List the configurations that have no known result, in the order of the file.

    Returns:
        The value of each active dimension, by `configuration_of` these values. None if there are
        infinitely many or more than `MOST_LISTED` configurations. None also for two kinds of
        spaces: the trials of a space without dimensions differ only in their seeds, and the trials
        of a population change while they run.
    """
    if not space.dimensions or perturbs(space.scheduler):
        return None
    names = {dim.name for dim in space.dimensions if dim.size <= MOST_LISTED}
    remaining: dict[str, Mapping[str, Key]] = {}
    for _, values in assignments(space.sections, names):
        # A dimension that is not in `names` has too many values.
        if len(remaining) == MOST_LISTED or not values.keys() <= names:
            return None
        remaining[configuration_of(values)] = values
    for point in space.search.initial_points:
        if point.values is not None:
            remaining.pop(configuration_of(point.keys), None)
    return remaining


def most_trials(space: Space) -> int:
    """Return `limits.max_trials`, or the number of configurations if that is less."""
    listed = list_configurations(space)
    limit = space.limits.max_trials
    return limit if listed is None else min(limit, len(listed))
