"""Texts of Ray's errors, as parts of one-line messages."""

from __future__ import annotations


def in_a_line(error: Exception) -> str:
    """Return the text of an error of Ray as one line.

    This is the last line of the text. For a version mismatch, all lines are joined, because the
    last line does not explain the error.
    """
    lines = [
        line.strip() for line in str(error.__cause__ or error).strip().splitlines() if line.strip()
    ]
    if lines and "mismatch" in lines[0].lower():
        return " ".join(lines)
    return lines[-1] if lines else type(error).__name__


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text that is not blank.

    If the text is blank, return the name of the error's class.
    """
    return next(
        (line.strip() for line in reversed(str(error).splitlines()) if line.strip()),
        type(error).__name__,
    )
