"""Nodes of a parsed YAML file, each with its line and column.

The function `scalar` determines the value of an unquoted scalar by the rules of YAML 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sweeps.core.text.secrets import hide_known

if TYPE_CHECKING:
    from sweeps.space.parse.problems import Problems

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


# A scalar of a file, and a value of a file without the places of its parts.
Scalar = bool | int | float | str | None
Plain = Scalar | Sequence["Plain"] | Mapping[Any, "Plain"]


class Mark(NamedTuple):
    """A place in a space file.

    For a `--set` override, only the text of the override; for a dict of a Python script, a key
    path.

    Attributes:
        source: The file as the user named it, or the override as `--set key=value`.
        line: Line, where the first line has number 1; 0 for an override.
        column: Column, where the first column has number 1; 0 for an override.
        key_path: In a dict of a Python script, the key path, such as `space.params.eta`. Messages
            show it in place of line and column.
    """

    source: str
    line: int = 0
    column: int = 0
    key_path: str = ""

    def __str__(self) -> str:
        if self.key_path:
            return self.key_path
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(slots=True)
class Node:
    """A value in a space file or an override, with its place.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or a dict whose values are nodes and
            whose keys are plain values.
        mark: Place where the value begins.
        raw: Text of a scalar. If the file has quotes around the scalar, this text has single
            quotes. "" for lists and mappings.
        key_mark: Place of the value's key in its mapping. None for values without such a place.
        path: Dotted path of the value, such as `data.train`; see `located`.
        problems: Collects the problems of the file; see `located`.
    """

    value: Any
    mark: Mark
    raw: str = ""
    key_mark: Mark | None = None
    path: str = ""
    problems: Problems | None = field(default=None, compare=False, repr=False)

    @property
    def at(self) -> Mark:
        """The place of the value's key. For an item of a list, the place where the value begins."""
        return self.key_mark or self.mark

    @property
    def is_map(self) -> bool:
        """True if the value is a mapping."""
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        """True if the value is a list."""
        return isinstance(self.value, list)

    def items(self) -> Iterable[tuple[Any, Node]]:
        """Return the keys and the values of a mapping, or the indices and the items of a list."""
        if isinstance(self.value, dict):
            return self.value.items()
        return enumerate(self.value) if self.is_list else ()

    def get(self, key: str) -> Node:
        """Return the value of a key or an index.

        For an absent one, return null, with the place of this value's own key.
        """
        for other, child in self.items():
            if str(other) == key:
                return child
        path = _path_below(self.path, key)
        return Node(None, self.at, path=path, problems=self.problems)

    def wrong(self, text: str, at: Mark | None = None) -> Invalid:
        """Add a problem. Return the placeholder for a value that could not be parsed.

        Args:
            text: The message: the rule, the value, and the next thing to try.
            at: Place of the problem. By default, it is the place where the value begins.
        """
        assert self.problems is not None, "only nodes from `located` have problems"
        self.problems.add(at or self.mark, self.path, text)
        return INVALID

    def find(self, path: str) -> Node:
        """Return the value at a dotted path; see `get`."""
        node = self
        for part in path.split("."):
            node = node.get(part)
        return node

    def wrong_key(self, text: str) -> Invalid:
        """Add a problem whose place is the value's key; see `wrong`."""
        return self.wrong(text, self.at)

    def wrong_inside(self, path: str, text: str) -> None:
        """Add a problem of a value in this mapping.

        Args:
            path: Dotted path of the value. If the file does not have the value, the message shows
                the place of the section's key.
            text: The message.
        """
        node = self.find(path)
        assert self.problems is not None, "only nodes from `located` have problems"
        self.problems.add(node.mark if "." in path else node.at, path, text)

    def plain(self) -> Any:
        """Return the value as plain Python data: a scalar, or nested lists and dicts.

        No part of the result is a `Node`.
        """
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def show(self, limit: int = 60) -> str:
        """Return the value as in the file, but on one line and cut to `limit` characters."""
        text = hide_known("".join(self._pieces()))  # before a secret is cut
        text = " ".join(text.split()) if "\n" in text else text
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def _pieces(self) -> Iterator[str]:
        """Yield the text of the value in YAML's flow style, piece by piece.

        An example of the text is `{a: [1, 2]}`.
        """
        if self.is_map:
            yield "{"
            for i, (key, node) in enumerate(self.value.items()):
                yield f"{', ' if i else ''}{key}: "
                yield from node._pieces()
            yield "}"
        elif self.is_list:
            yield "["
            for i, node in enumerate(self.value):
                yield ", " if i else ""
                yield from node._pieces()
            yield "]"
        else:
            yield self.raw or "null"


