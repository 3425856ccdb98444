"""Templates, which are values that may contain dimensions, and a function that fills them.

A template is filled by replacing each dimension with a sampled value.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sweeps.space.parse.nodes import Invalid
from sweeps.space.yaml.scalars import Scalar

from .conditions import ABSENT, Absent, Key, Term, holds
from .domains import Dimension, Keys
from .step_names import Step


@dataclass(frozen=True)
class Chain:
    """A chain of preprocessing steps as a template.

    `fill` replaces a dimension in it by the steps of the chosen option.
    """

    items: tuple[Step | Dimension, ...] = ()


Constant = Scalar | Invalid | Absent
# A value that may contain dimensions, at any depth. The keys of a mapping are scalars.
TemplateDict = dict[Any, "Template"]
TemplateList = list["Template"] | tuple["Template", ...]
Template = Dimension | Chain | Step | TemplateDict | TemplateList | Constant
# The templates of the sections of a space, by name.
Sections = dict[str, Template]
R = TypeVar("R")


class TemplateVisitor(Generic[R]):
    """Visitor of templates, with a method for each kind of template.

    A subclass overrides the methods of some kinds, or `parts` for all others.
    """

    def visit(self, template: Template) -> R:
        """Call the method for the kind of a template."""
        if isinstance(template, Dimension):
            return self.dimension(template)
        if isinstance(template, Chain):
            return self.chain(template)
        if isinstance(template, Step):
            return self.step(template)
        if isinstance(template, dict):
            return self.mapping(template)
        if isinstance(template, (list, tuple)):
            return self.sequence(template)
        return self.constant(template)

    def dimension(self, dim: Dimension) -> R:
        """Visit a dimension."""
        return self.parts([option.value for option in dim.options])

    def chain(self, chain: Chain) -> R:
        """Visit a chain of preprocessing steps."""
        return self.parts(chain.items)

    def step(self, step: Step) -> R:
        """Visit a preprocessing step."""
        return self.parts((step.columns, step.params))

    def mapping(self, mapping: TemplateDict) -> R:
        """Visit a mapping."""
        return self.parts(mapping.values())

    def sequence(self, items: TemplateList) -> R:
        """Visit a list or a tuple."""
        return self.parts(items)

    def constant(self, value: Constant) -> R:
        """Visit a template without parts."""
        return self.parts(())

    def parts(self, parts: Iterable[Template]) -> R:
        """Visit a template of any kind, given the templates directly inside it."""
        raise NotImplementedError


@dataclass
class _Filler(TemplateVisitor[Any]):
    """Replaces dimensions by values; see `fill`."""

    choose: Callable[[Dimension], Key]
    known: Keys

    def dimension(self, dim: Dimension) -> Any:
        if not holds(dim.when, self.known):
            return self.visit(dim.otherwise)
        key = self.choose(dim)
        value = dim.value(key)
        self.known[dim.name] = key if dim.options else value
        return self.visit(value)

    def chain(self, chain: Chain) -> tuple[Step, ...]:
        steps: list[Step] = []
        for part in map(self.visit, chain.items):
            if isinstance(part, Step):
                steps.append(part)
            elif part is not ABSENT:  # the steps of an option
                steps += part
        return tuple(steps)

    def step(self, step: Step) -> Step:
        columns = self.visit(step.columns)
        return Step(step.name, None if columns is ABSENT else columns, self.visit(step.params))

    def mapping(self, mapping: TemplateDict) -> dict[Any, Any]:
        filled = {key: self.visit(value) for key, value in mapping.items()}
        return {key: value for key, value in filled.items() if value is not ABSENT}

    def sequence(self, items: TemplateList) -> Any:
        return type(items)(value for value in map(self.visit, items) if value is not ABSENT)

    def constant(self, value: Constant) -> Any:
        return value


def fill(template: Template, choose: Callable[[Dimension], Key], known: Keys | None = None) -> Any:
    """Replace every active dimension of a template by a value; see `Space.fill`.

    Args:
        template: The template.
        choose: Function that returns a key for a dimension; `Dimension.value` converts this key to
            the value.
        known: A dict that receives the value of each dimension that is chosen, by name; for an
            option, its key. Conditions are evaluated with these values.

    Returns:
        The filled template. If the template is an inactive dimension, the result is the dimension's
        value `otherwise`, which is usually ABSENT. Lists, mappings and chains leave out items that
        are ABSENT.
    """
    return _Filler(choose, {} if known is None else known).visit(template)


class _Children(TemplateVisitor[Iterable[Template]]):
    """Returns the templates directly inside a template; see `children`."""

    def parts(self, parts: Iterable[Template]) -> Iterable[Template]:
        return parts


# Returns the items of a list or a chain, the values of a mapping, the columns and parameters of a
# step, or the values of the options of a dimension.
children = _Children().visit


def walk(template: Template) -> Iterator[Template]:
    """Yield a template and every template inside it, in the order of the file."""
    yield template
    for child in children(template):
        yield from walk(child)


def walk_with(trainer: str, template: Template) -> Iterator[Template]:
    """Yield what `walk` yields, without what is never active with a trainer.

    Args:
        trainer: Label of the trainer; "" for a single trainer.
        template: The template.
    """
    if isinstance(template, Dimension):
        terms = (term for term in template.when if term.name == "trainer")
        if not all(term.holds(trainer) for term in terms):
            template = template.otherwise
    yield template
    for child in children(template):
        yield from walk_with(trainer, child)


def dimensions(template: Template) -> Iterator[Dimension]:
    """Yield every dimension in a template, in the order of the file."""
    return (part for part in walk(template) if isinstance(part, Dimension))


def tuned_data(sections: Sections) -> Sections:
    """Return the templates of the tuned keys of `data`, by key."""
    tuned = sections.get("data")
    return tuned if isinstance(tuned, dict) else {}


def params_of(sections: Sections, label: str) -> Template:
    """Return the template of a trainer's parameters.

    Args:
        sections: The sections of a space.
        label: Label of the trainer; "" for a single trainer.
    """
    params = sections.get("params", {})
    if not label:
        return params
    return params.get(label, {}) if isinstance(params, dict) else {}


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
                # The options of an inner dimension come later, and replace the term.
                conditions[inner.name] = (*inner.when, chosen)
    return conditions
