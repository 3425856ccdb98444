"""The result of a sweep.

The types of its fields also check a `result.json`, which may come from a stranger.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, Field, GetPydanticSchema, with_config
from typing_extensions import TypedDict

from .json_values import Count, FiniteNumber, PrintablePath, PrintableText, Workers
from .resources import workers_text
from .text.durations import format_clock
from .text.html_tables import facts_table
from .text.secrets import masked
from .text.shell_text import relative_path
from .trial import Result, flatten_params

# Keys of `trials` that count ended trials.
ENDED = ("completed", "pruned", "failed")
# The word for each state of trials in a result.
STATE_WORDS = {
    "COMPLETE": "completed",
    "PRUNED": "pruned",
    "FAIL": "failed",
    "INTERRUPTED": "interrupted",
    "PAUSED": "paused",
}


class _RefitRows(TypedDict):
    on: Annotated[list[PrintableText], Field(min_length=2)]
    rows: Count


class _Refit(_RefitRows):
    steps: Count


class _Repeats(TypedDict):
    aggregate: PrintableText
    values: dict[str, FiniteNumber | None]


class _Elastic(TypedDict):
    elastic: Annotated[list[Workers], Field(min_length=2, max_length=2)]


class _Scaling(TypedDict):
    num_workers: Workers | _Elastic
    resources_per_worker: dict[str, FiniteNumber]


class _Ensemble(TypedDict):
    members: Annotated[dict[PrintableText, Count], Field(min_length=1)]
    refitted: Count
    value: FiniteNumber
    test: FiniteNumber | None
    gain: NotRequired[FiniteNumber]
    noise: NotRequired[FiniteNumber]
    rows: NotRequired[_RefitRows]


class _Choice(TypedDict):
    rule: Literal["mean", "confirmed"]
    best: PrintableText
    best_value: FiniteNumber | None
    values: dict[PrintableText, list[FiniteNumber | None]]


class _OtherTrial(TypedDict):
    trial: PrintableText
    default: NotRequired[PrintableText]
    value: NotRequired[FiniteNumber]
    low: NotRequired[FiniteNumber]
    high: NotRequired[FiniteNumber]


class _Cheaper(TypedDict):
    trial: PrintableText
    seconds: FiniteNumber
    bytes: Count
    winner_bytes: Count
    rows_per_second: FiniteNumber | None
    command: PrintableText


class _NewRows(TypedDict, total=False):
    unknown: PrintableText
    value: FiniteNumber
    low: FiniteNumber
    high: FiniteNumber
    rows: Count
    folds: Count
    similar: Count
    compared: Count
    cheaper: _Cheaper
    trials: list[_OtherTrial]


@with_config(extra="allow")
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
    feasible: NotRequired[bool]
    refit: NotRequired[_Refit]
    folds: NotRequired[Count]
    ensemble: NotRequired[_Ensemble]
    new_rows: NotRequired[_NewRows]
    choice: NotRequired[_Choice]
    bytes: NotRequired[Count]
    rows_per_second: NotRequired[FiniteNumber | None]


def _check_front(front: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the trials of a Pareto front unchanged, if all have values of the same objectives.

    Raises:
        ValueError: The trials differ in their objectives, or in their keys of `data`.
    """
    for best in front:
        has_same_keys = all(
            best.get(key, {}).keys() == front[0].get(key, {}).keys() for key in ("values", "data")
        )
        if not best.get("values") or not has_same_keys:
            raise ValueError("all trials must have the same objectives and the same keys of `data`")
    return front


@with_config(extra="allow")
class _Mlflow(TypedDict, total=False):
    tracking_uri: PrintableText
    experiment: PrintableText | None
    parent_run: PrintableText | None
    ended: FiniteNumber | None
    missed: bool


class _Freed(TypedDict):
    checkpoints: Count
    trials: Count
    bytes: Count
    left: Count


