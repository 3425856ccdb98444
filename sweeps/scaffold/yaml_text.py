"""Format values as YAML 1.2 for the space files that `sweeps init` writes. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.space.nodes import scalar

_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./-]*\Z")
# Column in which the comment of a line starts, if the line is short enough.
COMMENT_AT = 44


def quoted(value: Any) -> str:
    """Return a value as YAML in one line. A text gets quotes if YAML or a space file would read it as something else.

    >>> quoted("size"), quoted("%d/%m/%Y"), quoted("8"), quoted(0.001), quoted([True, None, "a b"])
    ('size', '"%d/%m/%Y"', '"8"', '0.001', '[true, null, "a b"]')
    """
    if isinstance(value, str):
        text = value.replace("${", "$${")
        if _PLAIN.match(text) and scalar(text) == text:
            return text
        written = json.dumps(text, ensure_ascii=False)
        return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in written)  # YAML would fold a line separator
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)}: {quoted(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(quoted, value)) + "]"
    return str(value)


def number(value: float) -> str:
    """Return a float as YAML, which reads the same float.

    >>> number(0.1), number(1e-05), number(3.0), number(float("inf"))
    ('0.1', '1e-05', '3.0', '.inf')
    """
    text = repr(float(value))
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


def line(text: str, comment: str = "", indent: int = 0) -> str:
    """Return one line of a space file, with a comment that starts in the same column in each line."""
    head = " " * indent + text
    return f"{head.ljust(COMMENT_AT)}  # {comment}" if comment else head


def comment_lines(text: str, width: int = 100) -> list[str]:
    """Return a text as lines of comments of at most `width` characters."""
    import textwrap

    return [f"# {part}" for part in textwrap.wrap(text, width - 2, break_on_hyphens=False, break_long_words=False)]


def sweep_name(text: str) -> str:
    """Return a valid name of a sweep that is made of a text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._").lower()[:60] or "sweep"
