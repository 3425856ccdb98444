"""Regular expressions that match misspelt names, so that a JSON Schema can refuse them and still accept names that it does not know."""

from __future__ import annotations

from collections.abc import Iterable


def near_misses(name: str, other_words: Iterable[str] = ()) -> str:
    """Return a regular expression that matches the misspellings of a name, but not the name itself.

    These are texts that differ from the name by one character, or by two swapped neighbours; texts that differ only in case, `_` and `-`;
    and other words for the name. The expression is valid in Python and in JavaScript.

    Args:
        name: The name: letters, digits and `_`.
        other_words: Words of other tools for the same thing. Their case, `_` and `-` are ignored.

    >>> import re
    >>> [bool(re.search(near_misses("torch", ["pytorch"]), text)) for text in ("torh", "Torch", "pytorch", "torch", "my_torch")]
    [True, True, True, False, False]
    """
    wrong_or_missing = [f"{name[:i]}.?{name[i + 1 :]}" for i in range(len(name))]
    added = [f"{name[:i]}.{name[i:]}" for i in range(len(name) + 1)]
    swapped = [name[:i] + name[i + 1] + name[i] + name[i + 2 :] for i in range(len(name) - 1)]
    alternatives = [*wrong_or_missing, *added, *swapped, *map(_any_case, (name, *other_words))]
    return f"^(?!{name}$)(?:{'|'.join(alternatives)})$"


def _any_case(word: str) -> str:
    """Return a regular expression for a word in which case, `_` and `-` are ignored."""
    letters = [f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter for letter in word if letter not in "_-"]
    return "[-_]*".join(letters)


def refused(expression: str) -> str:
    """Return a regular expression that matches every text that does not match `expression`."""
    return f"^(?!{expression.removeprefix('^')})"
