"""What a YAML file is read to: nodes that know their place, and what a plain scalar means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# The core schema of YAML 1.2.2 (10.3.2).
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


class Mark(NamedTuple):
    """Where something stands.

    Attributes:
        source: the file as the user named it, or `--set key=value`.
        line: 1 for the first; 0 for an override, which has no lines.
        column: 1 for the first character.
    """

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(slots=True)
class Node:
    """A value of the file and where it stands.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or a mapping of plain keys to nodes.
        mark: where the value begins.
        keys: of a mapping, where each key stands.
        raw: a scalar as it is written, quotes included.
    """

    value: Any
    mark: Mark
    keys: dict[Any, Mark] = field(default_factory=dict)
    raw: str = ""

    @property
    def line(self) -> int:
        """The line of the value, from 1; 0 if it came from an override."""
        return self.mark.line

    @property
    def column(self) -> int:
        """The column of the value, from 1; 0 if it came from an override."""
        return self.mark.column

    @property
    def is_map(self) -> bool:
        """Whether it is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.value, list)

    def plain(self) -> Any:
        """The value without positions: scalars, lists, dicts."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def show(self, limit: int = 60) -> str:
        """The value as written, on one line, shortened to `limit` characters."""
        text = "".join(self._pieces())
        text = " ".join(text.split()) if "\n" in text else text
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def _pieces(self) -> Iterator[str]:
        if isinstance(self.value, dict):
            yield "{"
            for i, (key, node) in enumerate(self.value.items()):
                yield f"{', ' if i else ''}{key}: "
                yield from node._pieces()
            yield "}"
        elif isinstance(self.value, list):
            yield "["
            for i, node in enumerate(self.value):
                yield ", " if i else ""
                yield from node._pieces()
            yield "]"
        else:
            yield self.raw or "null"


_SEPARATED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?\Z")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+\Z")
_OLD_BOOLEANS = {**dict.fromkeys(("yes", "y", "on"), "true"), **dict.fromkeys(("no", "n", "off"), "false")}


def meant(text: Any, boolean: bool = False) -> str:
    """The tail of a message about text where a number or a boolean belongs: what it is under YAML 1.1, or without its quotes.

    >>> meant("1_000"), meant("8"), meant("eight"), meant("yes", boolean=True)
    ('; write 1000', '; write it without quotes', '', '; write true')
    """
    if not isinstance(text, str):
        return ""
    if boolean:
        word = text.lower()
        if word in _OLD_BOOLEANS:
            return f"; write {_OLD_BOOLEANS[word]}"
        return "; write it without quotes" if word in ("true", "false") else ""
    if _SEPARATED.match(text) and "_" in text:
        return f"; write {text.replace('_', '')}"
    if _BASE_60.match(text):
        return "; YAML 1.2 has no numbers to base 60"
    return "; write it without quotes" if _INT.match(text) or _FLOAT.match(text) else ""


def places(root: Node, source: str) -> dict[str, str]:
    """Where everything in a file stands: `file:line:column` by dotted path, list items by their number.

    Paths are those of problems and dimensions: what stands under `space:` is without `space.`; the sections there have both.
    A mapping stands where its key does, all else where its value begins; "" is the beginning of the file.
    """
    found = {"": str(Mark(source, 1, 1))}

    def walk(node: Node, path: str) -> None:
        children = node.value.items() if node.is_map else enumerate(node.value) if node.is_list else ()
        for key, child in children:
            mark = node.keys[key] if child.is_map and node.is_map else child.mark
            where = f"{path}.{key}" if path else str(key)
            found[where] = str(mark)
            if path == "space":
                found[str(key)] = str(mark)
                where = str(key)
            walk(child, where)

    walk(root, "")
    return found


def scalar(text: str) -> bool | int | float | str | None:
    """What a plain scalar means under the core schema of YAML 1.2.

    Raises:
        ValueError: a number that no Python int or float holds.

    >>> scalar("1e-4"), scalar("012"), scalar("0o14"), scalar("no"), scalar("1_000")
    (0.0001, 12, 12, 'no', '1_000')
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        if len(text) > 300:
            raise ValueError(f"a number of {len(text)} digits is too large")
        return int(text)
    if _BASED.match(text):
        if len(text) > 300:
            raise ValueError(f"a number of {len(text)} digits is too large")
        return int(text[2:], 8 if text[1] == "o" else 16)
    if inf := _INF.match(text):
        return float(inf[1] + "inf")
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{text[:40]} is too large for a float; write `.inf` for infinity")
        return number
    return text
