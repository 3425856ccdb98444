"""Environment variables in texts: `${NAME}`, and `${NAME:-default}` for one that may be unset.

`$${` stands for `${`. The space file and the arguments of loaders use these functions. A variable
is a secret if its name or its value says so. The value of a secret is never recorded, so a secret
stays in the text until the value is used. From then on, the process hides the value in its texts.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .secrets import is_secret_variable, remember

FORM = "write ${NAME}, or ${NAME:-default}; write $${ for the characters ${"
_VARIABLE = re.compile(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\})?")


class VariableError(ValueError):
    """Raised if a variable is not set, or if a text has a form that is not allowed.

    The message has one line.
    """


@dataclass(frozen=True)
class Reference:
    """A variable in a text.

    Attributes:
        name: Name of the variable.
        default: Text to use if the variable is unset or empty. None if the variable must be set.
        written: The reference as written, such as `${NAME:-default}`.
    """

    name: str
    default: str | None
    written: str

    def value(self, environment: Mapping[str, str]) -> str:
        """Return the value of the variable, or its default.

        If the value is a secret, hide it in the texts of this process from now on.

        Raises:
            VariableError: The variable is not set, and there is no default.
        """
        value = environment.get(self.name)
        if self.default is not None:
            value = value or self.default
        if value is None:
            text = (
                f"the environment variable {self.name} is not set; set it, or write a default "
                f"such as ${{{self.name}:-value}}"
            )
            raise VariableError(text)
        if is_secret_variable(self.name, value):
            remember(value)
        return value

    def is_secret(self, environment: Mapping[str, str]) -> bool:
        """Return whether the variable is a secret, by its name or its value."""
        return is_secret_variable(self.name, environment.get(self.name) or self.default or "")


def replace(text: str, value_of: Callable[[Reference], str], keep_escapes: bool = False) -> str:
    """Replace each variable in a text.

    Args:
        text: The text.
        value_of: Function that returns the text for a variable.
        keep_escapes: True to leave `$${` as it is, for a text that is replaced again later.

    Raises:
        VariableError: The text has `${` without a valid name or without the closing brace.

    >>> replace("${A} and $${B}", lambda reference: reference.name.lower())
    'a and ${B}'
    """

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return match[0] if keep_escapes else "${"
        if match[1] is None:
            raise VariableError(
                f"`{text[match.start() : match.start() + 30]}` is not a variable; {FORM}"
            )
        return value_of(Reference(match[1], match[2], match[0]))

    return _VARIABLE.sub(replacement, text)


def resolve(value: Any, environment: Mapping[str, str]) -> Any:
    """Replace each variable in a text, or in the texts of nested lists and mappings.

    Raises:
        VariableError: A variable is not set.
    """
    if isinstance(value, str):
        return replace(value, lambda reference: reference.value(environment))
    if isinstance(value, Mapping):
        return {key: resolve(inner, environment) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(inner, environment) for inner in value]
    return value
