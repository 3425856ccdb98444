"""Replace environment variables in the tree of a space file.

A variable whose value is a secret stays in the tree as `${NAME}`, so that its value is not
recorded. It is allowed in two places only: in `runtime_env.env_vars`, whose values are never
recorded, and in the arguments of a loader, which are replaced when the loader is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sweeps.core import references, variables
from sweeps.core.secrets import is_secret_variable, remember
from sweeps.core.variables import Reference, VariableError
from sweeps.space.nodes import Node, scalar
from sweeps.space.problems import Problems


@dataclass
class Variables:
    """The environment variables that a space file uses.

    Attributes:
        environment: the variables that are set.
        optional: True if a secret may be unset, because the space is only looked at.
        values: value of each variable that is no secret. It is recorded, so that a resumed sweep
            has the same space.
        secrets: names of the secrets. Their values are not recorded.
        missing: names of the secrets that are not set.
    """

    environment: Mapping[str, str]
    optional: bool = False
    values: dict[str, str] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def text(self, reference: Reference, place: str) -> str:
        """Return the text for a variable.

        Args:
            reference: the variable.
            place: "recorded", "hidden" (in `runtime_env.env_vars`) or "late" (an argument of a
                loader).

        Raises:
            VariableError: the variable is not set, or is a secret in a place that is recorded.
        """
        secret = reference.is_secret(self.environment)
        if secret and place == "recorded":
            way = "pass it with `runtime_env.env_vars`, or as an argument of a loader"
            raise VariableError(
                f"{reference.name} is a secret, and this value would be recorded; {way}"
            )
        if secret:
            self.secrets += [reference.name] * (reference.name not in self.secrets)
            if (
                self.optional
                and reference.default is None
                and reference.name not in self.environment
            ):
                self.missing += [reference.name] * (reference.name not in self.missing)
                return reference.written
        value = reference.value(self.environment)
        if secret:
            return reference.written if place == "late" else value
        self.values[reference.name] = value
        return value.replace("${", "$${") if place == "late" else value


def replace_variables(root: Node, found: Variables, problems: Problems) -> Node:
    """Return the tree with the values of environment variables.

    Add a problem for each variable that cannot be replaced.

    A scalar without quotes gets the type that its text has after the replacement, so `${N}` may
    become a number. Keys stay as they are.

    Args:
        root: the tree of the space file, with the overrides.
        found: the environment; the variables that the file uses are added.
        problems: collects the problems.
    """

    def walk(node: Node, path: tuple[Any, ...]) -> Node:
        if node.is_map:
            inside: Any = {key: walk(child, (*path, key)) for key, child in node.value.items()}
        elif node.is_list:
            inside = [walk(child, (*path, i)) for i, child in enumerate(node.value)]
        elif isinstance(node.value, str) and "${" in node.value:
            return _replaced(node, path, found, problems)
        else:
            return node
        return replace(node, value=inside)

    return walk(root, ())


def remember_secrets(root: Node) -> None:
    """Hide the secrets of `runtime_env.env_vars` in the texts of this process.

    Args:
        root: the tree of the space file, in which environment variables are replaced. Its values
            may have wrong types.
    """
    node: Node | None = root
    for key in ("runtime_env", "env_vars"):
        node = node.value.get(key) if node is not None and node.is_map else None
    for name, child in node.value.items() if node is not None and node.is_map else ():
        if is_secret_variable(str(name), str(child.value)):
            remember(str(child.value))


def _replaced(node: Node, path: tuple[Any, ...], found: Variables, problems: Problems) -> Node:
    place, name = _place(path), ".".join(str(key) for key in path)
    try:
        text = variables.replace(
            node.value, lambda reference: found.text(reference, place), keep_escapes=place == "late"
        )
        value = text if node.raw.startswith("'") else scalar(text)
    except ValueError as e:
        problems.add(node.mark, name.removeprefix("space."), str(e))
        return node
    quoted = "'" * node.raw.startswith("'")
    return replace(
        node, value=value, raw=f"{quoted}{text}{quoted}" if place == "recorded" else node.raw
    )


def _place(path: tuple[Any, ...]) -> str:
    """Return what happens to a value: see `Variables.text`."""
    if path[:2] == ("runtime_env", "env_vars"):
        return "hidden"
    in_call = any(isinstance(key, str) and references.is_reference(key) for key in path[1:-1])
    return "late" if path[:1] == ("data",) and in_call else "recorded"
