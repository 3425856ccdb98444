"""Conditions: decide whether a dimension is active, given the values of earlier dimensions. Pure; `when_parser` reads them.

A `when` is a conjunction: it needs certain values of each dimension that it names. Those dimensions may have conditions themselves, which
are conjunctions too. `load` can therefore decide whether a condition can ever be true.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
_TESTS = COMPARISONS | {"==": operator.eq}


class Absent(enum.Enum):
    """The value of an inactive dimension. An enum member is unpickled as the same object."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Term:
    """One key of a `when`: another dimension, and the values that it must have.

    Attributes:
        name: Name of the other dimension.
        keys: For a grid or a choice: keys of the accepted options.
        tests: For a domain of numbers: comparisons such as (">", 3). One of them must be true.
    """

    name: str
    keys: tuple[Any, ...] = ()
    tests: tuple[tuple[str, float], ...] = ()

    def holds(self, value: Any) -> bool:
        """Return whether a value is accepted. The value of a grid or a choice is the key of its option."""
        if any(key == value and isinstance(key, bool) == isinstance(value, bool) for key in self.keys):
            return True
        return any(_TESTS[sign](value, number) for sign, number in self.tests)


def holds(when: Collection[Term], known: Mapping[str, Any], undecided: Collection[str] = ()) -> bool | None:
    """Evaluate a condition.

    Args:
        when: The terms, all of which must be true.
        known: Value of each decided dimension: the key of its option, or its number. A dimension that is neither here nor in `undecided` is
            inactive, and every term on it is false.
        undecided: Names of dimensions that have no value yet.

    Returns:
        True or False. None if the result depends on undecided dimensions.
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
