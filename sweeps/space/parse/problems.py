"""Problems of a space file with their places. All problems are collected and reported together."""

from __future__ import annotations

from typing import NamedTuple

from sweeps.core.errors import Problem


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


class Problems:
    """Collects the problems of one space file. All problems can then be reported together."""

    def __init__(self) -> None:
        self._by_place: dict[
            tuple[int, int, str, str], Problem
        ] = {}  # the key removes repetitions and sorts by place

    def add(self, mark: Mark, key: str, text: str) -> None:
        """Add a problem.

        Args:
            mark: Place in the file.
            key: Dotted key of the value with the problem. "" for a problem of the whole file or of
                an override.
            text: The message: the value, the rule, and the next thing to try.
        """
        place, key = place_and_key(mark.key_path, key) if mark.key_path else (str(mark), key)
        line = " ".join(f"{key}: {text}".split()) if key else " ".join(text.split())
        # overrides have no line; their problems are sorted after the problems of the file
        self._by_place[(mark.line or 10**9, mark.column, place, line)] = Problem(place, line)

    def extend(self, problems: tuple[Problem, ...]) -> None:
        """Add problems that already have a place.

        The problems of a file that is not YAML are an example.
        """
        for i, problem in enumerate(problems):
            self._by_place[(0, i, problem.place, problem.text)] = problem

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
    return (
        (key, "")
        if key.startswith(key_path.removeprefix("space.")) or key_path == "space"
        else (key_path, key)
    )
