"""Evaluate the condition of a dimension (`when`). Pure functions, no I/O.

The values of earlier dimensions decide whether a dimension is active. `when_parser` parses the
conditions of a space file. A `when` is a conjunction: every dimension that the `when` names must
have one of certain values. These dimensions may have conditions too, which are also conjunctions.
`load` can therefore find out whether a condition can ever be true.
"""

import enum
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sweeps.core.best_step import COMPARISONS
from sweeps.space.yaml.scalars import is_same

# A value of a dimension as samplers and the study have it; see `Dimension.value`.
Key = None | bool | int | float | str

TESTS = COMPARISONS | {"==": operator.eq}


class Absent(enum.Enum):
    """The value of an inactive dimension.

    It is an enum member, so that `is` still recognizes it after unpickling.
    """

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Term:
    """One key of a `when`: the name of another dimension, and the values that it must have.

    Attributes:
        name: Name of the other dimension.
        keys: Keys of the accepted options if the other dimension is a grid or a choice; else ().
        tests: Comparisons such as (">", 3) if the other dimension has a domain of numbers; else ().
            A value is accepted if at least one comparison is true.
    """

    name: str
    keys: tuple[Key, ...] = ()
    tests: tuple[tuple[str, float], ...] = ()

    def holds(self, value: Key) -> bool:
        """Return True if a value of the other dimension is accepted.

        For a grid or a choice, `value` is the key of the chosen option.
        """
        return any(is_same(key, value) for key in self.keys) or any(
            TESTS[sign](value, number) for sign, number in self.tests
        )


def holds(
    when: Collection[Term], known: Mapping[str, Key], undecided: Collection[str] = ()
) -> bool | None:
    """Evaluate a condition.

    Args:
        when: The terms, all of which must be true.
        known: Value of each decided dimension: the key of its option, or its number. A dimension
            that is neither here nor in `undecided` is inactive, and every term on it is false.
        undecided: Names of dimensions that have no value yet.

    Returns:
        True if all terms are true; False if one is false. None if this depends on undecided
        dimensions.
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
