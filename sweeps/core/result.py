"""The result of a sweep, and checks of a file `result.json`, which may come from a stranger."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import TypedDict

from sweeps.core.errors import InputError, UnreadableFile
from sweeps.core.files.json_files import find_errors, read_json_object
from sweeps.core.files.regular_files import read_bytes
from sweeps.core.files.sweep_folder import RESULT, SweepFolder
from sweeps.core.json_values import Count, FiniteNumber, PrintableText, is_deep
from sweeps.core.resources import workers_text
from sweeps.core.text.command_hints import relative_path, repair_command
from sweeps.core.text.durations import format_clock
from sweeps.core.text.html_tables import facts
from sweeps.core.text.secrets import masked
from sweeps.core.trial import Result, flat

# Keys of `trials` that count ended trials.
ENDED = ("completed", "pruned", "failed")
# The word for each state of trials in a result.
WORDS = {
    "COMPLETE": "completed",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "INTERRUPTED": "interrupted",
    "PAUSED": "paused",
}


def to_json_value(value: Any) -> Any:
    """Convert a value for JSON: NaN and infinity become None, and a path becomes text.

    The values inside dicts and lists are converted too.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: to_json_value(inner) for key, inner in value.items()}
    return [to_json_value(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def relocate(shown: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a saved result with current paths.

    The reason: the user may have moved the sweep's folder since the result was saved.

    If the bundle or the checkpoint no longer exists, its path becomes None.

    Args:
        shown: The saved result: the object in `result.json`.
        folder: The current folder of the sweep.
    """
    moved = {
        key: folder / Path(shown[key]).name for key in ("bundle", "checkpoint") if shown.get(key)
    }
    return {
        **shown,
        "dir": str(folder),
        **{key: str(path) if path.exists() else None for key, path in moved.items()},
    }


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        sweep: Name of the sweep.
        dir: Folder of the sweep.
        trials: Number of trials by state: `completed`, `pruned`, `failed`, and `interrupted` and
            `paused` if there are any.
        best: The best trial, an object with the keys `trial` (the id), `value`, `test` (the score
            on the test split), `params`, `preprocessor`, `scaling`, and `data` if the space samples
            it. If the trial was trained again at the end of the sweep, `refit` has the splits
            (`on`), the number of `rows` and the number of `steps` of this training. `value` and
            `test` are the scores from before. `bytes` is the size of the bundle, and
            `rows_per_second` is its speed; see `Manifest.rows_per_second`. None if no trial has a
            value, or if there are several objectives.
        front: The trials of the Pareto front, if there are several objectives. Each is an object
            with the keys of `best`, and with the key `values`, which has the value of each metric.
        bundle: Folder of the best trial's bundle. None if there is no best trial, if it could not
            be exported, or if the trainer has no `load`.
        checkpoint: If the trainer has no `load`, folder of the best trial's exported checkpoint;
            None otherwise.
        mlflow: Object with the keys `tracking_uri`, `experiment` and `parent_run`; empty if MLflow
            did not record the sweep. If the server did not receive all data, there are two more
            keys: `missed` is True, and `ended` is the time at which the search ended, in seconds
            since the epoch.
        fits: Number of distinct preprocessing chains that were fitted.
        seconds: Wall time of the sweep, in seconds.
        reason: Reason why the sweep ended before its last trial; None if the sweep did not end
            early.
        notes: Further messages for the user. Each has one line.
        freed: Deletions by the latest run or resume of the sweep: an object with the number of
            deleted `checkpoints`, the number of `trials` that had these checkpoints, the deleted
            `bytes`, and the bytes of the checkpoints that are `left`. None if the space file does
            not limit checkpoints.
        store: Address of the sweep in S3-compatible storage; None if the sweep is only in its
            folder.
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
    store: str | None = None

    def __post_init__(self) -> None:
        """Mask secrets in the notes, which may quote errors of the user's code."""
        object.__setattr__(self, "notes", tuple(map(masked, self.notes)))

    def with_note(self, note: str) -> SweepResult:
        """Return the result with one more note."""
        return dataclasses.replace(self, notes=(*self.notes, note))

    def _repr_html_(self) -> str:
        """Return the result as a table for a notebook."""
        counts = (
            ", ".join(f"{number} {word}" for word, number in self.trials.items() if number)
            or "none"
        )
        pairs: list[tuple[str, Any]] = [
            ("sweep", self.sweep),
            ("trials", f"{counts} in {format_clock(self.seconds)}"),
        ]
        if self.reason:
            pairs.append(("ended early", self.reason))
        if self.best is not None:
            pairs += [
                ("best trial", self.best["trial"]),
                ("value", self.best["value"]),
            ]
            if self.best["test"] is not None:
                pairs.append(("test", self.best["test"]))
            pairs += [
                ("preprocessor", self.best["preprocessor"]),
                ("workers", workers_text(self.best["scaling"]["num_workers"])),
                *self.best.get("data", {}).items(),
                *flat(self.best["params"]),
            ]
        for best in self.front:
            values = ", ".join(f"{name} {value}" for name, value in best["values"].items())
            pairs.append((f"front: trial {best['trial']}", values))
        places = {"bundle": self.bundle, "checkpoint": self.checkpoint, "folder": self.dir}
        pairs += [(name, relative_path(place)) for name, place in places.items() if place]
        if self.store:
            pairs.append(("store", self.store))
        return facts([*pairs, *(("note", note) for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints. NaN and infinity become None.

        The keys `checkpoint`, `reason`, `notes`, `front`, `freed` and `store` are left out if they
        have no value.
        """
        optional = ("checkpoint", "reason", "notes", "front", "freed", "store")
        return {
            key: to_json_value(value)
            for key, value in dataclasses.asdict(self).items()
            if value or key not in optional
        }

    @classmethod
    def from_json(cls, shown: dict[str, Any]) -> SweepResult:
        """Make a result from an object that `to_json` returned."""
        names = {field.name for field in dataclasses.fields(cls)}
        values = {name: value for name, value in shown.items() if name in names}
        for name in ("dir", "bundle", "checkpoint"):
            values[name] = Path(shown[name]) if shown.get(name) else None
        return cls(**values)

    def as_text(self) -> str:
        """Return this result as the text of the file `result.json`."""
        return json.dumps(self.to_json(), indent=2, default=str, allow_nan=False) + "\n"


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the object in the `result.json` of a sweep's folder.

    Return None if the file is missing or invalid.
    """
    shown = read_json_object(SweepFolder(folder).result)
    return shown if shown is not None and result_error(shown) is None else None


def refuse_invalid_result(folder: Path) -> None:
    """Raise an error if the `result.json` of a sweep's folder is invalid.

    A file that is not JSON is treated as missing, because a crash can leave such a file.

    Raises:
        InputError: The file is JSON but not a valid result, is not a regular file, or cannot be
            read.
    """
    if (error := result_file_error(folder / RESULT)) is not None:
        raise InputError(
            str(folder / RESULT),
            f"{error}; `{repair_command(folder)}` renames the file, so that the sweep can be "
            "resumed",
        )


def result_file_error(file: Path) -> str | None:
    """Return a message that says what is wrong with a `result.json`.

    Return None if the file is valid, missing or not JSON.
    """
    try:
        shown = json.loads(read_bytes(file).decode())
    except (FileNotFoundError, ValueError):
        return None
    except UnreadableFile as e:
        return e.problems[0].text.partition(";")[0]
    except RecursionError:
        return "is nested too deeply"
    if not isinstance(shown, dict):
        return "is not a JSON object"
    return "is nested too deeply" if is_deep(shown) else result_error(shown)


def contradiction(
    ended: Collection[str], given: Collection[str], shown: Mapping[str, Any]
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
        shown: A valid result (see `result_error`).
    """
    expected = sum(shown["trials"].get(word, 0) for word in ENDED)
    if len(ended) < expected:
        return (
            f"the study has {len(ended)} ended trial{'s' * (len(ended) != 1)}, but {RESULT} says "
            f"that {expected} trials ended"
        )
    absent = [
        best["trial"]
        for best in best_trials(shown)
        if best["trial"] not in ended and best["trial"] not in given
    ]
    return (
        f"trial {absent[0]} has not ended in the study, but {RESULT} lists this trial as one of "
        "the best"
        if absent
        else None
    )


def best_trials(shown: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a list with the best trial of a result, or the trials of its Pareto front.

    Return [] if no trial has a value.
    """
    return [shown["best"]] if shown["best"] else list(shown.get("front", ()))


def outcome_of(shown: Mapping[str, Any]) -> str:
    """Return how a sweep with this result ended: "finished", "interrupted" or "failed"."""
    if shown.get("reason") == "interrupted":
        return "interrupted"
    return "finished" if shown.get("best") or shown.get("front") else "failed"


def result_error(shown: Mapping[str, Any]) -> str | None:
    """Return a message about the first key of a result that is missing or has an invalid value.

    Return None if the result is valid.
    """
    return next(iter(find_errors(_RULES, shown).values()), None)


class _Refit(TypedDict):
    on: Annotated[list[PrintableText], Field(min_length=2)]
    rows: Count
    steps: Count


class _Repeats(TypedDict):
    aggregate: PrintableText
    values: dict[str, FiniteNumber | None]


class _Elastic(TypedDict):
    elastic: Annotated[list[FiniteNumber], Field(min_length=2, max_length=2)]


class _Scaling(TypedDict):
    num_workers: FiniteNumber | _Elastic
    resources_per_worker: dict[str, FiniteNumber]


class _Best(TypedDict):
    trial: Annotated[str, Field(pattern="^[0-9]{4,9}$")]
    value: FiniteNumber | None
    test: FiniteNumber | None
    params: dict[str, Any]
    preprocessor: PrintableText
    scaling: _Scaling
    data: NotRequired[dict[str, Any]]
    metrics: NotRequired[dict[str, FiniteNumber | None]]
    values: NotRequired[dict[str, FiniteNumber | None]]
    repeats: NotRequired[_Repeats | None]
    refit: NotRequired[_Refit]
    bytes: NotRequired[Count]
    rows_per_second: NotRequired[FiniteNumber | None]


def _check_front(front: list[_Best]) -> list[_Best]:
    for best in front:
        if any(
            not best.get("values") or best[key].keys() != front[0][key].keys()
            for key in ("values", "data")
            if key in front[0] | best
        ):
            raise ValueError("all trials must have the same objectives and the same keys of `data`")
    return front


class _Mlflow(TypedDict, total=False):
    tracking_uri: PrintableText
    experiment: PrintableText | None
    parent_run: PrintableText | None
    ended: FiniteNumber | None


class _Freed(TypedDict):
    checkpoints: Count
    trials: Count
    bytes: Count
    left: Count


class _Result(TypedDict):
    sweep: PrintableText
    dir: PrintableText
    trials: dict[PrintableText, Count]
    best: _Best | None
    mlflow: _Mlflow
    fits: Count
    seconds: Annotated[FiniteNumber, Field(ge=0, lt=10**12)]
    front: NotRequired[Annotated[list[_Best], AfterValidator(_check_front)]]
    bundle: NotRequired[PrintableText | None]
    checkpoint: NotRequired[PrintableText | None]
    reason: NotRequired[PrintableText | None]
    notes: NotRequired[list[PrintableText]]
    freed: NotRequired[_Freed | None]
    store: NotRequired[PrintableText | None]


_RULES = TypeAdapter(_Result)


def count_trials(results: Iterable[Result]) -> dict[str, int]:
    """Return the number of trials by state, in the format of `SweepResult.trials`.

    Initial points are not counted if the space file gives their value, because no trial ran for
    them.
    """
    counts = Counter(result.state_name(is_driven=False) for result in results)
    return {word: counts[state] for state, word in WORDS.items() if counts[state] or word in ENDED}
