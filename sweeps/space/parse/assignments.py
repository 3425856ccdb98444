"""Parse values that a user gives on the command line, such as `eta=0.1,max_depth=4`.

Pure functions, no I/O.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.space.yaml.yaml12 import parse

_OPENING = "[{("
_CLOSING = "]})"
_QUOTES = "'\""


def parse_assignments(texts: Iterable[str], place: str) -> dict[str, Any]:
    """Return the values by name.

    Args:
        texts: Texts such as `eta=0.1,max_depth=4`. A value is YAML, so a text with a comma needs
            quotes.
        place: Name of the option for messages.

    Raises:
        InputError: A text has another form, or names a value twice. There is one problem for each.

    >>> parse_assignments(["eta=0.1,layers=[64, 32]", "booster=dart"], "--params")
    {'eta': 0.1, 'layers': [64, 32], 'booster': 'dart'}
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for part in itertools.chain.from_iterable(map(split, texts)):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            got = part.strip() or "an empty text"
            problems.append(Problem(place, f"must be NAME=VALUE, such as eta=0.1, got {got}"))
        elif name in values:
            problems.append(Problem(place, f"`{name}` is given twice"))
        else:
            try:
                values[name] = parse(value, place, override=True).plain()
            except InputError as e:
                problems += [Problem(place, f"{name}: {problem.text}") for problem in e.problems]
    if problems:
        raise InputError(problems)
    return values


def split(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas.

    Commas inside brackets and inside quotes do not separate parts.
    """
    begin = 0
    depth = 0  # number of brackets that are open
    quote = ""  # the quote that is open
    for i, character in enumerate(text):
        if quote:
            backslashes = len(text[:i]) - len(text[:i].rstrip("\\"))
            is_escaped = quote == '"' and backslashes % 2 == 1
            if character == quote and not is_escaped:
                quote = ""
        elif character in _QUOTES:
            before = text[begin:i].rstrip()[-1:]
            # A quote inside a word is only a character.
            if before in ("", "=", ",", ":", *_OPENING):
                quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(0, depth - 1)
        elif character == "," and not depth:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]
