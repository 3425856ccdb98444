"""Summarize sweeps from their folders, for `ls` and `show`.

The functions write nothing, and the sweeps may be running.
"""

import datetime
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from sweeps.core.errors import DamagedStudy, InputError, Problem, UnreadableFile
from sweeps.core.files.file_format import format_problem
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.json_files import read_json_object
from sweeps.core.files.origin import origin_problem, valid_origin_keys
from sweeps.core.files.result_file import read_result, refuse_invalid_result
from sweeps.core.files.stores import recorded_store
from sweeps.core.files.sweep_folder import SweepFolder, is_sweep
from sweeps.core.json_values import is_text
from sweeps.core.result import SweepResult, count_trials, to_json_value
from sweeps.study.record_reader import Record, RecordReader
from sweeps.study.states import TrialState

# State of a sweep whose folder has another format than this version reads.
UNREADABLE = "unreadable"


@dataclass(frozen=True)
class SweepSummary:
    """Summary of a sweep.

    Attributes:
        name: Name of the sweep's folder.
        folder: The sweep's folder.
        state: "running", "paused", "finished", "failed", "interrupted", "killed" if the process
            that ran the sweep died, or "unreadable" if the folder has another format than this
            version reads.
        trials: Number of trials by state: `completed`, `pruned`, `failed`, `running`,
            `interrupted`, or `paused` if the scheduler has paused trials. It is empty before the
            first trial. In a running sweep, trials that do not train yet are counted under the
            first word of their stage, such as `waiting`.
        total: Expected number of trials in the whole sweep. It may change while the sweep runs.
            None if it is not known.
        best: Id and value of the best trial. None if no trial has a value yet, or if there are
            several objectives.
        metric: Metric of the first objective; None if no file in the folder names it.
        began: When the sweep started, in seconds since the epoch.
        result: The sweep's result; None if the sweep has not ended.
        algorithm: Algorithm of the search, such as `tpe`; None if no file in the folder names it.
        stages: Stage of each trial that does not train yet or is silent, by id, such as `waiting
            for workers`, `waiting since 14:03:12 for nodes: ...` or `silent: rank 1 has not
            reported for 310 s; ...`. It is empty if the sweep does not run.
        problems: Messages about the damaged files in the folder.
        store: Address of the sweep in S3-compatible storage; None if the sweep is only in its
            folder.
        learned_from: Text about each earlier sweep from which the sweep learns.
        is_copy: True if the folder is a temporary copy of the sweep in the store.
    """

    name: str
    folder: Path
    state: str
    trials: dict[str, int] = field(default_factory=dict)
    total: int | None = None
    best: tuple[str, float] | None = None
    metric: str | None = None
    began: float = 0.0
    result: SweepResult | None = None
    algorithm: str | None = None
    stages: dict[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    store: str | None = None
    learned_from: tuple[str, ...] = ()
    is_copy: bool = False

    @property
    def is_running(self) -> bool:
        """True if a process runs the sweep, which may be paused."""
        return self.state in ("running", "paused")

    def state_of(self, trial: TrialState) -> str:
        """Return a trial's state in one word.

        This is `WAITING`, for example, if the trial waits for workers (see `stages`).
        """
        state = trial.result.state_name(self.is_running)
        if state != "RUNNING":
            return state
        return _first_word(self.stages.get(trial.id, state)).upper()

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that `ls --json` prints."""
        began = datetime.datetime.fromtimestamp(self.began).astimezone()
        best: dict[str, JsonValue] | None = None
        if self.best is not None:
            trial, value = self.best
            best = {"trial": trial, "value": to_json_value(value)}
        content: dict[str, JsonValue] = {
            "sweep": self.name,
            "dir": None if self.is_copy else str(self.folder),
            "state": self.state,
            "began": began.isoformat(timespec="seconds"),
            "trials": {**self.trials},
            "total": self.total,
            "metric": self.metric,
            "best": best,
            "algorithm": self.algorithm,
        }
        if self.store is not None:
            content["store"] = self.store
        if self.learned_from:
            content["learned_from"] = list(self.learned_from)
        if self.problems:
            content["problems"] = [str(problem) for problem in self.problems]
        return content


def list_sweeps(root: Path) -> list[SweepSummary]:
    """Return a summary of every sweep in a root folder; the newest comes first.

    Raises:
        InputError: The root folder does not exist.
    """
    if not root.is_dir():
        raise InputError("--dir", f"the folder {root} does not exist; `sweeps run` creates it")
    summaries = [summarize(folder) for folder in sorted(root.iterdir()) if is_sweep(folder)]
    return sorted(summaries, key=lambda s: s.began, reverse=True)


def summarize(folder: Path, reader: RecordReader | None = None) -> SweepSummary:
    """Return the summary of the sweep in a folder.

    Args:
        folder: The sweep's folder.
        reader: Reads the study. Give a reader that is used again, so that only what is new is read.
    """
    paths = SweepFolder(folder)
    stored = read_json_object(paths.origin)
    changed = paths.origin.stat().st_mtime
    problem = None if stored is None else format_problem(paths.origin, stored)
    if problem is not None:
        return SweepSummary(folder.name, folder, UNREADABLE, began=changed, problems=(problem,))
    origin = valid_origin_keys(folder)
    result = read_result(folder)
    problems = _damaged_files(folder, stored)
    running = is_driven(folder)
    ended = result is not None and not running
    study = None
    # With repeats, only the study tells the total number of trials.
    if not ended or origin.get("repeats", 1) > 1:
        study, study_problems = _read_study(folder, reader)
        problems += study_problems
    total = origin.get("max_trials")
    if study is not None and total is not None:
        total = study.total(total)
    trials = {} if result is None else result.trials
    stages: dict[str, str] = {}
    best = None
    if result is not None and ended:
        if result.best and result.best["value"] is not None:
            best = result.best["trial"], result.best["value"]
    elif study is not None:
        if running:
            stages = _stages(folder, study)
        trials = _count_trials(study, running, stages)
        value = study.best_value
        if study.best is not None and value is not None:
            best = study.best.id, value
    return SweepSummary(
        name=folder.name,
        folder=folder,
        state=_state(running, study, result),
        trials=trials,
        total=total,
        best=best,
        metric=origin.get("metric"),
        began=origin.get("began") or changed,
        result=result,
        algorithm=origin.get("algorithm"),
        stages=stages,
        problems=tuple(problems),
        store=recorded_store(folder),
        learned_from=tuple(origin.get("learned_from", ())),
    )


def _state(running: bool, study: Record | None, result: SweepResult | None) -> str:
    """Return the value of `SweepSummary.state`."""
    if running:
        return "paused" if study is not None and study.paused else "running"
    return "killed" if result is None else result.outcome


def _read_study(
    folder: Path, reader: RecordReader | None
) -> tuple[Record | None, tuple[Problem, ...]]:
    """Return the study and its problems.

    The study is None if it does not exist yet, is damaged, or its database cannot be reached.
    """
    try:
        return (reader or RecordReader(folder)).read(), ()
    except (DamagedStudy, UnreadableFile) as e:
        return None, tuple(e.problems)
    except InputError:  # The database cannot be reached. `ls` must still list the other sweeps.
        return None, ()


def _count_trials(study: Record, running: bool, stages: dict[str, str]) -> dict[str, int]:
    """Return the value of `SweepSummary.trials` for a sweep that has not ended."""
    counts = count_trials(trial.result for trial in study.trials)
    counts["running" if running else "interrupted"] = counts.pop("interrupted", 0) - len(stages)
    return {**counts, **Counter(_first_word(stage) for stage in stages.values())}


def _stages(folder: Path, study: Record) -> dict[str, str]:
    """Return the stage of each running trial that does not train yet or is silent, by its id."""
    running = {t.id for t in study.ran if t.result.state.name == "RUNNING" and not t.result.paused}
    saved = read_json_object(SweepFolder(folder).stages) or {}
    return {
        trial: stage
        for trial, stage in saved.items()
        if trial in running and is_text(stage) and stage.strip()
    }


def _first_word(stage: str) -> str:
    """Return the first word of a stage.

    Examples are `waiting` of `waiting for workers`, and `silent` of `silent: rank 1 ...`.
    """
    return stage.split()[0].rstrip(":")


def _damaged_files(folder: Path, origin: dict[str, JsonValue] | None) -> list[Problem]:
    """Return a problem for `origin.json` and for `result.json`, if the file is damaged."""
    problem = origin_problem(folder, origin)
    problems = [] if problem is None else [problem]
    try:
        refuse_invalid_result(folder)
    except InputError as e:
        problems += e.problems
    return problems
