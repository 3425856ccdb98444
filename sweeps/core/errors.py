"""Every error that sweeps raises on purpose, and the exit code each one means.

SweepsError                 anything below; `sweeps` prints it without a traceback
├── InputError              what the user wrote or passed is wrong (exit 2); lists every problem at once
│   └── DamagedStudy        the record of a sweep is damaged, or holds less than the sweep's result says
├── SweepFailed             the sweep ran, and there is no winner to show (exit 1)
├── SweepLocked             another process drives this sweep's folder (exit 1)
├── BundleError             a bundle cannot be written, or does not answer as it did in training (exit 1)
└── Interrupted             Ctrl-C (exit 130)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sweeps.core.secrets import masked
from sweeps.core.suggestions import did_you_mean

# The longest text of an error that is kept, in characters.
ERROR_LENGTH = 20_000


class SweepsError(Exception):
    """Base of every error that sweeps raises on purpose."""

    exit_code = 1
    # What a sweep that fails at its end came to all the same: a `SweepResult`.
    result: Any = None


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with the input: where, and which value breaks which rule.

    Attributes:
        place: `file:line:column` for a space file, else the name of the argument or the file.
        text: the dotted key, the offending value and the rule, in one line.
    """

    place: str
    text: str

    def __str__(self) -> str:
        """Return the problem in one line, without the secrets of the URIs in it."""
        return masked(f"{self.place}: {self.text}")


class InputError(SweepsError):
    """What the user wrote is wrong. Carries every problem that was found, one line each."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | Problem):
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def __reduce__(self):  # the message alone cannot rebuild it on the other side of a process
        return type(self), (self.problems,)


class DamagedStudy(InputError):
    """The study of a sweep is damaged, or holds less than the sweep's result says."""


class SweepFailed(SweepsError):
    """The sweep ran but has nothing to show; the message holds the first trial's error."""


class SweepLocked(SweepsError):
    """The sweep's folder is driven by another living process."""


class BundleError(SweepsError):
    """A bundle cannot be written or read, or answers differently from the model in training."""


class Interrupted(SweepsError):
    """The user pressed Ctrl-C."""

    exit_code = 130


def make_encodable(text: str) -> str:
    r"""Return a text that UTF-8 can encode. A lone surrogate, as `os.fsdecode` makes of odd bytes, becomes an escape.

    >>> make_encodable("caf\udce9")
    'caf\\udce9'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(text: str) -> str:
    """Return an error's text, encodable, with its middle left out where it has more than `ERROR_LENGTH` characters."""
    text = make_encodable(text)
    if len(text) <= ERROR_LENGTH:
        return text
    first = ERROR_LENGTH // 4
    last = ERROR_LENGTH - first - 100
    return f"{text[:first]}\n... {len(text) - first - last:,} characters were left out here ...\n{text[-last:]}"


def unknown_trial(place: str, asked: str, known: Collection[str]) -> InputError:
    """A trial was named that there is not.

    Args:
        place: the argument.
        asked: what was written.
        known: the ids that there are.
    """
    hint = did_you_mean(asked.zfill(4), known) if len(known) < 9 else f"there are {min(known)} to {max(known)}"
    return InputError(Problem(place, f"no trial `{asked}`; {hint if known else 'none was begun'}"))
