"""Read `origin.json`.

This file records the folder from which a sweep's space file was read, and the options of `sweeps
run`.

The sweep's folder may come from a stranger, so every key is checked. `sweeps ls` reads this file to
show a sweep without reading the study.
"""

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from sweeps.core.errors import InputError, Problem
from sweeps.core.json_values import Count, FiniteNumber, PrintableText

from .file_format import format_problem
from .json_files import find_errors, read_json_object
from .sweep_folder import ORIGIN, SweepFolder


def read_origin(folder: Path) -> dict[str, Any]:
    """Read `origin.json` of a sweep's folder.

    Raises:
        InputError: The file is missing, does not contain a JSON object, has another format than
            this version reads, or a key is missing or has an invalid value.
    """
    if (origin := read_json_object(SweepFolder(folder).origin)) is None:
        raise InputError(
            str(folder), f"is not a sweep's folder, because it has no readable {ORIGIN}"
        )
    if (problem := origin_problem(folder, origin)) is not None:
        raise InputError(problem)
    return origin


def refuse_other_format(folder: Path) -> None:
    """Raise an error if the folder of a sweep has another format than this version reads.

    Raises:
        InputError: The folder has another format. A folder without a readable `origin.json` raises
            no error.
    """
    file = SweepFolder(folder).origin
    origin = read_json_object(file)
    if origin is not None and (problem := format_problem(file, origin)) is not None:
        raise InputError(problem)


def valid_origin_keys(folder: Path) -> dict[str, Any]:
    """Return the keys of `origin.json` that have valid values, with these values.

    Return {} if the file cannot be read.

    This function raises no error, so that a command can list many sweeps even if one of them is
    damaged.
    """
    origin = read_json_object(SweepFolder(folder).origin) or {}
    errors = find_errors(_RULES, origin)
    return {key: value for key, value in origin.items() if key not in errors}


def origin_problem(folder: Path, origin: dict[str, Any] | None) -> Problem | None:
    """Return the first problem of an `origin.json`: its format, or a missing or invalid key.

    Return None if the file is valid.

    Args:
        folder: The sweep's folder.
        origin: The content of the file; None if the file does not contain a JSON object.
    """
    file = SweepFolder(folder).origin
    if origin is None:
        error = "does not contain a JSON object"
    elif (problem := format_problem(file, origin)) is not None:
        return problem
    elif errors := find_errors(_RULES, origin):
        error = next(iter(errors.values()))
    elif origin.get("storage") and "study" not in origin:
        error = "`study` is missing"
    else:
        return None
    return Problem(str(file), f"{error}; restore the file from a backup, or correct it by hand")


class _Origin(TypedDict):
    """The keys of `origin.json`. `sweeps.runs` writes them."""

    base: PrintableText
    cwd: PrintableText
    overrides: list[PrintableText]
    name: Annotated[PrintableText, Field(pattern="^[^/]+$")]
    began: NotRequired[Annotated[FiniteNumber, Field(ge=0, lt=10**11)] | None]
    algorithm: PrintableText
    variables: dict[str, str]
    learned_from: NotRequired[list[PrintableText]]
    metric: NotRequired[PrintableText]
    max_trials: NotRequired[Count]
    repeats: NotRequired[Annotated[int, Field(gt=0, lt=10**9)]]
    address: NotRequired[PrintableText | None]
    cpus: NotRequired[Annotated[int, Field(gt=0, lt=10**9)] | None]
    gpus: NotRequired[Annotated[int, Field(ge=0, lt=10**9)] | None]
    tracking_uri: NotRequired[PrintableText | None]
    storage: NotRequired[PrintableText | None]
    store: NotRequired[PrintableText | None]
    study: NotRequired[PrintableText | None]


_RULES = TypeAdapter(_Origin)
