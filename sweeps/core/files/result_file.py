"""Read the file `result.json` of a sweep's folder, which may come from a stranger."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweeps.core.errors import InputError, UnreadableFile
from sweeps.core.json_values import is_deep
from sweeps.core.result import ENDED, SweepResult
from sweeps.core.text.command_hints import repair_command

from .json_files import describe
from .regular_files import read_bytes
from .sweep_folder import RESULT

_READER: TypeAdapter[SweepResult] = TypeAdapter(SweepResult)


def read_result(folder: Path) -> SweepResult | None:
    """Return the result in a sweep's folder; None if the file is missing or invalid.

    The user may have moved the folder. The paths are therefore those of the current folder, and a
    bundle or a checkpoint that no longer exists is None.
    """
    result = _read(folder)
    if not isinstance(result, SweepResult):
        return None
    return replace(
        result,
        dir=folder,
        bundle=_current_path(folder, result.bundle),
        checkpoint=_current_path(folder, result.checkpoint),
    )


def _current_path(folder: Path, recorded: Path | None) -> Path | None:
    """Return the path, in the sweep's current folder, of an entry that was recorded.

    Return None if the folder has no entry of this name.
    """
    if recorded is None or not recorded.name or not (folder / recorded.name).exists():
        return None
    return folder / recorded.name


def result_error(folder: Path) -> str | None:
    """Return what is wrong with the `result.json` of a sweep's folder.

    Return None if the file is valid or missing. A file that is not JSON counts as missing, because
    a crash can leave such a file.
    """
    result = _read(folder)
    return result if isinstance(result, str) else None


def refuse_invalid_result(folder: Path) -> None:
    """Raise an error if the `result.json` of a sweep's folder is invalid.

    Raises:
        InputError: The file is JSON but not a valid result, is not a regular file, or cannot be
            read.
    """
    if (error := result_error(folder)) is not None:
        raise InputError(
            str(folder / RESULT),
            f"{error}; `{repair_command(folder)}` renames the file, so that the sweep can be "
            "resumed",
        )


def _read(folder: Path) -> SweepResult | str | None:
    """Read `result.json`.

    Returns:
        The result with its recorded paths. A text that says what is wrong if the content is no
        valid result. None if the file is missing or is not JSON.
    """
    try:
        content = json.loads(read_bytes(folder / RESULT).decode())
    except (FileNotFoundError, ValueError):
        return None
    except UnreadableFile as e:
        return e.problems[0].text.partition(";")[0]
    except RecursionError:
        return "is nested too deeply"
    if not isinstance(content, dict):
        return "is not a JSON object"
    if is_deep(content):
        return "is nested too deeply"
    try:
        return _READER.validate_python({"bundle": None, "checkpoint": None, **content})
    except ValidationError as e:
        return describe(e.errors(include_url=False)[0])


def find_contradiction(
    ended: Collection[str], given: Collection[str], result: SweepResult
) -> str | None:
    """Check that the study has every ended trial that the sweep's result counts or names.

    Return a message if one is missing, else None.

    Only a damaged study lacks such a trial. The end of each trial is in the study before the result
    is written, and no trial is ever removed from a study. The study may have more trials than the
    result, if a resume has started after the result was read.

    Args:
        ended: Ids of the complete, pruned and failed trials of the study.
        given: Ids of the initial points whose value was given in the space file. Results do not
            count these trials.
        result: The result.
    """
    expected = sum(result.trials.get(word, 0) for word in ENDED)
    if len(ended) < expected:
        return (
            f"the study has {len(ended)} ended trial{'s' * (len(ended) != 1)}, but {RESULT} says "
            f"that {expected} trials ended"
        )
    absent = [
        best["trial"]
        for best in result.best_trials
        if best["trial"] not in ended and best["trial"] not in given
    ]
    if absent:
        return (
            f"trial {absent[0]} has not ended in the study, but {RESULT} lists this trial as one "
            "of the best"
        )
    return None
