"""JSON values: what they may be, and the types of fields that are read from JSON.

Trials and events use these types in ordinary dataclasses: only reading a record checks them.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from pydantic import AfterValidator, Field, InstanceOf, JsonValue, Strict

# Largest allowed nesting depth of lists and objects. The depth is limited because the code that
# shows or copies values is recursive.
MOST_DEPTH = 60
# Bound for the absolute value of a number. A sum of some such numbers is finite as a float.
_NUMBER_BOUND = 10**300


def is_deep(value: JsonValue, depth: int = MOST_DEPTH) -> bool:
    """Return whether lists and objects of a JSON value are nested deeper than `depth` levels."""
    inner: Iterable[JsonValue]
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return False
    return depth == 0 or any(is_deep(v, depth - 1) for v in inner)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite float, or an int between -1e300 and 1e300.

    Booleans are not numbers here.
    """
    if type(value) is int:
        return abs(value) < _NUMBER_BOUND
    return type(value) is float and math.isfinite(value)


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is text that can be printed and be part of a path.

    Such a text has no NUL characters and no lone surrogates.
    """
    return (
        type(value) is str
        and "\0" not in value
        and not any("\ud800" <= c <= "\udfff" for c in value)
    )


def _printable(text: str) -> str:
    if not is_text(text):
        raise ValueError("must not have NUL characters or lone surrogates")
    return text


def _printable_path(path: Path) -> Path:
    _printable(str(path))
    return path


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if is_deep(value):
        raise ValueError("is nested too deeply")
    return value


def _folder_name(name: str) -> str:
    if "\0" in name or "/" in name or name in ("", ".", ".."):
        raise ValueError("must name a folder")
    return name


# pydantic's `str` rejects texts that are not valid Unicode, such as some file names.
Text = InstanceOf[str]
FolderName = Annotated[Text, AfterValidator(_folder_name)]
Configuration = Annotated[dict[Text, Any], AfterValidator(_shallow)]
Integer = Annotated[int, Strict()]
Count = Annotated[int, Field(strict=True, ge=0, lt=10**12)]
Workers = Annotated[int, Field(strict=True, gt=0, lt=10**9)]
PrintableText = Annotated[str, AfterValidator(_printable)]
PrintablePath = Annotated[Path, AfterValidator(_printable_path)]
Number = Annotated[float, Strict()]
FiniteNumber = Annotated[
    float, Field(strict=True, gt=-_NUMBER_BOUND, lt=_NUMBER_BOUND, allow_inf_nan=False)
]
Numbers = dict[Text, Number]
Seconds = Annotated[float, Field(strict=True, gt=-(10**12), lt=10**12)]
# Seconds since the epoch, before the year 9999
Time = Annotated[float, Field(strict=True, ge=0, lt=253_370_764_800)]
