"""Suggest valid names in error messages about unknown names."""

import difflib
from collections.abc import Iterable


def closest(name: object, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the valid name that is most similar to an unknown name.

    Return None if no valid name is similar enough.

    Args:
        name: The unknown name. A name that is not text is converted to text.
        valid: All valid names.
        cutoff: Smallest similarity that is enough, from 0 to 1 (see `difflib.get_close_matches`).

    >>> closest("loguniforn", ["uniform", "loguniform"])
    'loguniform'
    """
    return next(iter(difflib.get_close_matches(str(name), list(valid), n=1, cutoff=cutoff)), None)


def did_you_mean(name: object, valid: Iterable[str], unmatched: str | None = None) -> str:
    """Return the end of an error message about an unknown name.

    It suggests the most similar valid name. If none is similar, it is `unmatched`, or by default a
    list of all valid names.

    >>> did_you_mean("loguniforn", ["uniform", "loguniform"])
    'did you mean `loguniform`?'
    >>> did_you_mean("zzz", ["a", "b"])
    'valid: a, b'
    """
    valid = list(valid)
    match = closest(name, valid)
    if match is not None:
        return f"did you mean `{match}`?"
    return "valid: " + ", ".join(valid) if unmatched is None else unmatched
