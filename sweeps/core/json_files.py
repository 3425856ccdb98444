"""JSON files of a sweep's folder, which may come from anyone: read as far as they hold what they should."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

# How deeply lists and objects may be nested: those who show or copy them go down by themselves.
DEPTH = 60
_LARGEST = 10**300


def read_json(file: Path) -> Any:
    """The JSON in a file; None if it is no regular file, is no JSON, or is nested too deeply."""
    if not file.is_file():  # of a pipe a reader would wait for ever
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return None if is_deep(found) else found


def read_json_object(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is none, see `value_in`."""
    found = read_json(file)
    return found if isinstance(found, dict) else None


def is_deep(value: Any, depth: int = DEPTH) -> bool:
    """Whether lists and objects are nested deeper than this."""
    inner = value.values() if type(value) is dict else value if type(value) is list else ()
    return depth == 0 or any(is_deep(v, depth - 1) for v in inner if type(v) in (dict, list))


def is_number(value: Any) -> bool:
    """Whether this is a finite number that a float can hold, and not true or false."""
    if type(value) is int:
        return abs(value) < _LARGEST
    return type(value) is float and math.isfinite(value)


def is_text(value: Any) -> bool:
    """Whether this is text that can be part of a path and be printed."""
    return type(value) is str and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
