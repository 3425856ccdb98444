"""Check the values and domains of parameters in a space file against their JSON Schemas."""

from collections.abc import Iterator

from sweeps.space.model.domains import Dimension
from sweeps.space.model.templates import Template
from sweeps.space.schema.parameter_schema import (
    Fragment,
    allows,
    is_within_bounds,
    rule_of,
    types_of,
)
from sweeps.space.yaml.scalars import scalar_hint

from .nodes import Node

# The domain of integers to write in place of a domain of floats.
_INTEGER_DOMAINS = {
    "uniform": "randint",
    "loguniform": "lograndint",
    "quniform": "qrandint",
    "qloguniform": "qlograndint",
}


def value_problems(
    fragment: Fragment, node: Node, template: Template
) -> Iterator[tuple[Node, str]]:
    """Check a parameter's value, or every value that its domain can produce.

    Args:
        fragment: JSON Schema of the parameter.
        node: The value in the space file: a constant or a domain.
        template: The parsed value: a constant or a dimension.

    Yields:
        For each problem, the node that the JSON Schema does not allow, and the message.
    """
    if isinstance(template, Dimension) and template.options:
        nodes = node.value[template.kind].value
        for option, child in zip(template.options, nodes, strict=True):
            yield from value_problems(fragment, child, option.value)
    elif isinstance(template, Dimension):
        if text := _domain_problem(fragment, template):
            yield node, f"{text}, got {node.show()}"
    elif node.is_map and "when" in node.value:
        return  # a constant cannot have a condition; `DimensionParser.domain` reports it
    elif not allows(fragment, node.plain()):
        yield node, mismatch(fragment, node)


def mismatch(fragment: Fragment, node: Node, tunable: bool = True) -> str:
    """Return the message about a value that the JSON Schema of its parameter does not allow.

    Args:
        fragment: JSON Schema of the parameter, or of another key of the space file.
        node: The value in the space file.
        tunable: True if the parameter may have a domain. If the value is a list, the message then
            suggests a `choice` of the items of the list.
    """
    types = types_of(fragment)
    hint = ""
    if tunable and node.is_list:
        hint = to_try_each(node)
    elif types == ("string",):
        hint = "; put quotes around it" if isinstance(node.value, (bool, int, float)) else ""
    elif types == ("boolean",) or {"integer", "number"} & set(types):
        hint = scalar_hint(node.value, boolean=types == ("boolean",))
    return f"must be {rule_of(fragment)}, got {node.show()}{hint}"


def to_try_each(node: Node) -> str:
    """Return a hint to write a list as a `choice`.

    Return "" if the node is not a list, or is an empty list.
    """
    if node.is_list and node.value:
        return f"; to try each value, write {{choice: {node.show()}}}"
    return ""


def _domain_problem(fragment: Fragment, dim: Dimension) -> str | None:
    """Check that a parameter may have every value of a domain of numbers.

    Return the broken rule, such as "must be at least 0". Return None if the parameter may have
    every value of the domain.
    """
    types = types_of(fragment)
    rule = f"must be {rule_of(fragment)}"
    if "enum" in fragment:
        has_only_numbers = all(isinstance(value, (int, float)) for value in fragment["enum"])
        return None if has_only_numbers else rule
    if types and not {"integer", "number"} & set(types):
        return rule
    has_whole_steps = (
        dim.q is not None and float(dim.q).is_integer() and float(dim.lower or 0).is_integer()
    )
    if types and "number" not in types and not (dim.is_integer or has_whole_steps):
        instead = _INTEGER_DOMAINS.get(dim.kind, "randint")
        return f"{rule}, but `{dim.kind}` also gives fractions; use {instead}"
    if dim.lower is None or dim.highest is None:  # a normal distribution has no bounds
        return None
    ends = [dim.lower, dim.highest]
    # The bounds of a continuous domain are practically never sampled.
    if not dim.is_integer and dim.q is None:
        open_ends = {fragment.get("exclusiveMinimum"), fragment.get("exclusiveMaximum")}
        ends = [end for end in ends if end not in open_ends]
    return None if all(is_within_bounds(fragment, end) for end in ends) else rule
