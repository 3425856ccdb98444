"""Check a configuration that `sweeps enqueue` adds to a sweep. Pure functions, no I/O.

The configuration is checked against the dimensions of the space of the running sweep.
"""

from collections.abc import Mapping
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.domains import Keys
from sweeps.space.model.space_model import Space
from sweeps.space.yaml.yaml_writer import node_of

from .initial_points import InitialPointsParser
from .nodes import Mark, Problems, locate

# Sections whose names may be left out, as `sweeps show` leaves them out in its table.
SHORT = ("params", "scaling", "data")


def parse_point(space: Space, parameters: Mapping[str, Any]) -> Keys:
    """Return the key of each dimension that a configuration gives; see `Dimension.value`.

    Args:
        space: The search space.
        parameters: Values of dimensions by name. The sections `params`, `scaling` and `data` may be
            left out of a name, and so may the label of the trainer, if the point has a trainer.

    Raises:
        InputError: A name or a value is wrong. There is one problem for each.
    """
    mark = Mark("params")
    problems = Problems()
    values: dict[str, Any] = {}
    for short_name, value in parameters.items():
        name = full_name(space, short_name, str(parameters.get("trainer", "")))
        if name is None:
            known = [dimension.name.removeprefix("params.") for dimension in space.dimensions]
            text = f"the space has no dimension `{short_name}`; {did_you_mean(short_name, known)}"
            problems.add(mark, "", text)
        elif name in values:
            problems.add(mark, "", f"`{name}` is given twice")
        else:
            values[name] = value
    if not parameters:
        problems.add(mark, "", "give at least one value, such as eta=0.1")
    parser = InitialPointsParser(
        space.dimensions, space.sections, len(space.objectives), problems, decided=True
    )
    node = locate(node_of(values, lambda path: mark), problems)
    point = parser.point(node) if values else None
    if len(problems):
        raise InputError(problems.sorted())
    assert point is not None
    return point.keys


def full_name(space: Space, name: str, trainer: str = "") -> str | None:
    """Return the full name of a dimension, such as `params.eta` for `eta`.

    Return None if the space has no such dimension.

    Args:
        space: The search space.
        name: The name, perhaps without its section.
        trainer: Label of the trainer whose parameters are meant; "" if the sweep has one trainer.
    """
    names = {dimension.name for dimension in space.dimensions}
    short = name.removeprefix("params.")
    candidates = [name, f"params.{trainer}.{short}", *(f"{section}.{name}" for section in SHORT)]
    for full in candidates:
        if full in names:
            return full
    return None


def refusal(space: Space, perturbs: bool) -> str | None:
    """Return why a sweep cannot take any configuration from outside; None if it can.

    Args:
        space: The search space.
        perturbs: True if the scheduler starts its whole population at once, as `pbt` does.
    """
    if perturbs:
        name = space.scheduler.name
        return (
            f"the scheduler {name} starts all trials of its population at once, so there is no "
            "next trial; use search.initial_points"
        )
    if not space.dimensions:
        return "the space has no dimension, so all trials have the same configuration"
    if all(dimension.is_grid for dimension in space.dimensions):
        return (
            "all dimensions of the space are grids, and the sweep runs all their combinations "
            "anyway"
        )
    return None


def problem_texts(error: InputError) -> tuple[str, ...]:
    """Return the texts of an error's problems, without their places."""
    return tuple(problem.text for problem in error.problems)
