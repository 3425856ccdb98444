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
# A message shows at most this many characters of a wrong `format`.
_MOST_CHARACTERS = 40


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
    fault = "has no key `format`"
    if "format" in content:
        text = json.dumps(number)
        dots = "..." * (len(text) > _MOST_CHARACTERS)
        fault = f"`format` is {text[:_MOST_CHARACTERS]}{dots}"
    rule = f"this version of sweeps reads only format {FORMAT}"
    hint = "install the version of sweeps that wrote this file"
    return Problem(str(file), f"{fault}, but {rule}; {hint}")
