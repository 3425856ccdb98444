"""Conditions: decide whether a dimension is active, given the values of earlier dimensions. Pure; `when_parser` reads them.

A `when` is a conjunction. The conditions of the dimensions that it names are conjunctions too. Each dimension therefore needs a set of
values of each of some other dimensions, so sweeps can decide before the start whether a condition can ever be true.
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
    """The value of an inactive dimension. An enum member stays the same object when it is pickled."""

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
        known: Chosen values by dimension: the key of an option, or a number. Other dimensions are inactive, which makes a term false.
        undecided: Names of dimensions that have no value yet.

    Returns:
        Whether the condition is true. None if this depends on undecided dimensions.
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
