"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Format a value as the text of a table cell: one line, with escaped vertical bars."""
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table.

    If there are no rows, return a sentence that says that the section has no keys.
    """
    lines = [[cell(one) for one in row] for row in rows]
    if not lines:
        return "It has no keys of its own.\n"
    made = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in made) + "\n"
