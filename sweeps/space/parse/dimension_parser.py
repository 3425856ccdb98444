"""Parse values of the space file.

The result is a template: a value that may contain dimensions at any depth.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from pathlib import Path

from sweeps.core.text.suggestions import closest
from sweeps.space.model.conditions import ABSENT
from sweeps.space.model.domains import (
    BRANCHING,
    DOMAINS,
    RULES,
    Dimension,
    Option,
    argument_problems,
    build,
    domain_kind,
)
from sweeps.space.model.templates import Template
from sweeps.space.schema.parameter_schema import Fragment
from sweeps.space.yaml.scalars import Scalar, scalar_hint

from .foreign_syntax import translate_call, translate_mapping
from .key_suggestions import our_name
from .nodes import INVALID, Node, Problems
from .option_labels import canonical_form, option_keys
from .parameter_checks import value_problems
from .when_parser import WhenParser

# Function that parses a constant, or an option of a domain.
Read = Callable[[Node], Template]

# End of the message about a bound that is a text, such as "{params.layers}".
DEPENDENT = (
    "; a bound cannot name another dimension: write {uniform: [0, 1]}, which samples a fraction, "
    "and compute the value in the loop: lower + fraction * (upper - lower)"
)
# Value of the argument `values` where the keys of a mapping may be names of parameters.
NAMES = ""
MALFORMED = "broken"  # kind of a mapping that looks like a domain, but is not valid


class DimensionParser:
    """Parser of values that may contain dimensions.

    Args:
        problems: Collects the problems.
        roots: Folders in which the user's modules are looked up.
    """

    def __init__(self, problems: Problems, roots: tuple[Path, ...]):
        self.problems = problems
        self.roots = roots
        self._names: Counter[str] = Counter()
        self.when_parser = WhenParser()

    def anything(self, node: Node) -> Template:
        """Parse any YAML value, which may contain dimensions at any depth."""
        if node.is_map:
            if kind := self.domain(node, "anything"):
                if kind in RULES:
                    return self.numbers(node, kind)
                return self.branches(node, kind, self._option)
            # a misplaced `when` was reported by `domain`
            return {key: self.anything(child) for key, child in node.items() if key != "when"}
        if node.is_list:
            return [self.anything(child) for child in node.value]
        return self._scalar(node)

    def _scalar(self, node: Node) -> Template:
        """Parse a scalar constant.

        Text that looks like a function call of another tool, such as `tune.uniform(0, 1)`, is a
        problem.
        """
        if isinstance(node.value, str) and (hint := translate_call(node.value)):
            text = node.show()
            return node.wrong(
                f"{text} is text, not a domain; {hint}; to keep the text, write {{grid: [{text}]}}"
            )
        constant: Scalar = node.value
        return constant

    def _option(self, node: Node) -> Template:
        """Parse an option of a grid or a choice.

        A mapping such as `{min: 0, max: 1}` is accepted as a constant here.
        """
        if node.is_map and self.domain(node) is None and translate_mapping(node):
            return {key: self._option(child) for key, child in node.items()}
        return self.anything(node) if node.is_map or node.is_list else node.value

    def domain(self, node: Node, values: str = NAMES) -> str | None:
        """Find out whether a mapping is a domain, such as `{grid: [1, 2]}`.

        Args:
            node: Value in the space file. If it is not a mapping, it is a constant.
            values: Values that a domain may have at this place: "anything", "integers", "floats" or
                "options". A mapping in another tool's form, such as `{min: 0, max: 1}`, is then a
                problem. With `NAMES`, such a mapping is a constant.

        Returns:
            The kind of domain, such as "grid". None for a constant. MALFORMED for a mapping that
            looks like a domain but is not valid; a problem was then added.
        """
        if not node.is_map:
            return None
        if kind := domain_kind(node.value):
            return kind
        names = [key for key in node.value if key != "when"]
        kinds = [key for key in names if key in DOMAINS]
        if kinds and any(node.value[key].is_list for key in kinds):
            self._refuse_keys(node, names, kinds)
            return MALFORMED
        if len(names) == 1 and isinstance(names[0], str) and node.value[names[0]].is_list:
            name = names[0].rpartition(".")[2]  # `tune.uniform` is `uniform`
            meant = our_name("domain", name) or closest(name.lower(), DOMAINS, cutoff=0.8)
            if meant:
                bound = " Its upper bound is excluded" if meant == "randint" else ""
                node.wrong(
                    f"unknown domain `{names[0]}`; did you mean `{meant}`?{bound}",
                    node.value[names[0]].at,
                )
                return MALFORMED
        if values and (hint := translate_mapping(node, values)):
            shown = node.show()
            if values == "anything":
                constant = shown if len(shown) < 60 else "{...}"  # `show` cuts at 60 characters
                hint += f"; to use the mapping as a constant, write {{grid: [{constant}]}}"
            node.wrong(f"{shown} is not a domain; {hint}")
            return MALFORMED
        if "when" in node.value:
            text = (
                "`when` is allowed only beside a domain; write a conditional constant as {choice: "
                "[...], when: {...}} with one option"
            )
            node.wrong(text, node.value["when"].at)
        return None

    def _refuse_keys(self, node: Node, names: list[Scalar], kinds: list[str]) -> None:
        """Add a problem for a domain with further keys, or for several domains in one mapping.

        Args:
            node: Mapping in the space file.
            names: Keys of the mapping without `when`.
            kinds: The keys that are kinds of domains.
        """
        others = ", ".join(str(key) for key in names if key != kinds[0])
        text = f"`{kinds[0]}` must be the only key of its mapping; the mapping also has: {others}"
        if len(kinds) > 1:
            text = (
                f"two domains in one mapping: {', '.join(kinds)}; a dimension must have only "
                "one domain"
            )
        node.wrong(text, node.value[kinds[-1]].at)

    def branches(self, node: Node, kind: str, read: Read, otherwise: Template = ABSENT) -> Template:
        """Parse a grid or a choice. Add a problem if the domain is of another kind.

        Args:
            node: Mapping in the space file, such as `{grid: [1, 2]}`.
            kind: Kind of the domain, as `domain` returned it.
            read: Function that parses an option.
            otherwise: The value of the dimension if its condition is false.

        Returns:
            The dimension. INVALID after a problem.
        """
        if kind == MALFORMED:
            return INVALID
        if kind not in BRANCHING:
            return node.wrong(f"must be a constant, a grid or a choice, not {kind}")
        args = node.value[kind]
        if not args.is_list or not args.value:
            got = "an empty list" if args.is_list else args.show()
            text = f"{kind} needs a list with at least one option, got {got}"
            return node.wrong(text, args.at)
        problems_before = len(self.problems)
        when = self.when_parser.read(node, kind)
        self.when_parser.enclosing.append(node.path)
        values = [read(child) for child in args.value]
        self.when_parser.enclosing.pop()
        if len(self.problems) > problems_before:
            return INVALID
        self._refuse_repeated(node, kind, values)
        options = tuple(
            Option(key, value) for key, value in zip(option_keys(values), values, strict=True)
        )
        dim = Dimension(self._unique_name(node.path), kind, options, when=when, otherwise=otherwise)
        self.when_parser.parsed[dim.name] = dim
        return dim

    def _refuse_repeated(self, node: Node, kind: str, values: list[Template]) -> None:
        """Add a problem for each option that is equal to an earlier one."""
        seen: dict[Hashable, int] = {}
        for i, value in enumerate(values):
            first = seen.setdefault(canonical_form(value), i)
            if first != i:
                option = node.value[kind].value[i]
                text = f"{option.show()} (options {first + 1} and {i + 1})"
                node.wrong(f"{kind} has the same option twice: {text}", option.mark)

    def numbers(self, node: Node, kind: str) -> Template:
        """Parse a domain of numbers. Return INVALID after a problem.

        Args:
            node: Mapping in the space file, such as `{uniform: [0, 1]}`.
            kind: The kind of domain, a key of `RULES`.
        """
        args = node.value[kind]
        if args.value is None and RULES[kind].needed == 0:
            args = replace(args, value=[])
        if not args.is_list:
            form = ", ".join(RULES[kind].args)
            return node.wrong(f"{kind} needs a list [{form}], got {args.show()}", args.at)
        when = self.when_parser.read(node, kind)
        wrong_args = list(argument_problems(kind, args.plain()))
        for index, rule in wrong_args:
            wrong = args if index is None else args.value[index]
            hint = scalar_hint(wrong.value)
            text = wrong.value if isinstance(wrong.value, str) else ""
            sibling = f"{node.path.rpartition('.')[0]}.{text}"
            # The text names another dimension, or looks like a formula, such as "{params.n} * 2".
            if sibling in self.when_parser.parsed or re.search(r"[{*+]|[a-z]\.", text):
                hint = DEPENDENT
            mark = args.at if index is None else wrong.mark
            node.wrong(f"{rule}, got {wrong.show()}{hint}", mark)
        if wrong_args:
            return INVALID
        dim = replace(build(self._unique_name(node.path), kind, args.plain()), when=when)
        self.when_parser.parsed[dim.name] = dim
        return dim

    def value(
        self,
        node: Node,
        read: Read,
        values: str = "options",
        numbers: Callable[[Node, str], Template] | None = None,
    ) -> Template:
        """Parse a constant, or a domain of such constants.

        Args:
            node: The value in the space file.
            read: Function that parses a constant.
            values: Values that a domain may have; see `domain`.
            numbers: Function that parses a domain of numbers, given its node and its kind. If None,
                the domain must be a grid or a choice.
        """
        kind = self.domain(node, values)
        if kind is None:
            return read(node)
        if kind in RULES and numbers is not None:
            return numbers(node, kind)
        option = partial(self.value, read=read, values=values, numbers=numbers)
        return self.branches(node, kind, option)

    def columns(self, node: Node) -> Template:
        """Parse a list of columns, each of which may be a dimension of names."""
        return tuple(self.value(child, self.column) for child in node.value)

    def column(self, node: Node) -> Template:
        """Parse the name of a column."""
        if isinstance(node.value, str) and node.value:
            return node.value
        quote = "" if node.is_map or node.is_list else "; put quotes around it"
        return node.wrong(f"a column's name must be text, got {node.show()}{quote}")

    def check_values(self, fragment: Fragment, node: Node, template: Template) -> None:
        """Check a constant, or all values of a domain, against the JSON Schema of a parameter."""
        for wrong, text in value_problems(fragment, node, template):
            node.wrong(text, wrong.mark)

    def _unique_name(self, path: str) -> str:
        """Return a unique name for the dimension at a path.

        The name is the path. Two dimensions can have the same path, because keys may contain dots.
        The name of the second one then ends in `#2`.
        """
        self._names[path] += 1
        return path if self._names[path] == 1 else f"{path}#{self._names[path]}"
