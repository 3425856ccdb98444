"""Read and check JSON files of a sweep's folder.

The folder may come from a stranger, so the files may have any content.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from sweeps.core.errors import UnreadableFile
from sweeps.core.json_values import is_deep

from .regular_files import read_bytes


def read_json(file: Path) -> Any:
    """Return the JSON value in a file.

    Return None if the file is not regular, cannot be read, is not JSON, or is nested too deeply.
    """
    try:
        value = json.loads(read_bytes(file).decode())
    except (OSError, UnreadableFile, ValueError, RecursionError):
        return None
    return None if is_deep(value) else value


def read_json_object(file: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file.

    Return None if the file holds another value, or cannot be read (see `read_json`).
    """
    value = read_json(file)
    return value if isinstance(value, dict) else None


def find_errors(rules: TypeAdapter[Any], content: Mapping[str, Any]) -> dict[str, str]:
    """Check the keys of a JSON object against a `TypedDict`.

    Args:
        rules: Pydantic adapter of the `TypedDict`. The JSON object may have other keys too.
        content: The JSON object.

    Returns:
        One message for each key that is missing or has an invalid value, by key. Empty if the
        object is valid.
    """
    try:
        rules.validate_python(content, strict=True)
    except ValidationError as e:
        errors: dict[str, str] = {}
        for error in e.errors(include_url=False):
            errors.setdefault(str(error["loc"][0]), describe(error))  # the first error of each key
        return errors
    return {}


def describe(error: ErrorDetails) -> str:
    """Return the message about an error of pydantic: the path of the value and the rule."""
    path = ascii(".".join(map(str, error["loc"])))[1:-1]
    message = error["msg"].removeprefix("Value error, ")
    # A key may be long, or hold control characters.
    return f"`{path[:80]}`: {message[0].lower()}{message[1:]}"
