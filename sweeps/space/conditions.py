"""Conditions: whether a dimension is there, given what was chosen before it. Pure; `when` reads them from a file.

A `when` is a conjunction, and so is everything that it rests on: the conditions of the dimensions it names, and the options that these
stand in. So what a dimension needs is a set of values for each of some others, and whether it can ever be met is known for certain.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TESTS = COMPARISONS | {"==": operator.eq}


class Absent(enum.Enum):
    """What an inactive dimension comes to. An enum, so that a copy from another process is the same."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Term:
    """One key of a `when`: another dimension, and what it must be.

    Attributes:
        name: of the dimension that is asked.
        keys: of a grid or a choice: the keys of the options that will do.
        tests: of a domain of numbers: comparisons such as (">", 3), any of which will do.
    """

    name: str
    keys: tuple[Any, ...] = ()
    tests: tuple[tuple[str, float], ...] = ()

    def holds(self, value: Any) -> bool:
        """Whether this value, which of an option is its key, will do."""
        if any(key == value and isinstance(key, bool) == isinstance(value, bool) for key in self.keys):
            return True
        return any(_TESTS[sign](value, number) for sign, number in self.tests)


def holds(when: Collection[Term], known: Mapping[str, Any], undecided: Collection[str] = ()) -> bool | None:
    """Whether a condition holds.

    Args:
        when: all of these must.
        known: what is chosen, by name: an option's key, or a number's value. A dimension that is not here is inactive, and no condition
            on it holds.
        open_: names of dimensions that may still be anything.

    Returns:
        None if that depends on what is open.
    """
    answer: bool | None = True
    for term in when:
        if term.name in known:
            if not term.holds(known[term.name]):
                return False
        elif term.name not in undecided:
            return False
        else:
            answer = None
    return answer
