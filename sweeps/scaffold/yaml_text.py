"""Format values as YAML 1.2 for the space files that `sweeps init` writes. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.core.text.shell_text import printable
from sweeps.space.yaml.yaml_writer import flow

# Column in which the comment of a line starts, if the line is short enough.
COMMENT_AT = 44


def yaml_value(value: Any) -> str:
    """Return a value as YAML in one line.

    A `${` in a text stays as it is, and does not name an environment variable.

    >>> yaml_value("size"), yaml_value("${HOME}"), yaml_value([True, None, "a b"])
    ('size', '"$${HOME}"', '[true, null, "a b"]')
    """
    return flow(_escape(value))


def _escape(value: Any) -> Any:
    """Escape each `${` in the texts of a value. Keys are not escaped: they have no variables."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: _escape(inner) for key, inner in value.items()}
    return [_escape(inner) for inner in value] if isinstance(value, Sequence) else value


def line(text: str, comment: str = "", indent: int = 0) -> str:
    """Return one line of a space file, with a comment that starts in the same column in each line.

    Args:
        text: The line without its indentation, as YAML.
        comment: Any text; "" for no comment.
        indent: Number of spaces before the line.
    """
    head = " " * indent + text
    return f"{head.ljust(COMMENT_AT)}  # {one_line(comment)}" if comment else head


def comment_lines(text: str) -> list[str]:
    """Return any text as lines of comments.

    Only a single word makes a line longer than 100 characters.
    """
    import textwrap

    parts = textwrap.wrap(one_line(text), 98, break_on_hyphens=False, break_long_words=False)
    return [f"# {part}" for part in parts]


def one_line(text: str) -> str:
    """Return a stranger's text in one line, which cannot end a comment or control a terminal."""
    return printable(" ".join(text.split()))


def space_file(
    origin: str,
    notes: Sequence[str],
    *,
    name: str,
    trainer: str,
    sections: Sequence[str],
    params: Sequence[str],
) -> str:
    """Return the text of a space file that is translated from another tool.

    Args:
        origin: The options of `sweeps init`, such as `--from-optuna study.db`.
        notes: Notes for the comment at the beginning of the file.
        name: Text from which the name of the sweep is made.
        trainer: Value of the key `trainer`.
        sections: Lines of the sections about the search.
        params: Lines of `space.params`.
    """
    lines = comment_lines(f"Written by `sweeps init {origin}`.")
    for note in notes:
        lines += ["#", *comment_lines(note)]
    lines += [f"name: {yaml_value(sweep_name(name))}", f"trainer: {trainer}", ""]
    lines += [*sections, "", "space:", "  params:", *params]
    return "\n".join(lines) + "\n"


def sweep_name(text: str) -> str:
    """Turn a text into a valid name of a sweep."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._").lower()[:60] or "sweep"
