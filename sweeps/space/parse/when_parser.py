"""Parse `when:`, the condition under which a dimension is active, into terms.

A term is one entry of the condition, such as `params.booster: dart`. All terms of a condition must
be true.
"""

import re
from collections.abc import Mapping

from sweeps.core.best_step import COMPARISONS
from sweeps.core.json_values import is_number
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.conditions import Key, Term
from sweeps.space.model.domains import Dimension
from sweeps.space.model.enumeration import conflicting_dimension, possible
from sweeps.space.model.step_names import NONE
from sweeps.space.yaml.scalars import Plain, Scalar, scalar

from .nodes import Node
from .option_labels import canonical_form, yaml_text

FORM = "`when` must map dimensions to required values, such as {params.booster: dart}"
COMPARISON = re.compile(r"(<=|>=|<|>)\s*(\S+)\Z")
# The part of a nested dimension's name that names the option. Users often leave this part out.
INSIDE = re.compile(r"\.(?:grid|choice)\.\d+")
# The beginning of a text that is meant as a comparison, but has another form, such as `=> 3`.
_NEARLY_COMPARISON = re.compile(r"(==?|!=|=<|=>|<=?|>=?|\w+\s*[<>]|not\b)")


class InvalidConditionValue(Exception):
    """An invalid value of a `when` or of an initial point.

    The message is the rule, such as "must be a number", and perhaps a hint.
    """

    def __init__(self, text: str, node: Node | None = None):
        super().__init__(text)
        self.node = node

    def with_value(self, node: Node) -> str:
        """Return the message with the value in it: the rule, the value, then the hint."""
        rule, semicolon, hint = str(self).partition("; ")
        return f"{rule}, got {node.show()}{semicolon}{hint}"


def read_term(dim: Dimension, node: Node) -> Term:
    """Parse the value of one key of a `when`.

    It is a required value, a comparison such as `> 3`, or a list of these. A list is satisfied if
    at least one of its items is.

    Args:
        dim: The dimension that the key names.
        node: The value of the key.

    Raises:
        InvalidConditionValue: The node has another form, or a comparison that can never be true.
    """
    children = node.value if node.is_list else [node]
    if not children:
        raise InvalidConditionValue("an empty list never matches; give at least one value")
    keys: list[Key] = []
    tests: list[tuple[str, float]] = []
    for child in children:
        comparison = _comparison(dim, child)
        if not dim.options:
            tests.append(_possible_test(dim, comparison or _equality(dim, child), child))
        elif comparison is None:
            keys.append(option_of(dim, child))
        else:
            keys += _matching_keys(dim, *comparison, child)
    return Term(dim.name, tuple(dict.fromkeys(keys)), tuple(tests))


def comparison_of(value: Plain) -> tuple[str, float] | None:
    """Return the sign and the number of a text such as `> 3`. Return None for another value."""
    match = COMPARISON.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    sign, text = match.groups()
    try:
        number = scalar(text)
    except ValueError:  # the number is too large
        return None
    return (sign, number) if is_number(number) else None


def _comparison(dim: Dimension, node: Node) -> tuple[str, float] | None:
    """Return the comparison in a value of a `when`, such as `> 3`. None if it is no comparison.

    Raise InvalidConditionValue for a text that is nearly a comparison. The name of an option is no
    comparison, whatever it looks like.
    """
    if not isinstance(node.value, str) or any(option.key == node.value for option in dim.options):
        return None
    if (comparison := comparison_of(node.value)) is not None:
        return comparison
    if not dim.options or _NEARLY_COMPARISON.match(node.value):
        signs = ", ".join(COMPARISONS)
        raise InvalidConditionValue(
            f'must be a value, a list of values or a comparison such as "> 3" (one of {signs} and '
            "a number)",
            node,
        )
    return None


def _equality(dim: Dimension, node: Node) -> tuple[str, float]:
    """Return a number in a `when` as the comparison `("==", number)`.

    Raise InvalidConditionValue if the node is no number, or the dimension is continuous.
    """
    value = node.value
    if not is_number(value):
        raise InvalidConditionValue('must be a number or a comparison such as "> 3"', node)
    if not dim.is_integer and dim.q is None:
        raise InvalidConditionValue(
            'is continuous, so it never equals a number; write a comparison such as "> 3"', node
        )
    return "==", value


def _possible_test(dim: Dimension, test: tuple[str, float], node: Node) -> tuple[str, float]:
    """Return a comparison unchanged.

    Raise InvalidConditionValue if no value of the dimension satisfies the comparison.
    """
    if not possible(dim, [Term(dim.name, tests=(test,))]):
        raise _never_true(dim, node)
    return test


def _never_true(dim: Dimension, node: Node) -> InvalidConditionValue:
    """Return the error about a comparison that no value of a dimension satisfies."""
    text = f"can never be true, because {dim.name} is {describe_values(dim)}"
    return InvalidConditionValue(text, node)


def _matching_keys(dim: Dimension, sign: str, number: float, node: Node) -> list[Key]:
    """Return the keys of the options for which a comparison is true.

    Raise InvalidConditionValue if there is none, or if an option is no number.
    """
    for option in dim.options:
        if not is_number(option.value):
            raise InvalidConditionValue(
                f"a comparison needs options that are numbers, but {dim.name} has the option "
                f"{yaml_text(option.value)}",
                node,
            )
    keys = [option.key for option in dim.options if COMPARISONS[sign](option.value, number)]
    if not keys:
        raise _never_true(dim, node)
    return keys


