"""Short, unique, readable keys for the options of a grid or a choice."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from sweeps.space.model.conditions import ABSENT, Key
from sweeps.space.model.domains import Dimension
from sweeps.space.model.step_names import NONE, Step
from sweeps.space.model.templates import (
    Chain,
    Constant,
    Template,
    TemplateDict,
    TemplateList,
    TemplateVisitor,
)
from sweeps.space.yaml.yaml_writer import flow

LIMIT = 60


class _Canonical(TemplateVisitor[Hashable]):
    """Returns a hashable value that is equal for equal templates only.

    1 and 1.0 are equal templates, but `true` and 1 are not. The names of dimensions are not
    compared.
    """

    def dimension(self, dim: Dimension) -> Hashable:
        numbers = (dim.lower, dim.upper, dim.q, dim.mean, dim.sd)
        options = tuple(self.visit(option.value) for option in dim.options)
        return "dimension", dim.kind, options, numbers, dim.when

    def chain(self, chain: Chain) -> Hashable:
        return "chain", *map(self.visit, chain.items)

    def step(self, step: Step) -> Hashable:
        return "step", step.name, self.visit(step.columns), self.visit(step.params)

    def mapping(self, mapping: TemplateDict) -> Hashable:
        pairs = ((self.visit(key), self.visit(value)) for key, value in mapping.items())
        return "mapping", frozenset(pairs)

    def sequence(self, items: TemplateList) -> Hashable:
        return "list", *map(self.visit, items)

    def constant(self, value: Constant) -> Hashable:
        if isinstance(value, float) and math.isnan(value):
            return ("nan",)
        if isinstance(value, (bool, str)) or value is None:
            return type(value).__name__, value
        return "number", value


canonical_form = _Canonical().visit


def option_keys(values: list[Template]) -> list[Key]:
    """Return a unique key for each option.

    - The key of a scalar is the scalar itself. Infinities and NaN become text. A scalar that Python
      considers equal to an earlier option, such as `1` after `true`, becomes text too.
    - The key of a chain is the names of its steps, joined by `+`. If several chains have the same
      step names, their keys also show the arguments that differ.
    - The key of a list or a mapping is its YAML text, shortened.
    """
    chains: dict[str, list[Chain]] = defaultdict(list)  # by the names of their steps
    for value in values:
        if isinstance(value, Chain):
            chains[_chain_key(value)].append(value)
    keys: list[Key] = []
    for value in values:
        if isinstance(value, Chain):
            keys.append(_cut(_chain_key(value, chains[_chain_key(value)])))
        elif (
            value is None
            or isinstance(value, (bool, int, str))
            or (isinstance(value, float) and math.isfinite(value))
        ):
            keys.append(value)
        else:
            keys.append(_cut(yaml_text(value)))
    return _unique_keys(keys)


def _unique_keys(keys: list[Key]) -> list[Key]:
    """Make keys unique.

    The first of several equal keys stays; each later one becomes text, such as `"1"` for 1.

    If another option already has this text as its key, a number such as `#2` is added to the text.
    """
    unique_keys: list[Key] = []
    for key in keys:
        unique_key = key
        number = 1
        while unique_key in unique_keys:
            unique_key = yaml_text(key) if number == 1 else f"{yaml_text(key)}#{number}"
            number += 1
        unique_keys.append(unique_key)
    return unique_keys


def _cut(text: str) -> str:
    """Shorten a text to `LIMIT` characters."""
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def _chain_key(chain: Chain, twins: Sequence[Chain] = ()) -> str:
    """Return the names of a chain's steps, joined by `+`.

    Args:
        chain: The chain.
        twins: Chains with the same step names. An argument is shown if it differs in one of them.
    """
    parts = []
    for i, item in enumerate(chain.items):
        if isinstance(item, Dimension):
            parts.append(item.kind)
            continue
        twin_items = [twin.items[i] for twin in twins]
        twin_arguments = [twin.arguments() for twin in twin_items if isinstance(twin, Step)]
        arguments = []
        for name, value in item.arguments().items():
            twin_values = [canonical_form(twin.get(name, ABSENT)) for twin in twin_arguments]
            if any(twin_value != canonical_form(value) for twin_value in twin_values):
                arguments.append(f"{name}={yaml_text(value)}")
        parts.append(item.short + (f"({', '.join(arguments)})" if arguments else ""))
    return "+".join(parts) or NONE


class _Text(TemplateVisitor[str]):
    """Returns a template as YAML text on one line.

    A dimension is shown as its kind, such as `uniform`.
    """

    def dimension(self, dim: Dimension) -> str:
        return dim.kind

    def chain(self, chain: Chain) -> str:
        return _chain_key(chain)

    def mapping(self, mapping: TemplateDict) -> str:
        pairs = (f"{self.visit(key)}: {self.visit(value)}" for key, value in mapping.items())
        return f"{{{', '.join(pairs)}}}"

    def sequence(self, items: TemplateList) -> str:
        return f"[{', '.join(map(self.visit, items))}]"

    def constant(self, value: Constant) -> str:
        return flow(value) if value is None or isinstance(value, (bool, float)) else str(value)


yaml_text = _Text().visit
