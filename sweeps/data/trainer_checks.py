"""Check the names in `params` with the trainer's own function, before any trial starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from sweeps.core import references
from sweeps.core.errors import Problem
from sweeps.space import Dimension
from sweeps.space.saved_space import roots_of
from sweeps.space.templates import Template, children

if TYPE_CHECKING:
    from sweeps.space import Space

Check = Callable[[Mapping[str, Any], Collection[str]], Mapping[str, str]]


def check_parameters(space: Space) -> list[Problem]:
    """Call the function that `TRAINER["check"]` names, which may import the user's code.

    `sweeps validate` must not do this.

    Nothing is checked if an import fails, because a package may be installed on the workers only.
    The first trial reports the error.

    Args:
        space: the search space.

    Returns:
        A problem for each wrong name. [] if the trainer has no such function.
    """
    if (function := space.trainer_definition.check) is None:
        return []
    from sweeps.data.sources import importable

    names = list(dict.fromkeys(parameter_names(space.sections.get("params", {}))))
    with importable(*roots_of(space)):
        try:
            check: Check = references.resolve(
                f"{references.parse(space.trainer.loop)[0]}:{function}"
            )
            wrong = check(space.trainer.options, names)
        except (ImportError, references.RefError):
            return []
    return [Problem(f"params.{name}", text) for name, text in wrong.items()]


def parameter_names(params: Template) -> list[str]:
    """Return the names of all parameters.

    `params` is a mapping, or a dimension whose options are mappings.
    """
    if isinstance(params, Dimension):
        return [name for option in children(params) for name in parameter_names(option)]
    return list(params) if isinstance(params, dict) else []
