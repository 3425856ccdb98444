"""The number of the file format, which `origin.json` of a sweep's folder and `manifest.json` of a bundle have as the key `format`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.core.errors import Problem

# The format that this version writes. It reads no other format.
FORMAT = 1
# A version of sweeps as text, such as `0.1.0`. Other texts are not shown, because the file may come
# from a stranger.
_VERSION = re.compile(r"[0-9A-Za-z.+!-]{1,40}")
# Longest text of a wrong `format` in a message.
_LONGEST = 40


def format_problem(file: Path, content: Mapping[str, Any], writer: Any) -> Problem | None:
    """Return the problem if a file has another format than this version reads.

    Return None if the format is right.

    Args:
        file: The file that states the format.
        content: The JSON object in the file.
        writer: The version of sweeps that wrote the file. Anything but a version stands for an
            unknown version.
    """
    found = content.get("format")
    if type(found) is int and found == FORMAT:
        return None
    has = f"`format` is {_shown(found)}" if "format" in content else "has no key `format`"
    known = isinstance(writer, str) and _VERSION.fullmatch(writer)
    version = f"sweeps {writer}, which" if known else "the version of sweeps that"
    rule = f"this version of sweeps reads only format {FORMAT}"
    return Problem(str(file), f"{has}, but {rule}; install {version} wrote this file")


def _shown(value: Any) -> str:
    """Return a JSON value as text in one line, cut after `_LONGEST` characters."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
