"""JSON Schema fragments of parameters and options.

Each describes one parameter or option of a trainer, or one parameter of a preprocessing step.

A fragment may have these keys: `type` (a name or a list of names), `enum`, `minimum`, `maximum`,
`exclusiveMinimum`, `exclusiveMaximum`, `format`, `default` and `description`. A null value stands
for the default, and is always allowed. An integer may be written as a float without a fraction,
such as 3.0. There are three values of `format`: `reference` for the name of a Python object as
`module:attr`, `package` for the import name of a package that must be installed, and `command` for
a program and its arguments as a list.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from sweeps.space.yaml.scalars import is_same

Fragment = Mapping[str, Any]

KEYS = (
    "type",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "format",
    "default",
    "description",
)
REFERENCE_FORMAT = "reference"
PACKAGE_FORMAT = "package"
COMMAND_FORMAT = "command"
FORMATS = (REFERENCE_FORMAT, PACKAGE_FORMAT, COMMAND_FORMAT)
_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "minimum": ("at least", operator.ge),
    "exclusiveMinimum": ("greater than", operator.gt),
    "maximum": ("at most", operator.le),
    "exclusiveMaximum": ("less than", operator.lt),
}
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "integer": ((int,), "an integer"),
    "number": ((int, float), "a number"),
    "string": ((str,), "text"),
    "boolean": ((bool,), "true or false"),
    "array": ((list, tuple), "a list"),
    "object": ((dict,), "a mapping"),
    "null": ((), "null"),
}


def types_of(fragment: Fragment) -> tuple[str, ...]:
    """Return the names of the types that a fragment allows; () if it allows any type."""
    names = fragment.get("type", ())
    return (names,) if isinstance(names, str) else tuple(names)


def rule_of(fragment: Fragment) -> str:
    """Describe the values that a fragment allows, in words that can follow "must be".

    >>> rule_of({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
    'a number greater than 0 and at most 1'
    >>> rule_of({"enum": ["adam", "sgd"]})
    'adam or sgd'
    """
    if fragment.get("format") == REFERENCE_FORMAT:
        return "a reference `module:attr`"
    if fragment.get("format") == COMMAND_FORMAT:
        return 'a list of texts and numbers, such as [python, train.py, --lr, "{params.lr}"]'
    if "enum" in fragment:
        values = fragment["enum"]
        return _or([str(v).lower() if isinstance(v, bool) else str(v) for v in values])
    nouns = [_TYPES[name][1] for name in types_of(fragment) if name != "null"]
    bounds = " and ".join(
        f"{words} {fragment[key]}" for key, (words, _) in _BOUNDS.items() if key in fragment
    )
    if not bounds:
        return _or(nouns)
    return f"{_or(nouns)} of {bounds}" if bounds.startswith("at") else f"{_or(nouns)} {bounds}"


def _or(words: list[str]) -> str:
    """Return words as text, such as "a, b or c"; "any value" if there are none."""
    *others, last = words or ["any value"]
    return f"{', '.join(others)} or {last}" if others else last


def allows(fragment: Fragment, value: object) -> bool:
    """Return whether a fragment allows a value.

    None is always allowed, because it stands for the default.
    """
    if value is None:
        return True
    if fragment.get("format") == REFERENCE_FORMAT:
        return isinstance(value, str)
    if fragment.get("format") == COMMAND_FORMAT:
        items = value if isinstance(value, (list, tuple)) else ()
        return bool(items) and all(
            isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in items
        )
    if "enum" in fragment:
        return any(is_same(value, known) for known in fragment["enum"])
    names = types_of(fragment)
    if names and not any(_is_of_type(value, name) for name in names):
        return False
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    return is_within_bounds(fragment, value)


def _is_of_type(value: object, name: str) -> bool:
    """Return whether a value has a JSON Schema type; floats without a fraction are integers too."""
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name][0])


def is_within_bounds(fragment: Fragment, value: float) -> bool:
    """Return whether a number is within the bounds of a fragment.

    The bounds are `minimum`, `exclusiveMaximum` and so on. Other keys are ignored.
    """
    return all(
        holds(value, fragment[key]) for key, (_, holds) in _BOUNDS.items() if key in fragment
    )


def fragment_problem(fragment: Any) -> str | None:
    """Return a message that says what is wrong with a fragment; None if the fragment is valid.

    Any object may be passed.
    """
    if not isinstance(fragment, dict):
        return 'must be a JSON Schema fragment such as {"type": "number", "minimum": 0}'
    if unknown := [key for key in fragment if key not in KEYS]:
        return f"has the unknown key `{unknown[0]}`; valid keys: {', '.join(KEYS)}"
    names = fragment.get("type", [])
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, (list, tuple)) or any(name not in _TYPES for name in names):
        return f"`type` must be one of {', '.join(_TYPES)}, or a list of these"
    if "enum" in fragment and (
        not isinstance(fragment["enum"], (list, tuple)) or not fragment["enum"]
    ):
        return "`enum` must be a list with at least one value"
    for key in _BOUNDS:
        if key in fragment and (
            isinstance(fragment[key], bool) or not isinstance(fragment[key], (int, float))
        ):
            return f"`{key}` must be a number"
    if fragment.get("format", REFERENCE_FORMAT) not in FORMATS:
        return f"`format` must be one of {', '.join(FORMATS)}"
    if not isinstance(fragment.get("description", ""), str):
        return "`description` must be text"
    if not allows(fragment, fragment.get("default")):
        return (
            f"the default {fragment['default']!r} is not allowed; the default must be "
            f"{rule_of(fragment)}"
        )
    return None
