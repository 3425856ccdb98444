"""Format values, numbers and names for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def value_text(value: Any) -> str:
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
