"""Format values, numbers and names for people."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue


def value_text(value: JsonValue | tuple[JsonValue, ...]) -> str:
    """Return the text of a value. Floats have at most six significant digits.

    >>> value_text(0.12345678), value_text(None), value_text(True), value_text(("a", 1))
    ('0.123457', 'null', 'true', "['a', 1]")
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(list(value) if isinstance(value, tuple) else value)


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_noun(1, "trial"), count_noun(2000, "trial")
    ('1 trial', '2,000 trials')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def count_states(trials: Mapping[str, int]) -> str:
    """Return the number of trials in each state; "" if there are none.

    >>> count_states({"completed": 3, "pruned": 0, "failed": 1})
    '3 completed, 1 failed'
    """
    return ", ".join(f"{n:,} {state}" for state, n in trials.items() if n)


def first_names(names: Sequence[str], most: int = 12) -> str:
    """Return the first names of a list.

    >>> first_names(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters. The middle of a longer text is cut out.

    >>> shortened("learning_rate_schedule.yaml", 20)
    'learning_ra…ule.yaml'
    """
    end = 2 * most // 5
    return text if len(text) <= most else f"{text[: most - 1 - end]}…{text[-end:]}"


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return rows as lines with aligned cells, two spaces apart.

    Args:
        rows: The cells of each row.
        right: Indices of the columns that are aligned to the right.
    """
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(size) if i in right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
