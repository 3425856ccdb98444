"""The number of the file format.

`origin.json` of a sweep's folder and `manifest.json` of a bundle have it as the key `format`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from sweeps.core.errors import Problem

# The format that this version writes. It reads no other format.
FORMAT = 2
# Longest text of a wrong `format` in a message.
_LONGEST = 40


def format_problem(file: Path, content: Mapping[str, JsonValue]) -> Problem | None:
    """Return the problem if a file has another format than this version reads.

    Return None if the format is right.

    Args:
        file: The file that states the format.
        content: The JSON object in the file.
    """
    number = content.get("format")
    if type(number) is int and number == FORMAT:
        return None
    has = f"`format` is {_shown(number)}" if "format" in content else "has no key `format`"
    rule = f"this version of sweeps reads only format {FORMAT}"
    text = f"{has}, but {rule}; install the version of sweeps that wrote this file"
    return Problem(str(file), text)


def _shown(value: JsonValue) -> str:
    """Return a JSON value as text in one line, cut after `_LONGEST` characters."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
