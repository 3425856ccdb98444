"""Texts for MLflow: what UTF-8 can encode, and the first lines of errors."""

from __future__ import annotations

from typing import Any

from sweeps.core import errors
from sweeps.core.secrets import masked


def first_line(error: Exception) -> str:
    """Return the first line of an error's message. Later lines of a database's error have SQL."""
    return masked((str(error).splitlines() or [type(error).__name__])[0])


def encodable(value: Any) -> Any:
    r"""Return a value with a backslash escape for each character that UTF-8 cannot encode.

    Such characters are lone surrogates, which `os.fsdecode` returns for bytes that are not UTF-8. A
    database refuses a whole batch of requests because of one such character.

    Args:
        value: A text, or a list or dict of such values. Other values are returned as they are.

    >>> encodable({"name": ["caf\udce9", 1]})
    {'name': ['caf\\udce9', 1]}
    """
    if isinstance(value, str):
        return errors.make_encodable(value)
    if isinstance(value, dict):
        return {encodable(key): encodable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [encodable(part) for part in value]
    return value