def _object(model: type) -> GetPydanticSchema:
    """Return an annotation for a dict, so that pydantic checks its keys like the `TypedDict`.

    The field itself keeps the type `dict`, which is easier to use.
    """
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(model))


_BestTrial = Annotated[dict[str, Any], _object(_Best)]


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
            `test` are the scores from before. If the bundle averages the models of the folds of a
            cross-validation, `folds` is their number. If it averages models of several trials,
            `ensemble` has the weight of each trial (`members`), the average's `value` on valid and
            score on `test`, its `gain` over the best trial on rows on which it was not chosen, the
            `noise` of this gain, and the number of members that were trained again (`refitted`), on
            which `rows`. `test` is then None. If the trial was not chosen by its value alone,
            `choice` has the `rule`, the trial with the `best` value, and the `values` of further
            trainings by trial. `new_rows` has the `value` of the exported model on new rows, `low`
            and `high` of an interval of 90%, the number of `rows` of valid, the gain over other
            `trials` and the default, and how many `similar` trials of those `compared` cannot be
            told from it; or the reason why it is `unknown`. `bytes` is the size of the bundle, and
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

    sweep: PrintableText
    dir: PrintablePath
    trials: dict[PrintableText, Count]
    best: _BestTrial | None
    bundle: PrintablePath | None
    checkpoint: PrintablePath | None
    mlflow: Annotated[dict[str, Any], _object(_Mlflow)]
    fits: Count
    seconds: Annotated[FiniteNumber, Field(ge=0, lt=10**12)]
    reason: PrintableText | None = None
    notes: tuple[PrintableText, ...] = ()
    front: Annotated[tuple[_BestTrial, ...], AfterValidator(_check_front)] = ()
    freed: Annotated[dict[str, int], _object(_Freed)] | None = None
    store: PrintableText | None = None

    def __post_init__(self) -> None:
        """Mask secrets in the notes, which may quote errors of the user's code."""
        object.__setattr__(self, "notes", tuple(map(masked, self.notes)))

    @property
    def best_trials(self) -> tuple[dict[str, Any], ...]:
        """The best trial, or the trials of the Pareto front; () if no trial has a value."""
        return (self.best,) if self.best else self.front

    @property
    def outcome(self) -> Literal["finished", "interrupted", "failed"]:
        """State of the sweep at its end."""
        if self.reason == "interrupted":
            return "interrupted"
        return "finished" if self.best_trials else "failed"

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
            pairs += [("best trial", self.best["trial"]), ("value", self.best["value"])]
            if self.best["test"] is not None:
                pairs.append(("test", self.best["test"]))
            if "trainer" in self.best:
                pairs.append(("trainer", self.best["trainer"]))
            pairs += [
                ("preprocessor", self.best["preprocessor"]),
                ("workers", workers_text(self.best["scaling"]["num_workers"])),
                *self.best.get("data", {}).items(),
                *flatten_params(self.best["params"]),
            ]
        for best in self.front:
            values = ", ".join(f"{name} {value}" for name, value in best["values"].items())
            pairs.append((f"front: trial {best['trial']}", values))
        paths = {"bundle": self.bundle, "checkpoint": self.checkpoint, "folder": self.dir}
        pairs += [(name, relative_path(path)) for name, path in paths.items() if path]
        if self.store:
            pairs.append(("store", self.store))
        return facts_table([*pairs, *(("note", note) for note in self.notes)])

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

    def as_text(self) -> str:
        """Return this result as the text of the file `result.json`."""
        return json.dumps(self.to_json(), indent=2, default=str, allow_nan=False) + "\n"


def count_trials(results: Iterable[Result]) -> dict[str, int]:
    """Return the number of trials by state, in the format of `SweepResult.trials`.

    Initial points are not counted if the space file gives their value, because no trial ran for
    them.
    """
    counts = Counter(result.state_name(is_driven=False) for result in results)
    return {
        word: counts[state] for state, word in STATE_WORDS.items() if counts[state] or word in ENDED
    }
