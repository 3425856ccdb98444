"""Parse the sections under `space:`: preprocessor, scaling and params."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sweeps.core.parameter_schema import Fragment, allows
from sweeps.core.resources import ELASTIC
from sweeps.core.suggestions import closest, did_you_mean
from sweeps.space.chains import ChainParser
from sweeps.space.dimension_parser import INVALID, MALFORMED, Read
from sweeps.space.domains import BRANCHING, RULES
from sweeps.space.nodes import Node
from sweeps.space.parameter_checks import mismatch
from sweeps.space.problems import Problems
from sweeps.space.synonyms import suggest
from sweeps.space.templates import Template
from sweeps.space.trainer_definition import TrainerDefinition

SECTIONS = ("preprocessor", "scaling", "params")
# Parameters for which the frameworks take several quantiles. The model then predicts several
# numbers
_QUANTILES = (("xgboost", "quantile_alpha"), ("xgboost", "expectile_alpha"), ("lightgbm", "alpha"))
MOST_NAMES = 12  # the largest number of parameters that a message lists
SCALING: dict[str, Fragment] = {
    "num_workers": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000_000,
        "default": 1,
        "description": "Number of workers of a trial. With `{elastic: [lower, upper]}`, the number "
        "may change while the trial runs.",
    },
    "use_gpu": {
        "type": "boolean",
        "default": False,
        "description": "Whether each worker has 1 GPU. The key `GPU` of `resources_per_worker` "
        "sets another amount.",
    },
    "resources_per_worker": {
        "type": "object",
        "description": "Amount of each resource of a worker: `CPU` (1 unless you set it), `GPU` "
        "(may be a fraction), `memory` in bytes, "
        "and Ray's custom resources.",
    },
}
AMOUNT: Fragment = {
    "type": "number",
    "minimum": 0,
    "maximum": 10**15,
    "description": "Amount of this resource for each worker. The amount of `memory` is in bytes.",
}


class SpaceParser(ChainParser):
    """Parser of the section `space`.

    Args:
        problems: Collects the problems.
        roots: Folders in which the user's modules are looked up.
        started: True for the file of a sweep that has already started. The trainer's module may
            have changed since, so that parameters are not checked.
        definition: Definition of the trainer, from the trainer's module.
        trainer: The trainer's name, for messages.
    """

    def __init__(
        self,
        problems: Problems,
        roots: tuple[Path, ...],
        started: bool,
        definition: TrainerDefinition,
        trainer: str,
    ):
        super().__init__(problems, roots)
        self.started = started
        self.definition = definition
        self.trainer = trainer

    def space(self, node: Node) -> dict[str, Template]:
        """Parse all sections under `space`.

        Return their templates by name, in the order of the file.
        """
        if node.value is None:
            return {}
        if not node.is_map:
            self.wrong(
                node,
                "space",
                f"must be a mapping with sections {', '.join(SECTIONS)}, got {node.show()}",
            )
            return {}
        read: dict[str, Read] = {
            "preprocessor": self.chain,
            "scaling": self.scaling,
            "params": self.params,
        }
        sections = {}
        for key, child in node.value.items():
            if key not in read:
                hint = suggest("space", key, SECTIONS)
                hint += (
                    "; put a parameter of the loop under `params`"
                    if hint.startswith("valid")
                    else ""
                )
                self.problems.add(node.keys[key], f"space.{key}", f"unknown section; {hint}")
            else:
                sections[key] = read[key](child, key)
        return sections

    def params(self, node: Node, path: str) -> Template:
        """Parse a mapping of parameters, or a dimension whose options are such mappings."""
        return self._mapping(node, path, "such as {eta: 0.1}", self._parameter)

    def scaling(self, node: Node, path: str) -> Template:
        """Parse a mapping with the keys of `SCALING`, or a dimension of such mappings."""
        return self._mapping(node, path, f"with keys {', '.join(SCALING)}", self._scaling_key)

    def _mapping(
        self, node: Node, path: str, form: str, read: Callable[[Node, Any, str], Template]
    ) -> Template:
        """Parse a mapping, or a dimension whose options are mappings.

        Args:
            node: The mapping.
            path: Dotted key of the mapping.
            form: The expected form of the mapping, for messages.
            read: Function that parses the value of one key, given the mapping, the key and the path
                of the value.
        """
        if node.value is None:
            return {}
        if not node.is_map:
            return self.wrong(node, path, f"must be a mapping {form}, got {node.show()}")
        if kind := self.domain(node, path):
            return self.branches(node, path, kind, partial(self._mapping, form=form, read=read))
        return {key: read(node, key, f"{path}.{key}") for key in node.value if key != "when"}

    def _parameter(self, node: Node, name: Any, path: str) -> Template:
        if not isinstance(name, str) or not name:
            return self.wrong_key(
                node, name, path, "the name of a parameter must be text; put quotes around it"
            )
        template = self.anything(node.value[name], path)
        if template is not INVALID:
            self._check_parameter(node, name, path)
        return template

    def _check_parameter(self, node: Node, name: str, path: str) -> None:
        """Check a parameter's name and values against the trainer's `TRAINER["parameters"]`."""
        known = self.definition.parameters
        if self.started or not known:
            return
        value = node.value[name]
        if ((self.trainer, name) in _QUANTILES and value.is_list) or "MultiQuantile" in str(
            value.plain()
        ):
            text = "a model predicts one quantile; give one, and run a sweep for each of the others"
            self.wrong(value, path, f"{text}, got {value.show()}")
        elif name in known:
            self.check_values(known[name], node.value[name], path)
        elif not self.definition.additional_parameters or closest(name, known, cutoff=0.8):
            hint = did_you_mean(name, known)
            if hint.startswith("valid") and len(known) > MOST_NAMES:
                hint = (
                    f"valid: {', '.join(list(known)[:MOST_NAMES])} and {len(known) - MOST_NAMES} "
                    "more, which `sweeps schema` lists"
                )
            text = f"is not a parameter of {self.trainer}; {hint}"
            self.problems.add(node.keys[name], path, text)

    def _scaling_key(self, node: Node, key: Any, path: str) -> Template:
        if key == "resources_per_worker":
            return self._mapping(node.value[key], path, "such as {CPU: 1}", self._amount)
        if key == "num_workers":
            return self._num_workers(node.value[key], path)
        if key in SCALING:
            return self._scaling_value(node.value[key], path, SCALING[key])
        return self.wrong_key(node, key, path, f"unknown key; {suggest('scaling', key, SCALING)}")

    def _num_workers(self, node: Node, path: str) -> Template:
        """Parse a number of workers, a dimension of numbers, or an elastic number.

        An elastic number is a mapping such as {elastic: [1, 4]}.
        """
        if node.is_map and ELASTIC in node.value:
            return self._elastic(node, path)
        if node.is_list and len(node.value) == 2:  # Ray Train takes two bounds
            text = (
                f"for a number that may change while a trial runs, write {{elastic: {node.show()}}}"
            )
            text = f"{mismatch(SCALING['num_workers'], node)}; {text}"
            return self.wrong(node, path, text)
        return self._scaling_value(node, path, SCALING["num_workers"], self._num_workers)

    def _elastic(self, node: Node, path: str) -> Template:
        """Parse an elastic number of workers.

        It is a constant, because every trial has the same two bounds.
        """
        form = "elastic needs a list [lower, upper]"
        bounds = node.value[ELASTIC]
        if len(node.value) > 1:
            others = ", ".join(str(key) for key in node.value if key != ELASTIC)
            return self.wrong_key(
                node,
                ELASTIC,
                path,
                f"`elastic` must be the only key of its mapping; the mapping also has: {others}",
            )
        if not bounds.is_list or len(bounds.value) != 2:
            return self.wrong(
                bounds, path, f"{form} with two numbers of workers, got {bounds.show()}"
            )
        for bound in bounds.value:
            if not allows(SCALING["num_workers"], bound.plain()):
                return self.wrong(
                    bound,
                    path,
                    f"{form}: each bound {mismatch(SCALING['num_workers'], bound, tunable=False)}",
                )
        lower, upper = map(int, bounds.plain())  # 1.0 is an integer in JSON Schema.
        if lower >= upper:
            hint = (
                f"; for a fixed number of workers, write `num_workers: {lower}`"
                if lower == upper
                else ""
            )
            return self.wrong(
                bounds,
                path,
                f"{form}: the upper bound must be greater than the lower bound, got "
                f"{bounds.show()}{hint}",
            )
        return {ELASTIC: [lower, upper]}

    def _amount(self, node: Node, resource: Any, path: str) -> Template:
        """Parse the amount of a resource of one worker."""
        if not isinstance(resource, str) or not resource:
            return self.wrong_key(node, resource, path, "a resource's name must be text")
        if (
            resource.upper() in ("CPU", "GPU") and resource != resource.upper()
        ):  # Ray would wait forever for a custom resource of this name
            return self.wrong_key(
                node, resource, path, f"unknown resource; did you mean `{resource.upper()}`?"
            )
        return self._scaling_value(node.value[resource], path, AMOUNT)

    def _scaling_value(
        self, node: Node, path: str, fragment: Fragment, option: Read | None = None
    ) -> Template:
        """Parse a scalar, or a dimension of scalars.

        All resource requirements that a trial may have must be known before the sweep starts. A
        range must therefore have integers only.

        Args:
            node: The value in the space file.
            path: Dotted key of the value.
            fragment: JSON Schema of the scalars.
            option: Function that parses each option of a grid or a choice. If None, this method
                itself parses the options.
        """
        kind = self.domain(node, path, "integers") if node.is_map else None
        if kind in (*BRANCHING, MALFORMED):
            return self.branches(
                node, path, str(kind), option or partial(self._scaling_value, fragment=fragment)
            )
        if kind and not RULES[kind].integer:
            return self.wrong(
                node,
                path,
                f"must be a constant, a grid, a choice or a range of integers, got {node.show()}",
            )
        if node.value is None:
            return self.wrong(node, path, mismatch(fragment, node))
        before = len(self.problems)
        self.check_values(fragment, node, path)
        if len(self.problems) > before:
            return INVALID
        return self.numbers(node, path, kind) if kind else node.value
