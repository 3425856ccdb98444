"""Suggest valid names in error messages about unknown names."""

import difflib
from collections.abc import Iterable


def closest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the valid name that is most similar to an unknown name.

    Return None if no valid name is similar enough.

    Args:
        name: The unknown name.
        valid: All valid names.
        cutoff: Smallest similarity that is enough, from 0 to 1 (see `difflib.get_close_matches`).

    >>> closest("loguniforn", ["uniform", "loguniform"])
    'loguniform'
    """
    return next(iter(difflib.get_close_matches(str(name), list(valid), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return the end of an error message about an unknown name.

    It suggests the most similar valid name, or lists all if none is similar.

    >>> did_you_mean("loguniforn", ["uniform", "loguniform"])
    'did you mean `loguniform`?'
    >>> did_you_mean("zzz", ["a", "b"])
    'valid: a, b'
    """
    valid = list(valid)
    match = closest(name, valid)
    return f"did you mean `{match}`?" if match is not None else "valid: " + ", ".join(valid)
