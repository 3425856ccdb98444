"""Format parts of the texts that commands print: tables, pairs, sizes, ages and values."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from sweeps.core.text.shell_text import printable
from sweeps.core.text.texts import aligned, shortened, value_text
from sweeps.sweep_report.configuration import short_rows

if TYPE_CHECKING:
    from pydantic import JsonValue


# Width of lines if the output is a pipe or a file.
UNBOUNDED = 10_000
# If a table is too wide, its cells are cut to this many characters.
MAX_CELL = 20
# Characters that are shown of a long value of a configuration.
MAX_VALUE = 200


def width_of(stream: TextIO) -> int:
    """Return the width of a stream's terminal, or `UNBOUNDED` for a pipe or a file."""
    return shutil.get_terminal_size().columns if stream.isatty() else UNBOUNDED


def format_bytes(number: int) -> str:
    """Format a number of bytes, such as `512 bytes` or `1.2 GB`."""
    from rich.filesize import decimal

    return decimal(number)


def format_age(seconds: float) -> str:
    """Format an age in the largest unit that fits: `40 s`, `12 min`, `3 h`, `5 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def short_value(value: JsonValue) -> str:
    """Format a value of a configuration.

    If it is long, show the beginning and the number of characters.
    """
    text = value_text(value)
    if len(text) <= MAX_VALUE:
        return text
    return f"{text[:MAX_VALUE]}… ({len(text):,} characters)"


def format_table(
    head: Sequence[str],
    rows: Sequence[Sequence[JsonValue]],
    width: int,
    right: Collection[str] = (),
) -> str:
    """Format an aligned table. If the table is too wide, long cells and then long lines are cut.

    Args:
        head: Name of each column.
        rows: Values of each row.
        width: Width of the terminal.
        right: Names of the columns that are aligned to the right.
    """
    texts = [
        [printable(" ".join(short_value(value).splitlines())) for value in row]
        for row in (head, *rows)
    ]
    right_columns = [i for i, name in enumerate(head) if name in right]
    lines = aligned(texts, right_columns)
    if max(map(len, lines)) > width:
        limits = [max(MAX_CELL, len(name)) for name in texts[0]]
        lines = aligned([list(map(shortened, row, limits)) for row in texts], right_columns)
    return "\n".join(line[:width].rstrip() for line in lines)


def pairs(values: Iterable[tuple[str, JsonValue]]) -> list[str]:
    """Format names and values, one line each, with aligned values."""
    texts = [(name, value_text(value)) for name, value in values]
    size = max([12, *(len(name) for name, _ in texts)])
    return [f"  {name:<{size}}  {text}" for name, text in texts]


def configuration(trial: Mapping[str, Any]) -> list[str]:
    """Format the configuration of a trial, one line for each value; see `short_rows`."""
    return pairs((name, short_value(value)) for name, value in short_rows(trial))
