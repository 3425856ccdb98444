"""Read `origin.json` of a sweep's folder, which records the original place of the space file and the options of the sweep.

The folder may come from a stranger, so every key is checked. `sweeps ls` shows a sweep from this file without reading its study.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem
from sweeps.core.json_files import is_number, is_text, read_json_object
from sweeps.core.sweep_folder import ORIGIN, SweepFolder


def read_origin(folder: Path) -> dict[str, Any]:
    """Read `origin.json` of a sweep's folder.

    Raises:
        InputError: The file is missing, is not JSON, or a key breaks its rule.
    """
    file = SweepFolder(folder).origin
    if (origin := read_json_object(file)) is None:
        raise InputError(Problem(str(folder), f"is not a sweep's folder: no readable {ORIGIN} in it"))
    if (error := origin_error(origin)) is not None:
        raise InputError(Problem(str(file), f"{error}; copy the file from a backup, or correct it by hand"))
    return origin


def valid_origin_keys(folder: Path) -> dict[str, Any]:
    """Return the keys of `origin.json` that have a valid value. Raises no error, so that commands can list many sweeps."""
    origin = read_json_object(SweepFolder(folder).origin) or {}
    return {key: value for key, value in origin.items() if key not in _RULES or _RULES[key][0](value)}


def origin_error(origin: dict[str, Any]) -> str | None:
    """Return a message about the first key that is missing or breaks its rule; None if the file is valid."""
    for key, (is_valid, rule) in _RULES.items():
        if key in ("base", "cwd", "overrides") and key not in origin:
            return f"`{key}` is missing"
        if key in origin and not is_valid(origin[key]):
            return f"`{key}` must be {rule}"
    return "`study` is missing" if origin.get("storage") and "study" not in origin else None


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 <= value < 10**11


def _is_none_or_text(value: Any) -> bool:
    return value is None or is_text(value)


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda value: is_text(value) and bool(value) and "/" not in value, "the name of a sweep"),
    "base": (is_text, "the path of a folder"),
    "cwd": (is_text, "the path of a folder"),
    "overrides": (lambda value: isinstance(value, list) and all(map(is_text, value)), "a list of texts"),
    "began": (lambda value: value is None or _is_time(value), "seconds since the epoch"),
    "algorithm": (is_text, "the name of an algorithm"),
    "metric": (is_text, "the name of a metric"),
    "max_trials": (lambda value: type(value) is int and 0 <= value < 10**12, "an integer of at least 0"),
    "repeats": (lambda value: type(value) is int and 0 < value < 10**9, "an integer of at least 1"),
    "address": (_is_none_or_text, "null or text"),
    "tracking_uri": (_is_none_or_text, "null or text"),
    "storage": (_is_none_or_text, "null or text"),
    "study": (_is_none_or_text, "null or text"),
}
