"""What a sweep came to."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sweeps.core.command_hints import repair_command
from sweeps.core.errors import InputError, Problem
from sweeps.core.json_files import is_deep, is_number, is_text, read_json_object
from sweeps.core.sweep_folder import RESULT, SweepFolder

# How it counts trials that have ended.
ENDED = ("completed", "pruned", "failed")


def to_json_value(value: Any) -> Any:
    """The same as JSON can say it, which knows neither NaN nor infinity: None in their place."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: to_json_value(inner) for key, inner in value.items()}
    return [to_json_value(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def relocate(shown: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What `SweepResult.to_json` gave, as it is now in a folder that may have been moved since, and its bundle or checkpoint deleted."""
    there = {key: folder / Path(shown[key]).name for key in ("bundle", "checkpoint") if shown.get(key)}
    return {**shown, "dir": str(folder), **{key: str(path) if path.exists() else None for key, path in there.items()}}


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        sweep, dir: its name and folder.
        trials: `completed`, `pruned`, `failed`, and `interrupted` where there are any.
        best: `trial`, `value`, `test`, `params`, `preprocessor`, `scaling`, and `data` where it is tuned; None if no trial has a value.
        front: with several objectives, in place of `best`: the trials that no other dominates, each like `best`, with `values` by metric.
        bundle: the exported folder; None if the trainer has no `load` or the sweep no winner.
        checkpoint: the winner's checkpoint, exported where there is no `load`.
        mlflow: empty if MLflow did not record the sweep, else `tracking_uri`, `experiment`, `parent_run`; `missed`: True if the server
            did not get everything, and then `ended`, when the search did, in seconds since the epoch.
        fits: distinct preprocessing chains fitted.
        seconds: wall time.
        reason: why the sweep ended before its last trial; None if it did not.
        notes: what the user should know besides, a line each.
        freed: where checkpoints are bounded, what this driver of the sweep has deleted: `checkpoints`, of how many `trials`, `bytes`; and
            the bytes that are `left`.
    """

    sweep: str
    dir: Path
    trials: dict[str, int]
    best: dict[str, Any] | None
    bundle: Path | None
    checkpoint: Path | None
    mlflow: dict[str, Any]
    fits: int
    seconds: float
    reason: str | None = None
    notes: tuple[str, ...] = ()
    front: tuple[dict[str, Any], ...] = ()
    freed: dict[str, int] | None = None

    def noting(self, note: str) -> SweepResult:
        """With one more note."""
        return dataclasses.replace(self, notes=(*self.notes, note))

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints; null for a number that JSON has not."""
        shown = dataclasses.asdict(self)
        shown["dir"] = str(self.dir)
        for key in ("bundle", "checkpoint"):
            shown[key] = str(shown[key]) if shown[key] else None
        for key in ("checkpoint", "reason", "notes", "front", "freed"):
            if not shown[key]:
                del shown[key]
        return to_json_value(shown)

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> SweepResult:
        """What `to_json` gave."""
        paths = {key: Path(shown[key]) if shown.get(key) else None for key in ("bundle", "checkpoint")}
        told = {field.name: shown[field.name] for field in dataclasses.fields(cls) if field.name in shown}
        return cls(**{**told, **paths, "dir": Path(shown["dir"]), "notes": tuple(shown.get("notes", ()))})

    def as_text(self) -> str:
        """`to_json` as a file's text."""
        return json.dumps(self.to_json(), indent=2, default=str, allow_nan=False) + "\n"


def read_result(folder: Path) -> dict[str, Any] | None:
    """What an earlier driver left in `result.json`; None if there is none, or none that can be read."""
    shown = read_json_object(SweepFolder(folder).result)
    return shown if shown is not None and result_error(shown) is None else None


def refuse_invalid_result(folder: Path) -> None:
    """See that what lies in a sweep's folder as its result is one. What is no JSON, as after a crash, counts as not there.

    Raises:
        InputError: it is another object.
    """
    if (why := result_file_error(folder / RESULT)) is not None:
        raise InputError(Problem(str(folder / RESULT), f"{why}; `{repair_command(folder)}` puts the file aside"))


def result_file_error(file: Path) -> str | None:
    """What keeps a file from being read as a result or as no result at all; None if nothing does."""
    if not file.is_file():
        return "is no file" if os.path.lexists(file) else None
    try:
        shown = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None
    except OSError as e:
        return f"cannot be read: {e.strerror}"
    except RecursionError:
        return "is nested too deeply"
    if not isinstance(shown, dict):
        return "holds no JSON object"
    return "is nested too deeply" if is_deep(shown) else result_error(shown)


def contradiction(ended: Collection[str], given: Collection[str], shown: Mapping[str, Any]) -> str | None:
    """Say how a study contradicts the sweep's result: it lacks trials that ended by that. None if it does not.

    It never does by itself. A result is written when all that it counts is on record, nothing is ever taken from a study, and a sweep that
    goes on deletes its result. A study with more trials is one of a sweep that goes on and has not come to deleting it.

    Args:
        ended: the ids of the trials of the study that are complete, pruned or failed.
        given: the ids of its initial points with known results, which no result counts.
        shown: the result, see `fault`.
    """
    told = sum(shown["trials"].get(word, 0) for word in ENDED)
    if len(ended) < told:
        return f"the study holds {len(ended)} trial{'s' * (len(ended) != 1)} that ended, but {RESULT} says {told} ended"
    absent = [best["trial"] for best in best_trials(shown) if best["trial"] not in ended and best["trial"] not in given]
    return f"the study holds no end of trial {absent[0]}, which {RESULT} names as one of the best" if absent else None


def best_trials(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials that a result tells of: the best, or the front."""
    return [shown["best"]] if shown["best"] else list(shown.get("front", ()))


def result_error(shown: Mapping[str, Any]) -> str | None:
    """What keeps an object from being what `SweepResult.to_json` gives: the key and the rule; None if nothing does."""
    for key, (holds, rule) in _RULES.items():
        if key not in shown and key in _NEEDED:
            return f"`{key}` is missing"
        if key in shown and not holds(shown[key]):
            return f"`{key}` must be {rule}"
    return None


def _is_best(told: Any) -> bool:
    """Whether this is a trial as `winner.described` gives it."""
    if not isinstance(told, dict) or not _is_id(told.get("trial")):
        return False
    numbers = (told.get("value"), told.get("test"), *_values(told.get("metrics", {})), *_values(told.get("values", {})))
    if not all(n is None or is_number(n) for n in numbers):
        return False
    scaling = told.get("scaling")
    if not isinstance(scaling, dict) or not is_number(scaling.get("num_workers")):
        return False
    if not all(map(is_number, _values(scaling.get("resources_per_worker")))):
        return False
    if not all(isinstance(told.get(key, {}), dict) for key in ("data", "params")) or not is_text(told.get("preprocessor")):
        return False
    return {"value", "test", "params"} <= told.keys() and _are_repeats(told.get("repeats"))


def _are_repeats(told: Any) -> bool:
    if told is None:
        return True
    return isinstance(told, dict) and is_text(told.get("aggregate")) and all(v is None or is_number(v) for v in _values(told.get("values")))


def _is_front(told: Any) -> bool:
    if not isinstance(told, list) or not all(_is_best(best) and best.get("values") for best in told):
        return False
    return all(best[key].keys() == told[0][key].keys() for best in told for key in ("values", "data") if key in told[0] or key in best)


def _values(told: Any) -> tuple[Any, ...]:
    return tuple(told.values()) if isinstance(told, dict) else ("",)


def _is_id(told: Any) -> bool:
    return isinstance(told, str) and told.isascii() and told.isdigit() and 4 <= len(told) <= 9


def _is_count(told: Any) -> bool:
    return type(told) is int and 0 <= told < 10**12


def _is_none_or_text(told: Any) -> bool:
    return told is None or is_text(told)


def _are_counts(told: Any) -> bool:
    return isinstance(told, dict) and all(is_text(word) and _is_count(n) for word, n in told.items())


def _is_mlflow(told: Any) -> bool:
    """Return whether this says where a sweep is in MLflow. An empty object says that MLflow did not record the sweep."""
    if told == {}:
        return True
    texts = ("tracking_uri", "experiment", "parent_run")
    if not isinstance(told, dict) or not is_text(told.get("tracking_uri")):
        return False
    return all(_is_none_or_text(told.get(key)) for key in texts) and is_number(told.get("ended") or 0)


_FREED = {"checkpoints", "trials", "bytes", "left"}
_RULES: dict[str, tuple[Any, str]] = {
    "sweep": (is_text, "text"),
    "dir": (is_text, "text"),
    "trials": (_are_counts, "an object of numbers from 0 on"),
    "best": (lambda told: told is None or _is_best(told), "null or a trial with its value and its configuration"),
    "front": (_is_front, "a list of trials with values"),
    "bundle": (_is_none_or_text, "null or text"),
    "checkpoint": (_is_none_or_text, "null or text"),
    "mlflow": (_is_mlflow, "an object of texts"),
    "fits": (_is_count, "a number from 0 on"),
    "seconds": (lambda told: is_number(told) and 0 <= told < 10**12, "a number from 0 on"),
    "reason": (_is_none_or_text, "null or text"),
    "notes": (lambda told: isinstance(told, list) and all(map(is_text, told)), "a list of texts"),
    "freed": (lambda told: told is None or (_are_counts(told) and told.keys() >= _FREED), "null or an object of numbers from 0 on"),
}
_NEEDED = ("sweep", "dir", "trials", "best", "mlflow", "fits", "seconds")
