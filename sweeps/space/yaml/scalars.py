"""Scalars of a YAML file by the rules of YAML 1.2."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

# The core schema of YAML 1.2.2 (10.3.2).
_INT = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


MOST_DIGITS = 300  # a float cannot hold an integer that is much longer
# A scalar of a file, and a value of a file without the places of its parts.
Scalar = bool | int | float | str | None
Plain = Scalar | Sequence["Plain"] | Mapping[Any, "Plain"]


def scalar(text: str) -> Scalar:
    """Return the value that the core schema of YAML 1.2 gives a plain scalar (one without quotes).

    Raises:
        ValueError: The number is too large for a Python int or float.

    >>> scalar("1e-4"), scalar("012"), scalar("0o14"), scalar("no"), scalar("1_000")
    (0.0001, 12, 12, 'no', '1_000')
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) or _BASED.match(text):
        if len(text) > MOST_DIGITS:
            raise ValueError(f"a number of {len(text)} digits is too large")
        return int(text) if _INT.match(text) else int(text, 0)  # 0: the prefix gives the base
    if inf := _INF.match(text):
        return float(inf[1] + "inf")
    if _FLOAT.match(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ValueError(f"{text[:40]} is too large for a float; write `.inf` for infinity")
        return number
    return text


def is_same(first: object, second: object) -> bool:
    """Return True if two scalars are equal. In Python, `True == 1`, but here they are different."""
    return first == second and isinstance(first, bool) == isinstance(second, bool)


_SEPARATED = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?\Z")
_BASE_60 = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+\Z")
_OLD_BOOLEANS = {
    **dict.fromkeys(("yes", "y", "on"), "true"),
    **dict.fromkeys(("no", "n", "off"), "false"),
}


def scalar_hint(text: Plain, boolean: bool = False) -> str:
    """Return a hint for text that the user probably meant as a number or a boolean.

    The file has such text in quotes, or in a form that only YAML 1.1 reads as a number or a
    boolean. The hint is appended to an error message. For any other value, the hint is "".

    Args:
        text: The value in the space file.
        boolean: True if a boolean was expected, False if a number was expected.

    >>> scalar_hint("1_000"), scalar_hint("8"), scalar_hint("eight")
    ('; write 1000', '; write it without quotes', '')
    >>> scalar_hint("yes", boolean=True)
    '; write true'
    """
    if not isinstance(text, str):
        return ""
    if boolean:
        word = text.lower()
        if word in _OLD_BOOLEANS:
            return f"; write {_OLD_BOOLEANS[word]}"
        return "; write it without quotes" if word in ("true", "false") else ""
    if _SEPARATED.match(text) and "_" in text:
        return f"; write {text.replace('_', '')}"
    if _BASE_60.match(text):
        return "; YAML 1.2 has no numbers to base 60"
    return "; write it without quotes" if _INT.match(text) or _FLOAT.match(text) else ""
