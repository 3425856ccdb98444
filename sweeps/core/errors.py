"""The errors that sweeps raises on purpose, with their exit codes.

SweepsError                 base class; `sweeps` prints these errors without a traceback
├── InputError              a file, an option or an argument is wrong; lists all problems (exit 2)
│   ├── DamagedStudy        a sweep's study is damaged, or has fewer trials than the result says
│   └── UnreadableFile      a file in a sweep's folder is damaged, or is a link, a pipe or a folder
│       └── UntrustedFile   a file would run code when it is loaded, and this user did not write it
├── StoreError              S3-compatible storage does not answer, or refuses a request (exit 1)
├── SweepFailed             the sweep ran, but no trial has a value (exit 1)
├── SweepLocked             another process is running this sweep (exit 1)
├── BundleError             a bundle cannot be written or read, or its predictions differ from those
│                           in training (exit 1)
└── Interrupted             the user pressed Ctrl-C (exit 130)
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .text.secrets import masked
from .text.suggestions import did_you_mean

if TYPE_CHECKING:
    from .result import SweepResult

# Longer error texts are shortened to this many characters.
ERROR_LENGTH = 20_000
MOST_LISTED_TRIALS = 8


class SweepsError(Exception):
    """Base class of the errors that sweeps raises on purpose.

    Attributes:
        exit_code: Exit code of the command `sweeps` after this error.
        result: The `SweepResult`, if the sweep has written its result before it raised this error.
            None otherwise.
    """

    exit_code = 1
    result: SweepResult | None = None

    def __str__(self) -> str:
        """Return the message. Secrets are masked."""
        return masked(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return the lines that a notebook shows: the message without a traceback.

        The command `sweeps` shows errors like this, too. IPython calls this method.
        """
        return f"{type(self).__name__}: {self}".splitlines()


@dataclass(frozen=True, order=True)
class Problem:
    """One problem with the user's input.

    Attributes:
        place: `file:line:column` in a space file, or the name of an argument or a file.
        text: Description in one line: the key, its value, and the rule that the value breaks.
    """

    place: str
    text: str

    def __str__(self) -> str:
        """Return the problem in one line. Secrets are masked."""
        return masked(f"{self.place}: {self.text}")


class InputError(SweepsError):
    """A file, an option or an argument that the user gave is wrong.

    The message has one line for each problem.

    Args:
        problems: The problems; or the place of a single problem.
        text: The text of a single problem.
    """

    exit_code = 2

    def __init__(self, problems: Iterable[Problem] | Problem | str, text: str = ""):
        if isinstance(problems, str):
            problems = Problem(problems, text)
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how another process unpickles the error."""
        return type(self), (self.problems,)


class DamagedStudy(InputError):
    """A sweep's study is damaged, or has fewer trials than the sweep's result says."""


class UnreadableFile(InputError):
    """A file in a sweep's folder is damaged, or refused because a stranger may have written it."""


class SweepFailed(SweepsError):
    """The sweep ran, but no trial has a value.

    The message contains the error of the first trial that failed.
    """


class SweepLocked(SweepsError):
    """Another living process is running this sweep."""


class StoreError(SweepsError):
    """S3-compatible storage does not answer, or refuses a request."""


class BundleError(SweepsError):
    """A bundle cannot be written or read, or its predictions differ from those in training."""


# Why nothing is trained after an interrupt
INTERRUPTED = "the sweep was interrupted"


class Interrupted(SweepsError):
    """The user pressed Ctrl-C."""

    exit_code = 130


def make_encodable(text: str) -> str:
    r"""Replace lone surrogates in a text by escapes, so that UTF-8 can encode the text.

    `os.fsdecode` turns invalid bytes into surrogates.

    >>> make_encodable("caf\udce9")
    'caf\\udce9'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def shorten(text: str, longest: int = ERROR_LENGTH) -> str:
    """Make a text encodable in UTF-8.

    If the text has more than `longest` characters, replace its middle by a line with the number of
    characters that were left out, and with a digest of the whole text.
    """
    text = make_encodable(text)
    if len(text) <= longest:
        return text
    first = longest // 4
    last = longest - first - 100  # The line in the middle has at most 100 characters.
    left_out = f"{len(text) - first - last:,} characters were left out here"
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{text[:first]}\n... {left_out} (sha256 {digest}) ...\n{text[-last:]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type. Secrets are masked.

    For an error in a task of Ray, it is the last line of the traceback.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return masked(lines[-1 if hasattr(error, "as_instanceof_cause") else 0])


def join_first(texts: Sequence[str], most: int = 10) -> str:
    """Join the first `most` texts with commas, and say how many others there are.

    >>> join_first(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def differences_text(differences: Mapping[str, Collection[str]], joint: str) -> str:
    """Return a text that names how two sets differ; "" if they are equal.

    Args:
        differences: The names that are only in one of the sets, by the verb before them.
        joint: Text between the verbs with their names.

    >>> differences_text({"lacks": {"b", "a"}, "also has": {"c"}}, " and ")
    'lacks `a`, `b` and also has `c`'
    """
    texts = [
        f"{verb} {join_first([f'`{name}`' for name in sorted(names)])}"
        for verb, names in differences.items()
        if names
    ]
    return joint.join(texts)


def unknown_trial(place: str, typed: str, known: Collection[str]) -> InputError:
    """Return the error to raise if no trial has the id that the user gave.

    Args:
        place: Name of the argument in which the user gave the id.
        typed: The id that the user gave.
        known: The ids of all trials of the sweep. The message suggests or lists some of them. If
            there are more than `MOST_LISTED_TRIALS`, it names the first and the last.
    """
    hint = "no trial has started"
    if len(known) > MOST_LISTED_TRIALS:
        hint = f"the trials are {min(known)} to {max(known)}"
    elif known:
        hint = did_you_mean(typed.zfill(4), known)
    return InputError(place, f"no trial `{typed}`; {hint}")
