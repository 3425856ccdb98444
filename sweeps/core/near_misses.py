"""Regular expressions that match misspelt names, so that a JSON Schema can refuse them and still accept names that it does not know."""

from __future__ import annotations

from collections.abc import Iterable


def near_misses(name: str, other_words: Iterable[str] = ()) -> str:
    """Return a regular expression that matches the misspellings of a name, but not the name itself.

    These are texts that differ from the name by one character, or by two swapped neighbours; texts
    that differ only in case, `_` and `-`; and other words for the name. The expression is valid in
    Python and in JavaScript.

    Args:
        name: The name: letters, digits and `_`.
        other_words: Words of other tools for the same thing. Their case, `_` and `-` are ignored.

    >>> import re
    >>> [bool(re.search(near_misses("torch", ["pytorch"]), text)) for text in ("torh", "Torch", "pytorch", "torch", "my_torch")]
    [True, True, True, False, False]
    """
    return (
        f"^(?!{name}$)(?:{'|'.join([_one_mistake(name), *map(_any_case, (name, *other_words))])})$"
    )


def _one_mistake(name: str) -> str:
    """Return a regular expression for a name with at most one mistake.

    It is nested, because it is then shorter than a list of mistakes.
    """
    if not name:
        return ".?"
    first, rest = name[0], name[1:]
    swapped = [rest[0] + first + rest[1:]] if rest else []
    return f"(?:{'|'.join([first + _one_mistake(rest), '.?' + rest, '.' + name, *swapped])})"


def _any_case(word: str) -> str:
    """Return a regular expression for a word in which case, `_` and `-` are ignored."""
    letters = [
        f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else letter
        for letter in word
        if letter not in "_-"
    ]
    return "[-_]*".join(letters)


def refused(expression: str, accepted: Iterable[str] = ()) -> str:
    """Return a regular expression that matches every text that does not match `expression`, and the names in `accepted`."""
    others = f"(?!{expression.removeprefix('^')})"
    names = "|".join(accepted)
    return f"^(?:(?:{names})$|{others})" if names else f"^{others}"
