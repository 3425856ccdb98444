"""Read and check JSON files of a sweep's folder.

The folder may come from a stranger, so the files may have any content.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError

from sweeps.core.errors import UnreadableFile
from sweeps.core.regular_files import read_bytes

# Largest allowed nesting depth of lists and objects. The depth is limited because the code that
# shows or copies values is recursive.
DEPTH = 60
_LARGEST = 10**300


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


def is_deep(value: JsonValue, depth: int = DEPTH) -> bool:
    """Return whether lists and objects of a JSON value are nested deeper than `depth` levels."""
    inner: Iterable[JsonValue] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return depth == 0 or any(is_deep(v, depth - 1) for v in inner if isinstance(v, (dict, list)))


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite float, or an int between -1e300 and 1e300.

    Booleans are not numbers here.
    """
    if type(value) is int:
        return abs(value) < _LARGEST
    return type(value) is float and math.isfinite(value)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that can be printed and be part of a path.

    Such a text has no NUL characters and no lone surrogates.
    """
    return (
        type(value) is str
        and "\0" not in value
        and not any("\ud800" <= c <= "\udfff" for c in value)
    )


def _check_text(text: str) -> str:
    if not is_text(text):
        raise ValueError("must not have NUL characters or lone surrogates")
    return text


Text = Annotated[str, AfterValidator(_check_text)]
Number = Annotated[float, Field(gt=-_LARGEST, lt=_LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=10**12)]


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
            path = ascii(".".join(map(str, error["loc"])))[1:-1][
                :80
            ]  # a key may be long, or hold control characters
            message = error["msg"].removeprefix("Value error, ")
            errors.setdefault(str(error["loc"][0]), f"`{path}`: {message[0].lower()}{message[1:]}")
        return errors
    return {}
