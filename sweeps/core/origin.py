"""Read `origin.json`. This file records the folder from which a sweep's space file was read, and the options of `sweeps run`.

The sweep's folder may come from a stranger, so every key is checked. `sweeps ls` reads this file to show a sweep without reading the study.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from sweeps.core.errors import InputError, Problem
from sweeps.core.json_files import Count, Number, Text, find_errors, read_json_object
from sweeps.core.sweep_folder import ORIGIN, SweepFolder


def read_origin(folder: Path) -> dict[str, Any]:
    """Read `origin.json` of a sweep's folder.

    Raises:
        InputError: The file is missing, does not contain a JSON object, or a key is missing or has an invalid value.
    """
    file = SweepFolder(folder).origin
    if (origin := read_json_object(file)) is None:
        raise InputError(
            Problem(str(folder), f"is not a sweep's folder, because it has no readable {ORIGIN}")
        )
    if (error := origin_error(origin)) is not None:
        raise InputError(
            Problem(str(file), f"{error}; restore the file from a backup, or correct it by hand")
        )
    return origin


def valid_origin_keys(folder: Path) -> dict[str, Any]:
    """Return the keys of `origin.json` that have valid values, with these values. Return {} if the file cannot be read.

    This function raises no error, so that a command can list many sweeps even if one of them is damaged.
    """
    origin = read_json_object(SweepFolder(folder).origin) or {}
    errors = find_errors(_RULES, origin)
    return {key: value for key, value in origin.items() if key not in errors}


def origin_error(origin: dict[str, Any]) -> str | None:
    """Return a message about the first key of `origin.json` that is missing or has an invalid value; None if all keys are valid."""
    if errors := find_errors(_RULES, origin):
        return next(iter(errors.values()))
    return "`study` is missing" if origin.get("storage") and "study" not in origin else None


class _Origin(TypedDict):
    base: Text
    cwd: Text
    overrides: list[Text]
    name: NotRequired[Annotated[Text, Field(pattern="^[^/]+$")]]
    began: NotRequired[Annotated[Number, Field(ge=0, lt=10**11)] | None]
    algorithm: NotRequired[Text]
    variables: NotRequired[dict[str, str]]
    learned_from: NotRequired[list[Text]]
    metric: NotRequired[Text]
    max_trials: NotRequired[Count]
    repeats: NotRequired[Annotated[int, Field(gt=0, lt=10**9)]]
    address: NotRequired[Text | None]
    cpus: NotRequired[Annotated[int, Field(gt=0, lt=10**9)] | None]
    gpus: NotRequired[Annotated[int, Field(ge=0, lt=10**9)] | None]
    tracking_uri: NotRequired[Text | None]
    storage: NotRequired[Text | None]
    store: NotRequired[Text | None]
    study: NotRequired[Text | None]


_RULES = TypeAdapter(_Origin)