def option_of(dim: Dimension, node: Node) -> Key:
    """Return the key of an option. The node gives either the option's value or its key.

    An option that is a list, a mapping or a chain can also be named by its index.

    Args:
        dim: A grid or a choice.
        node: A value in a `when` or in an initial point.

    Raises:
        InvalidConditionValue: There is no such option.
    """
    plain = node.plain()
    for option in dim.options:
        if canonical_form(option.value) == canonical_form(plain):
            return option.key
    key = NONE if plain is None else plain
    for option in dim.options:
        if isinstance(key, str) and option.key == key:
            return option.key
    if isinstance(plain, int) and not isinstance(plain, bool) and 0 <= plain < len(dim.options):
        option = dim.options[plain]
        is_scalar = option.value is None or isinstance(option.value, (bool, int, float, str))
        if not is_scalar:
            return option.key
    hint = did_you_mean(plain, [yaml_text(option.key) for option in dim.options])
    raise InvalidConditionValue(f"must be an option of {dim.name}; {hint}", node)


def describe_values(dim: Dimension) -> str:
    """Return the values of a dimension in a few words, such as "1 to 8" or "one of adam, sgd"."""
    if dim.options:
        names = [yaml_text(option.key) for option in dim.options]
        return f"one of {', '.join(names[:8])}" + (", ..." if len(names) > 8 else "")
    if dim.lower is None or dim.highest is None:
        return "any number"
    steps = f" by {dim.q:g}" if dim.q not in (None, 1) else ""
    return f"{dim.lower:g} to {dim.highest:g}{steps}"


class WhenParser:
    """Parser of the conditions (`when`) of a file.

    The dimensions must be parsed in the order of the file.
    """

    def __init__(self) -> None:
        self.parsed: dict[str, Dimension] = {}  # parsed dimensions
        # paths of all dimensions whose parsing has started, including invalid ones
        self.started: set[str] = set()
        # paths of the dimensions that contain the dimension that is parsed now
        self.enclosing: list[str] = []
        # terms of each dimension that is in no other dimension; the file does not write them
        self.implied: tuple[Term, ...] = ()
        # terms with an unknown dimension: the dimension with the `when`, and the unknown name
        self._unresolved: list[tuple[Node, Scalar]] = []
        # the dimensions with a `when`, by name
        self._conditional: dict[str, Node] = {}

    def read(self, node: Node, kind: str) -> tuple[Term, ...]:
        """Parse the `when` beside a domain into terms, and add the implied terms.

        Terms with a problem are left out.

        Args:
            node: The mapping with the domain.
            kind: The kind of domain.
        """
        self.started.add(node.path)
        implied = () if self.enclosing else self.implied
        if "when" not in node.value:
            return implied
        when = node.value["when"]
        self._conditional[node.path] = node
        if not when.is_map or not when.value:
            node.wrong(f"{FORM}, got {when.show()}", when.at)
            return ()
        terms = [self._term(node, kind, name) for name in when.value]
        return (*implied, *(term for term in terms if term is not None))

    def _term(self, dimension: Node, kind: str, name: Scalar) -> Term | None:
        """Parse one key of a `when`.

        Return None if the key has a problem, or if its dimension is unknown, invalid or later in
        the file.

        Args:
            dimension: The mapping with the domain and the `when`.
            kind: The kind of domain.
            name: The key, which is the name of another dimension.
        """
        when = dimension.value["when"]
        node = when.value[name]
        if name == dimension.path:
            dimension.wrong(f"`when` names the dimension itself, `{name}`", node.at)
        elif any(name == term.name for term in self.implied):
            text = "with which these parameters are always active; remove this key"
            dimension.wrong(f"`when` names `{name}`, {text}", node.at)
        elif name in self.enclosing:
            text = "which contains this dimension; remove this key, because it is always true"
            dimension.wrong(f"`when` names `{name}`, {text}", node.at)
        elif name in self.parsed:
            dim = self.parsed[name]
            if kind == "grid" and not dim.is_grid:
                text = f"the `when` of a grid may name only grids; `{name}` is a {dim.kind}"
                dimension.wrong(text, node.at)
                return None
            try:
                return read_term(dim, node)
            except InvalidConditionValue as e:
                at = e.node or node
                when.wrong(f"`{name}`: {e.with_value(at)}", at.mark)
        elif name not in self.started:  # an invalid dimension has its own problem
            self._unresolved.append((dimension, name))
        return None

    def conclude(self, conditions: Mapping[str, tuple[Term, ...]]) -> None:
        """Add the problems that can be found only after all dimensions are parsed.

        These are unknown names, and conditions that can never be true.

        Args:
            conditions: The terms of each dimension, by name; see `conditions_of`.
        """
        for node, name in self._unresolved:
            text = f"`when` may name only earlier dimensions; `{name}` comes later"
            if name not in self.parsed:
                others = [other for other in self.parsed if other != node.path]
                nested = [other for other in others if INSIDE.sub("", other) == name]
                if nested:
                    hint = did_you_mean(nested[0], nested)
                else:
                    hint = did_you_mean(name, others or ["none"])
                text = f"`when` names an unknown dimension: `{name}`; {hint}"
            node.wrong(text, node.value["when"].value[name].at)
        if self._unresolved:
            return
        for name, node in self._conditional.items():
            if name not in self.parsed or name not in conditions:
                continue
            other = conflicting_dimension(name, self.parsed, conditions)
            if other is not None:
                text = (
                    "`when` can never be true, because this condition and earlier conditions "
                    f"need two different values of `{other}`"
                )
                node.wrong(text, node.value["when"].at)
