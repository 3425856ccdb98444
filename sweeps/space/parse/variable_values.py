"""Replace environment variables in the tree of a space file.

A variable whose value is a secret stays in the tree as `${NAME}`, so that its value is not
recorded. It is allowed in two places only: in `runtime_env.env_vars`, whose values are never
recorded, and in the arguments of a loader, which are replaced when the loader is called.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sweeps.core.plugins import references
from sweeps.core.text import environment_variables
from sweeps.core.text.environment_variables import Reference, VariableError
from sweeps.core.text.secrets import is_secret_variable, remember
from sweeps.space.yaml.scalars import scalar

from .nodes import Node


@dataclass
class Variables:
    """The environment variables that a space file uses.

    Attributes:
        environment: The variables that are set.
        optional: True if a secret may be unset, because the space is only looked at.
        values: Value of each variable that is no secret. It is recorded, so that a resumed sweep
            has the same space.
        secrets: Names of the secrets, as keys. Their values are not recorded.
        missing: Names of the secrets that are not set, as keys.
    """

    environment: Mapping[str, str]
    optional: bool = False
    values: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)

    def text(self, reference: Reference, place: str) -> str:
        """Return the text for a variable.

        Args:
            reference: The variable.
            place: "recorded", "hidden" (in `runtime_env.env_vars`) or "late" (an argument of a
                loader).

        Raises:
            VariableError: The variable is not set, or is a secret in a place that is recorded.
        """
        name = reference.name
        if reference.is_secret(self.environment):
            if place == "recorded":
                raise VariableError(
                    f"{name} is a secret, and this value would be recorded; pass it with "
                    "`runtime_env.env_vars`, or as an argument of a loader"
                )
            self.secrets[name] = None
            if self.optional and reference.default is None and name not in self.environment:
                self.missing[name] = None
                return reference.written
            value = reference.value(self.environment)
            return reference.written if place == "late" else value
        value = reference.value(self.environment)
        self.values[name] = value
        # The arguments of a loader are replaced again later, so a `${` in a value is escaped.
        return value.replace("${", "$${") if place == "late" else value


def replace_variables(node: Node, variables: Variables, place: str = "recorded") -> Node:
    """Return a tree with the values of environment variables.

    Add a problem for each variable that cannot be replaced.

    A scalar without quotes gets the type that its text has after the replacement, so `${N}` may
    become a number. Keys stay as they are.

    Args:
        node: The tree of the space file, with the overrides.
        variables: The environment; the variables that the file uses are added.
        place: Use of the values; see `Variables.text`.
    """
    if node.path == "runtime_env.env_vars":
        place = "hidden"
    if node.is_map:
        inside: Any = {}
        for key, child in node.items():
            is_call = node.path.startswith("data.") and references.is_reference(str(key))
            inside[key] = replace_variables(child, variables, "late" if is_call else place)
    elif node.is_list:
        inside = [replace_variables(child, variables, place) for _, child in node.items()]
    elif isinstance(node.value, str) and "${" in node.value:
        return _replace_in_text(node, variables, place)
    else:
        return node
    return replace(node, value=inside)


def remember_secrets(root: Node) -> None:
    """Hide the secrets of `runtime_env.env_vars` in the texts of this process.

    Args:
        root: The tree of the space file, in which environment variables are replaced. Its values
            may have wrong types.
    """
    for name, child in root.find("runtime_env.env_vars").items():
        if is_secret_variable(str(name), str(child.value)):
            remember(str(child.value))


def _replace_in_text(node: Node, variables: Variables, place: str) -> Node:
    """Return the node of a text in which the variables are replaced; see `replace_variables`.

    In messages, a value that is not recorded is shown as the file has it.
    """
    quote = "'" if node.raw.startswith("'") else ""
    try:
        text = environment_variables.replace(
            node.value,
            lambda reference: variables.text(reference, place),
            keep_escapes=place == "late",
        )
        value = text if quote else scalar(text)
    except ValueError as e:
        node.wrong(str(e))
        return node
    raw = f"{quote}{text}{quote}" if place == "recorded" else node.raw
    return replace(node, value=value, raw=raw)
