"""Parse chains of preprocessing steps. Chains, steps, parameters and columns may be dimensions."""

from collections.abc import Mapping
from dataclasses import replace

from sweeps.core.plugins import references
from sweeps.space.model.domains import Dimension
from sweeps.space.model.step_names import BUILTIN_STEPS, NONE, Step, required_parameters
from sweeps.space.model.templates import Chain, Template
from sweeps.space.parse.dimension_parser import DimensionParser
from sweeps.space.parse.key_suggestions import our_name, suggest
from sweeps.space.parse.nodes import INVALID, Mark, Node
from sweeps.space.parse.parameter_checks import value_problems
from sweeps.space.yaml.scalars import Scalar


class ChainParser(DimensionParser):
    """Parser of `space.preprocessor`."""

    def chain(self, node: Node) -> Template:
        """Parse a chain: a name, a mapping with one key, or a list of names and mappings.

        A chain may also be a dimension whose options are chains. Null, `none` and an empty list are
        a chain without steps.
        """
        if node.value is None or node.value == NONE or node.value == []:
            return Chain()
        if not node.is_list:
            return self._steps(node)
        entries = [self._steps(child) for child in node.value if child.value not in (None, NONE)]
        items: list[Step | Dimension] = []
        for entry in entries:
            if not isinstance(entry, Chain):
                return INVALID
            items += entry.items
        return Chain(tuple(items))

    def _steps(self, node: Node) -> Template:
        """Parse one entry of a chain: a step, or a dimension whose options are chains.

        Return a chain with this single entry.
        """
        if isinstance(node.value, str):
            return self._step(node, node.value, replace(node, value=None, key_mark=None))
        if not node.is_map or not node.value:
            return node.wrong(f"a step must be a name or `{{Name: {{...}}}}`, got {node.show()}")
        if kind := self.domain(node, "options"):
            dim = self.branches(node, kind, self.chain)
            return Chain((dim,)) if isinstance(dim, Dimension) else INVALID
        names = [key for key in node.value if key != "when"]
        if len(names) != 1:
            if not names:  # a `when` alone, which `domain` has reported
                return INVALID
            text = f"a step must be a mapping with one key, got keys {', '.join(map(str, names))}"
            return node.wrong(
                f"{text}; write each step as a separate entry of a list, and indent its "
                "parameters under its name"
            )
        return self._step(node, names[0], node.value[names[0]])

    def _step(self, node: Node, name: Scalar, args: Node) -> Template:
        """Parse a step, and return a chain with this single step.

        Args:
            node: The entry of the chain.
            name: The step's name.
            args: The step's parameters.
        """
        if not isinstance(name, str):
            return node.wrong(f"a step's name must be text, got {name}", args.at)
        fault = None
        if ":" in name:
            fault = references.problem(name, self.roots)
        elif name not in BUILTIN_STEPS:
            fault = (
                f"`{name}` is neither a built-in step nor a reference module:attr; "
                f"{suggest('step', name, BUILTIN_STEPS)}"
            )
        if fault is not None:  # the parameters of an unknown step cannot be checked
            return node.wrong(fault, args.at)
        return self._arguments(args, name, args.at)

    def _arguments(self, args: Node, name: str, mark: Mark) -> Template:
        """Parse the parameters of a step, and return a chain with this single step.

        If the mapping of parameters is itself a dimension, the chain has a dimension in place of
        the step. Each option of this dimension is the step with one of the mappings.
        """
        if args.value is not None and not args.is_map:
            return args.wrong(f"parameters must be a mapping, got {args.show()}")
        if kind := self.domain(args):
            dim = self.branches(
                args,
                kind,
                lambda option: self._arguments(option, name, mark),
                otherwise=Chain((Step(name, path=args.path),)),  # the step with its defaults
            )
            if isinstance(dim, Dimension) and dim.when:
                # If the condition is false, the step has no parameters.
                self._check_required(args, name, args.value["when"].at, {})
            return Chain((dim,)) if isinstance(dim, Dimension) else INVALID
        problems_before = len(self.problems)
        columns: Template = None
        params: dict[str, Template] = {}
        allowed = BUILTIN_STEPS.get(name)
        for key, child in args.items():
            if key == "when":
                continue  # reported by `domain`
            if not isinstance(key, str):
                child.wrong_key("a parameter's name must be text")
            elif key == "columns":
                columns = self.value(child, self._columns)
            elif allowed is not None and key not in allowed:
                hint = suggest(name, key, ("columns", *allowed))
                child.wrong_key(f"unknown parameter of {name}; {hint}")
            else:
                params[key] = self.anything(child)
                if allowed is not None and params[key] is not INVALID:
                    self._check_step_parameter(name, key, child, template=params[key])
        self._check_required(args, name, mark, params)
        if len(self.problems) > problems_before:
            return INVALID
        return Chain((Step(name, columns, params, args.path),))

    def _check_required(
        self, args: Node, name: str, mark: Mark, params: Mapping[str, Template]
    ) -> None:
        """Add a problem for each required parameter of a step that is missing or has a `when`.

        Args:
            args: The parameters in the space file.
            name: Name of the step.
            mark: Place of a problem with a missing parameter.
            params: The parsed parameters.
        """
        for key in required_parameters(name):
            value = params.get(key)
            if key not in params:
                args.wrong(f"`{key}` is required by {name}", mark)
            elif isinstance(value, Dimension) and value.when:
                text = f"is required by {name}, so it cannot have a `when`"
                args.value[key].wrong(text, args.value[key].value["when"].at)

    def _check_step_parameter(self, step: str, key: str, node: Node, template: Template) -> None:
        """Check the values of one parameter of a built-in step.

        If the value is another library's name for an option that sweeps calls differently, the
        message suggests our name.
        """
        for wrong, text in value_problems(BUILTIN_STEPS[step][key], node, template):
            hint = our_name(f"{step}.{key}", wrong.value)
            node.wrong(f"{text}; {hint}" if hint else text, wrong.mark)

    def _columns(self, node: Node) -> Template:
        """Parse `columns`: a keyword, a name, a pattern or a list.

        A keyword is a word such as `numeric`, and a pattern is a text such as `price_*`.
        """
        if node.value is None or (isinstance(node.value, str) and node.value):
            return node.value
        if node.is_list and node.value:
            return self.columns(node)
        return node.wrong(
            f"must be numeric, categorical, all, a pattern or a list of names, got {node.show()}"
        )
