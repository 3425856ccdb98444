"""Nodes of a parsed YAML file with their places, and the problems of a space file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sweeps.core.errors import Problem
from sweeps.core.text.secrets import hide_known
from sweeps.space.yaml.scalars import Scalar


class Mark(NamedTuple):
    """A place in a space file, in a `--set` override, or in a dict of a Python script.

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


class Problems:
    """Collects the problems of one space file. All problems can then be reported together."""

    def __init__(self) -> None:
        # The key (line, column, place, message) removes repetitions and sorts by place.
        self._by_place: dict[tuple[int, int, str, str], Problem] = {}

    def add(self, mark: Mark, key: str, text: str) -> None:
        """Add a problem.

        Args:
            mark: Place in the file.
            key: Dotted key of the value with the problem. "" for a problem of the whole file or of
                an override.
            text: The message: the value, the rule, and the next thing to try.
        """
        place = str(mark)
        if mark.key_path:
            place, key = place_and_key(mark.key_path, key)
        message = " ".join((f"{key}: {text}" if key else text).split())  # in one line
        # overrides have no line; their problems are sorted after the problems of the file
        line = mark.line or 10**9
        self._by_place[line, mark.column, place, message] = Problem(place, message)

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Add problems that already have a place.

        The problems of a file that is not YAML are an example.
        """
        for i, problem in enumerate(problems):
            self._by_place[0, i, problem.place, problem.text] = problem

    def __len__(self) -> int:
        return len(self._by_place)

    def sorted(self) -> list[Problem]:
        """Return all problems, ordered by place. Problems of overrides come last."""
        return [self._by_place[key] for key in sorted(self._by_place)]


def place_and_key(key_path: str, key: str) -> tuple[str, str]:
    """Return the place of a problem in a script's dict, and the key that the message must name.

    The key is "" if the place already names it.

    Args:
        key_path: Key path of the value with the problem. If this value is missing, the key path of
            the section.
        key: Key of the value, for messages about a space file.

    >>> place_and_key("space.params.eta.uniform", "params.eta")
    ('space.params.eta.uniform', '')
    >>> place_and_key("objective", "objective.metric")
    ('objective.metric', '')
    """
    if key_path.removeprefix("space.").startswith(key) or key_path.startswith(key):
        return key_path, ""
    # The value is missing, and the place is its section, or the whole dict (`space`).
    if key.startswith(key_path.removeprefix("space.")) or key_path == "space":
        return key, ""
    return key_path, key


@dataclass(slots=True)
class Node:
    """A value in a space file or an override, with its place.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or a dict whose values are nodes and
            whose keys are plain values.
        mark: Place where the value begins. Messages about a wrong value name this place.
        raw: Text of a scalar. If the file has quotes around the scalar, this text has single
            quotes. "" for lists and mappings.
        key_mark: Place of the value's key in its mapping. None for values without such a place.
        path: Dotted path of the value, such as `data.train`; see `locate`.
        problems: Collects the problems of the file; see `locate`.
    """

    value: Any
    mark: Mark
    raw: str = ""
    key_mark: Mark | None = None
    path: str = ""
    problems: Problems | None = field(default=None, compare=False, repr=False)

    @property
    def at(self) -> Mark:
        """The place of the value's key, for messages about a wrong or superfluous key.

        For an item of a list, the place where the value begins.
        """
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
        assert self.problems is not None, "only nodes from `locate` have problems"
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
        assert self.problems is not None, "only nodes from `locate` have problems"
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


def locate(node: Node, problems: Problems, path: str = "") -> Node:
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
            key: locate(child, problems, _path_below(path, key)) for key, child in node.items()
        }
    elif node.is_list:
        inside = [locate(child, problems, _path_below(path, i)) for i, child in node.items()]
    return replace(node, value=inside, path=path, problems=problems)


def _path_below(path: str, key: Scalar) -> str:
    """Return the path of a value, given the path of its mapping; see `locate`."""
    return str(key) if path in ("", "space") else f"{path}.{key}"


def places(root: Node) -> dict[str, str]:
    """Return the place of every value of a file as `file:line:column`, by the value's dotted path.

    An example is `search.initial_points.0`.

    The sections of `space`, such as `params`, are also listed with the prefix, as `space.params`. A
    mapping under a key has the place of the key. Any other value has the place where the value
    begins. The path "" stands for the beginning of the file.

    Args:
        root: Root of the tree, from `locate`.
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
