"""Templates, which are values that may contain dimensions, and functions to fill them.

The functions fill them with sampled values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.space.model.conditions import ABSENT, Absent, Key, Term, holds
from sweeps.space.model.domains import Dimension, Keys
from sweeps.space.model.step_names import Step
from sweeps.space.parse.nodes import Invalid
from sweeps.space.yaml.scalars import Scalar


@dataclass(frozen=True)
class Chain:
    """A chain of preprocessing steps as a template.

    `fill` replaces a dimension in it by the steps of the chosen option.
    """

    items: tuple[Step | Dimension, ...] = ()


# A value that may contain dimensions, at any depth.
_Parts = list[Any] | tuple[Any, ...] | dict[Any, Any]
Template = Dimension | Chain | Step | Scalar | _Parts | Invalid | Absent
# The templates of the sections of a space, by name.
Sections = dict[str, Template]


def fill(template: Template, choose: Callable[[Dimension], Key], known: Keys | None = None) -> Any:
    """Replace every active dimension of a template by a value; see `Space.fill`.

    Args:
        template: The template.
        choose: Function that returns a key for a dimension; `Dimension.value` converts this key to
            the value.
        known: Values of the dimensions that were chosen earlier, by name. Conditions are evaluated
            with these values. The values that are chosen in this call are added to the dict.

    Returns:
        The filled template. If the template is an inactive dimension, the result is the dimension's
        value `otherwise`, which is usually ABSENT. Lists, mappings and chains leave out items that
        are ABSENT.
    """
    known = {} if known is None else known
    if isinstance(template, Dimension):
        if not holds(template.when, known):
            return fill(template.otherwise, choose, known)
        key = choose(template)
        value = template.value(key)
        known[template.name] = key if template.options else value
        return fill(value, choose, known)
    if isinstance(template, Chain):
        steps: list[Step] = []
        for item in template.items:
            inside = fill(item, choose, known)
            steps += [inside] if isinstance(inside, Step) else () if inside is ABSENT else inside
        return tuple(steps)
    if isinstance(template, Step):
        columns = fill(template.columns, choose, known)
        return Step(
            template.name,
            None if columns is ABSENT else columns,
            fill(template.params, choose, known),
        )
    if isinstance(template, dict):
        filled = {key: fill(value, choose, known) for key, value in template.items()}
        return {key: value for key, value in filled.items() if value is not ABSENT}
    if isinstance(template, (list, tuple)):
        return type(template)(
            value
            for value in (fill(item, choose, known) for item in template)
            if value is not ABSENT
        )
    return template


def children(template: Template) -> Iterable[Template]:
    """Return the templates directly inside a template.

    These are the items of a list or a chain, the values of a mapping, the columns and parameters of
    a step, or the values of the options of a dimension.
    """
    if isinstance(template, Dimension):
        return [option.value for option in template.options]
    if isinstance(template, Chain):
        return template.items
    if isinstance(template, Step):
        return (template.columns, template.params)
    if isinstance(template, dict):
        return template.values()
    return template if isinstance(template, (list, tuple)) else ()


def walk(template: Template) -> Iterator[Template]:
    """Yield a template and every template inside it, in the order of the file."""
    yield template
    for child in children(template):
        yield from walk(child)


def dimensions(template: Template) -> Iterator[Dimension]:
    """Yield every dimension in a template, in the order of the file."""
    return (part for part in walk(template) if isinstance(part, Dimension))


def tuned_data(sections: Sections) -> Sections:
    """Return the templates of the tuned keys of `data`, by key."""
    tuned = sections.get("data")
    return tuned if isinstance(tuned, dict) else {}


def variant_names(sections: Sections) -> list[str]:
    """Return the names of the dimensions that decide which variant of the data a trial has."""
    variant = {key: tuned for key, tuned in tuned_data(sections).items() if key != "rows"}
    return [dim.name for dim in dimensions(variant)]


def conditions_of(template: Template) -> dict[str, tuple[Term, ...]]:
    """Return the terms that must be true for each dimension to be active, by its name.

    These are the terms of its `when`, and for a dimension inside an option, that this option is
    chosen. If several nested options contain it, the term names the innermost one.
    """
    conditions: dict[str, tuple[Term, ...]] = {}
    for dim in dimensions(template):
        conditions.setdefault(dim.name, dim.when)
        for option in dim.options:
            chosen = Term(dim.name, keys=(option.key,))
            for inner in dimensions(option.value):
                conditions[inner.name] = (*inner.when, chosen)
    return conditions