class Invalid:
    """Placeholder for a value that could not be parsed. A problem was added."""


INVALID = Invalid()


def located(node: Node, problems: Problems, path: str = "") -> Node:
    """Return a tree whose nodes know their paths and can add problems.

    Paths leave out `space.`, as the names of dimensions do: the path of `space.params.lr` is
    `params.lr`.

    Args:
        node: Root of the tree.
        problems: Collects the problems.
        path: Dotted path of the root; "" for a whole file.
    """
    inside: Any = node.value
    if node.is_map:
        inside = {
            key: located(child, problems, _path_below(path, key)) for key, child in node.items()
        }
    elif node.is_list:
        inside = [located(child, problems, _path_below(path, i)) for i, child in node.items()]
    return replace(node, value=inside, path=path, problems=problems)


def _path_below(path: str, key: Scalar) -> str:
    return str(key) if path in ("", "space") else f"{path}.{key}"


@dataclass(frozen=True)
class SpaceSource:
    """Text from which a space is loaded.

    Attributes:
        path: Absolute path of the space file, or of the script that takes its place.
        text: The text.
        root: The tree of the text.
        base: Folder for relative paths.
        overrides: Overrides that belong to the text.
        functions: Folder of a module with functions that a script passed; None if there is none.
        tables: Tables that a script passed, by their key of the section `data`.
        notes: Messages for the user.
    """

    path: Path
    text: str
    root: Node
    base: Path
    overrides: tuple[str, ...] = ()
    functions: Path | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


_SEPARATED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?\Z")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+\Z")
_OLD_BOOLEANS = {
    **dict.fromkeys(("yes", "y", "on"), "true"),
    **dict.fromkeys(("no", "n", "off"), "false"),
}


def scalar_hint(text: Plain, boolean: bool = False) -> str:
    """Return a hint for text that the user probably meant as a number or a boolean.

    The file has such text in quotes, or in a form that only YAML 1.1 reads as a number or a
    boolean. The hint is appended to an error message. For any other value, the hint is "".

    Args:
        text: The value in the space file.
        boolean: True if a boolean was expected, False if a number was expected.

    >>> scalar_hint("1_000"), scalar_hint("8"), scalar_hint("eight")
    ('; write 1000', '; write it without quotes', '')
    >>> scalar_hint("yes", boolean=True)
    '; write true'
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


def places(root: Node) -> dict[str, str]:
    """Return the place of every value of a file as `file:line:column`, by the value's dotted path.

    An example is `search.initial_points.0`.

    The sections of `space`, such as `params`, are also listed with the prefix, as `space.params`. A
    mapping under a key has the place of the key. Any other value has the place where the value
    begins. The path "" stands for the beginning of the file.

    Args:
        root: Root of the tree, from `located`.
    """
    by_path = {"": str(root.at)}

    def walk(node: Node) -> None:
        for _, child in node.items():
            mark = str(child.at if child.is_map else child.mark)
            by_path[child.path] = mark
            if node.path == "space":
                by_path[f"space.{child.path}"] = mark
            walk(child)

    walk(root)
    return by_path


def scalar(text: str) -> Scalar:
    """Return the value that the core schema of YAML 1.2 gives a plain scalar (one without quotes).

    Raises:
        ValueError: The number is too large for a Python int or float.

    >>> scalar("1e-4"), scalar("012"), scalar("0o14"), scalar("no"), scalar("1_000")
    (0.0001, 12, 12, 'no', '1_000')
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) or _BASED.match(text):
        if len(text) > 300:
            raise ValueError(f"a number of {len(text)} digits is too large")
        return int(text) if _INT.match(text) else int(text, 0)
    if inf := _INF.match(text):
        return float(inf[1] + "inf")
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{text[:40]} is too large for a float; write `.inf` for infinity")
        return number
    return text
