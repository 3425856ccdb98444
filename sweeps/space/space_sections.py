"""Parse the sections under `space:`: preprocessor, scaling and params."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sweeps.core.suggestions import closest, did_you_mean
from sweeps.space.chains import ChainParser
from sweeps.space.dimension_parser import INVALID, MALFORMED, Read
from sweeps.space.domains import BRANCHING, DOMAINS, RULES, Dimension
from sweeps.space.nodes import Node, meant
from sweeps.space.problems import Problems
from sweeps.space.synonyms import suggest
from sweeps.space.templates import Template
from sweeps.space.trainer_definition import TrainerDefinition

SECTIONS = ("preprocessor", "scaling", "params")
MOST_WORKERS = 1_000_000
MOST_NAMES = 12  # the largest number of parameters that a message lists
SCALING = ("num_workers", "use_gpu", "resources_per_worker")


class SpaceParser(ChainParser):
    """Parser of the section `space`.

    Args:
        problems: Collects the problems.
        roots: Folders in which the user's modules are looked up.
        begun: True for the file of a sweep that has already started.
        definition: Definition of the trainer, from the trainer's module.
        trainer: The trainer's name, for messages.
    """

    def __init__(
        self, problems: Problems, roots: tuple[Path, ...], begun: bool, definition: TrainerDefinition | None = None, trainer: str = ""
    ):
        super().__init__(problems, roots, begun)
        self.definition = definition or TrainerDefinition(additional_parameters=True)
        self.trainer = trainer

    def space(self, node: Node) -> dict[str, Template]:
        """Parse all sections, in the order of the file."""
        if node.value is None:
            return {}
        if not node.is_map:
            self.wrong(node, "space", f"must be a mapping with sections {', '.join(SECTIONS)}, got {node.show()}")
            return {}
        read: dict[str, Read] = {"preprocessor": self.chain, "scaling": self.scaling, "params": self.params}
        sections = {}
        for key, child in node.value.items():
            mark = node.keys[key]
            if key == "when":
                self.stray(node, "space")
            elif key in DOMAINS:
                self.problems.add(mark, f"space.{key}", f"a {key} belongs inside a section: {', '.join(SECTIONS)}")
            elif key == "data":
                self.problems.add(mark, "space.data", "`data` belongs at the top of the file; its train, drop and rows can be tuned there")
            elif key not in read:
                hint = suggest("space", key, SECTIONS)
                hint += "; put a parameter of the loop under `params`" if hint.startswith("valid") else ""
                self.problems.add(mark, f"space.{key}", f"unknown section; {hint}")
            else:
                sections[key] = read[key](child, key)
        return sections

    def params(self, node: Node, path: str) -> Template:
        """Parse a mapping of parameters, or a dimension of such mappings."""
        if node.value is None:
            return {}
        if not node.is_map:
            return self.wrong(node, path, f"must be a mapping such as {{eta: 0.1}}, got {node.show()}")
        if kind := self.domain(node, path):
            return self.branches(node, path, kind, self.params)
        template: dict[str, Template] = {}
        for key, child in node.value.items():
            if not isinstance(key, str) or not key:
                self.problems.add(node.keys[key], f"{path}.{key}", "the name of a parameter must be text; quote it")
            elif key != "when":
                template[key] = self.anything(child, f"{path}.{key}")
                if template[key] is not INVALID:
                    self._check_parameter(node, key, f"{path}.{key}")
        return template

    def _check_parameter(self, node: Node, name: str, path: str) -> None:
        """Check a parameter's name and values against the trainer's `TRAINER["parameters"]`."""
        known = self.definition.parameters
        if self.begun or not known:
            return
        if name in known:
            self.check_values(known[name], node.value[name], path)
        elif not self.definition.additional_parameters or closest(name, known, cutoff=0.8):
            hint = did_you_mean(name, known)
            if hint.startswith("valid") and len(known) > MOST_NAMES:
                hint = f"valid: {', '.join(list(known)[:MOST_NAMES])} and {len(known) - MOST_NAMES} more, which `sweeps schema` lists"
            text = f"is not a parameter of {self.trainer}; {hint}"
            self.problems.add(node.keys[name], path, text)

    def scaling(self, node: Node, path: str) -> Template:
        """Parse workers, GPUs and resources, or a dimension of such mappings."""
        if node.value is None:
            return {}
        if not node.is_map:
            return self.wrong(node, path, f"must be a mapping with keys {', '.join(SCALING)}, got {node.show()}")
        if kind := self.domain(node, path):
            return self.branches(node, path, kind, self.scaling)
        read: dict[str, Read] = {
            "num_workers": partial(self._checked, test=_workers, low=1),
            "use_gpu": partial(self._checked, test=_flag, low=None),
            "resources_per_worker": self._resources,
        }
        template = {}
        for key, child in node.value.items():
            if key in read:
                template[key] = read[key](child, f"{path}.{key}")
            elif key != "when":
                self.problems.add(node.keys[key], f"{path}.{key}", f"unknown key; {suggest('scaling', key, SCALING)}")
        return template

    def _resources(self, node: Node, path: str) -> Template:
        """Parse `resources_per_worker`: a mapping of names to amounts, or a dimension of such mappings."""
        if node.value is None:
            return {}
        if not node.is_map:
            return self.wrong(node, path, f"must be a mapping such as {{CPU: 1}}, got {node.show()}")
        if kind := self.domain(node, path):
            return self.branches(node, path, kind, self._resources)
        template = {}
        for key, child in node.value.items():
            where = f"{path}.{key}"
            if not isinstance(key, str) or not key:
                self.problems.add(node.keys[key], where, "a resource's name must be text")
            elif key.upper() in ("CPU", "GPU") and key != key.upper():  # Ray would wait for a custom resource forever
                self.problems.add(node.keys[key], where, f"unknown resource; did you mean `{key.upper()}`?")
            elif key != "when":
                template[key] = self._checked(child, where, test=_amount, low=0)
        return template

    def _checked(self, node: Node, path: str, test: Callable[[Any], str | None], low: int | None) -> Template:
        """Parse a scalar, or a dimension of scalars.

        Args:
            node: The value.
            path: Dotted key of the value.
            test: Returns the rule that a scalar breaks, or None.
            low: The smallest lower bound of a range of integers. None if ranges are not allowed.
        """
        kind = self.domain(node, path, "options" if low is None else "integers") if node.is_map else None
        if kind in (*BRANCHING, MALFORMED):
            return self.branches(node, path, str(kind), partial(self._checked, test=test, low=low))
        if kind and (low is None or not RULES[kind].integer):
            forms = "a constant, a grid or a choice" if low is None else "a constant, a grid, a choice or a range of integers"
            return self.wrong(node, path, f"must be {forms}, got {node.show()}")
        if kind:
            dim = self.numbers(node, path, kind)
            if isinstance(dim, Dimension) and low is not None and dim.lower is not None and dim.lower < low:
                return self.wrong(node, path, f"must be at least {low}, got {node.show()}")
            return dim
        if text := test(node.plain()):
            each = f"; to try each, write {{choice: {node.show()}}}" if node.is_list and node.value else ""
            return self.wrong(node, path, f"{text}, got {node.show()}{meant(node.value, boolean=low is None)}{each}")
        return node.value


def _workers(value: Any) -> str | None:
    """Return the rule that a number of workers breaks, or None."""
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if good and value > MOST_WORKERS:
        return f"must be at most {MOST_WORKERS}"
    return None if good else "must be an integer of at least 1"


def _flag(value: Any) -> str | None:
    """Return the rule that a boolean breaks, or None."""
    return None if isinstance(value, bool) else "must be true or false"


def _amount(value: Any) -> str | None:
    """Return the rule that the amount of a resource breaks, or None."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**53
    return None if good else "must be a number of at least 0"
