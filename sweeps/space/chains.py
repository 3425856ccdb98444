"""Parse chains of preprocessing steps. Chains, steps, parameters and columns may be dimensions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sweeps.core import references
from sweeps.space.dimension_parser import INVALID, DimensionParser
from sweeps.space.domains import Dimension
from sweeps.space.nodes import Mark, Node
from sweeps.space.parameter_checks import value_problems
from sweeps.space.step_names import BUILTIN_STEPS, NONE, Step, required_parameters
from sweeps.space.synonyms import our_name, suggest
from sweeps.space.templates import Chain, Template


class ChainParser(DimensionParser):
    """Parser of `space.preprocessor`."""

    def chain(self, node: Node, path: str) -> Template:
        """Parse a chain: a name, a mapping with one key, or a list of names and mappings.

        A chain may also be a dimension whose options are chains. Null, `none` and an empty list are
        a chain without steps.
        """
        if node.value is None or node.value == NONE or node.value == []:
            return Chain()
        if not node.is_list:
            return self._steps(node, path)
        items: list[Step | Dimension] = []
        good = True
        for i, child in enumerate(node.value):
            part = self._steps(child, f"{path}.{i}") if child.value not in (None, NONE) else Chain()
            good = good and isinstance(part, Chain)
            items.extend(part.items if isinstance(part, Chain) else ())
        return Chain(tuple(items)) if good else INVALID

    def _steps(self, node: Node, path: str) -> Template:
        """Parse one entry of a chain: a step, or a dimension whose options are chains.

        Return a chain with this single entry.
        """
        if isinstance(node.value, str):
            return self._step(node.mark, node.value, Node(None, node.mark), path, path)
        if not node.is_map or not node.value:
            return self.wrong(
                node, path, f"a step must be a name or `{{Name: {{...}}}}`, got {node.show()}"
            )
        if kind := self.domain(node, path, "options"):
            dim = self.branches(node, path, kind, self.chain)
            return Chain((dim,)) if isinstance(dim, Dimension) else INVALID
        names = [key for key in node.value if key != "when"]
        if len(names) != 1:
            if not names:
                return INVALID
            text = f"a step must be a mapping with one key, got keys {', '.join(map(str, names))}"
            return self.wrong(
                node,
                path,
                f"{text}; write each step as a separate entry of a list, and indent its "
                "parameters under its name",
            )
        return self._step(
            node.keys[names[0]], names[0], node.value[names[0]], path, f"{path}.{names[0]}"
        )

    def _step(self, mark: Mark, name: Any, args: Node, path: str, where: str) -> Template:
        """Parse a step, and return a chain with this single step.

        Args:
            mark: Place of the step's name in the file.
            name: The step's name.
            args: The step's parameters.
            path: Dotted key of the step.
            where: Dotted key of the step's parameters.
        """
        before = len(self.problems)
        if not isinstance(name, str):
            self.problems.add(mark, path, f"a step's name must be text, got {name}")
        elif ":" in name:
            if fault := references.problem(name, self.roots):
                self.problems.add(mark, path, fault)
        elif name not in BUILTIN_STEPS:
            self.problems.add(
                mark,
                path,
                f"`{name}` is neither a built-in step nor a reference module:attr; "
                f"{suggest('step', name, BUILTIN_STEPS)}",
            )
        # the parameters of an unknown step cannot be checked
        return INVALID if len(self.problems) > before else self._arguments(mark, name, args, where)

    def _arguments(self, mark: Mark, name: str, args: Node, where: str) -> Template:
        """Parse the parameters of a step, and return a chain with this single step.

        If the mapping of parameters is itself a dimension, the chain has a dimension in place of
        the step. Each option of this dimension is the step with one of the mappings.
        """
        if args.value is not None and not args.is_map:
            return self.wrong(args, where, f"parameters must be a mapping, got {args.show()}")
        if args.is_map and (kind := self.domain(args, where)):
            plain = Chain((Step(name, path=where),))  # the step with its defaults
            dim = self.branches(
                args,
                where,
                kind,
                lambda child, path: self._arguments(mark, name, child, path),
                plain,
            )
            if isinstance(dim, Dimension) and dim.when:
                self._needed(args.keys["when"], name, where, ())
            return Chain((dim,)) if isinstance(dim, Dimension) else INVALID
        before = len(self.problems)
        columns: Template = None
        params: dict[str, Template] = {}
        allowed = BUILTIN_STEPS.get(name)
        for key, child in (args.value or {}).items():
            at = f"{where}.{key}"
            if key == "when":
                continue  # reported by `domain`
            if not isinstance(key, str):
                self.problems.add(args.keys[key], at, "a parameter's name must be text")
            elif key == "columns":
                columns = self._columns(child, at)
            elif allowed is not None and key not in allowed:
                self.problems.add(
                    args.keys[key],
                    at,
                    f"unknown parameter of {name}; {suggest(name, key, ('columns', *allowed))}",
                )
            else:
                params[key] = self.anything(child, at)
                if allowed is not None and params[key] is not INVALID:
                    self._check_step_parameter(name, key, child, at)
        self._needed(mark, name, where, params)
        self._refuse_conditions(name, args, where, params=params)
        return (
            Chain((Step(name, columns, params, where),))
            if len(self.problems) == before
            else INVALID
        )

    def _needed(self, mark: Mark, name: str, where: str, given: Collection[str]) -> None:
        """Add a problem for each required parameter of the step `name` that is not in `given`."""
        for key in required_parameters(name):
            if key not in given:
                self.problems.add(mark, where, f"`{key}` is required by {name}")

    def _refuse_conditions(
        self, name: str, args: Node, where: str, params: dict[str, Template]
    ) -> None:
        """Add a problem for each required parameter of the step `name` that has a `when`."""
        for key, value in params.items():
            if isinstance(value, Dimension) and value.when and key in required_parameters(name):
                text = f"is required by {name}, so it cannot have a `when`"
                self.problems.add(args.value[key].keys["when"], f"{where}.{key}", text)

    def _check_step_parameter(self, step: str, key: str, node: Node, path: str) -> None:
        """Check the values of one parameter of a built-in step.

        If the value is another library's name for an option that sweeps calls differently, the
        message suggests our name.
        """
        for wrong, text in value_problems(BUILTIN_STEPS[step][key], node):
            hint = our_name(f"{step}.{key}", wrong.value)
            self.problems.add(wrong.mark, path, f"{text}; {hint}" if hint else text)

    def _columns(self, node: Node, path: str) -> Template:
        """Parse `columns`: a keyword, a name, a pattern, a list, or a dimension of these.

        A keyword is a word such as `numeric`, and a pattern is a text such as `price_*`.
        """
        if node.is_map and (kind := self.domain(node, path, "options")):
            return self.branches(node, path, kind, self._columns)
        if node.value is None or (isinstance(node.value, str) and node.value):
            return node.value
        if node.is_list and node.value:
            return tuple(self.column(child, f"{path}.{i}") for i, child in enumerate(node.value))
        return self.wrong(
            node,
            path,
            f"must be numeric, categorical, all, a pattern or a list of names, got {node.show()}",
        )
