"""A study as it stands on record, read without writing to it: for those who look at a sweep, also while it runs."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from sweeps.search import rules
from sweeps.trial import Checkpoint, Result, State, Trial

JOURNAL = "study.journal"


@dataclass(frozen=True)
class Recorded:
    """A trial on record.

    Attributes:
        number, id, seed: see `sweeps.trial.Trial`.
        result: how it stands; RUNNING if it runs or was interrupted.
        preprocessor: its chain in short.
        scaling: `num_workers` and `resources_per_worker`.
        params: what its loop got.
        labels: each dimension's name and value.
        curve: (step, value of the objective) of every report on record, by step.
        attempts: gangs it was started on.
        reason: why it was stopped, if it was.
        began, ended: local time; `ended` is None while it has not.
    """

    number: int
    id: str
    seed: int
    result: Result
    preprocessor: str
    scaling: dict[str, Any]
    params: dict[str, Any]
    labels: dict[str, Any]
    curve: tuple[tuple[int, float], ...]
    attempts: int
    reason: str | None
    began: datetime.datetime | None
    ended: datetime.datetime | None

    def to_json(self) -> dict[str, Any]:
        """What `show --json` prints of it."""
        r = self.result
        shown: dict[str, Any] = {"trial": self.id, "state": r.state.name, "value": r.value, "best_step": r.best_step, "steps": r.steps}
        shown |= {"seconds": r.seconds, "preprocessor": self.preprocessor, "scaling": self.scaling, "params": self.params}
        shown |= {"seed": self.seed, "attempts": self.attempts, "curve": self.curve, "reason": self.reason, "error": r.error}
        return shown | {name: at and at.isoformat(timespec="seconds") for name, at in (("began", self.began), ("ended", self.ended))}


@dataclass(frozen=True)
class Record:
    """A sweep's study.

    Attributes:
        goal: "minimize" or "maximize".
        metric: the objective's name.
        trials: all that were begun, by number.
    """

    goal: str
    metric: str
    trials: tuple[Recorded, ...] = field(default=())

    @property
    def best(self) -> Recorded | None:
        """The trial that `rules.winner` names; None if none has a value."""
        number = rules.winner(((t.number, t.result) for t in self.trials), self.goal == "minimize")
        return None if number is None else next(t for t in self.trials if t.number == number)


def begun(trial: Trial) -> dict[str, Any]:
    """What is written of a trial when it begins, so that the study says by itself what was tried."""
    scaling = {"num_workers": trial.shape.workers, "resources_per_worker": dict(trial.shape.per_worker)}
    told = {
        "id": trial.id,
        "seed": trial.seed,
        "preprocessor": trial.chain,
        "scaling": scaling,
        "params": trial.params,
        "labels": trial.labels,
    }
    return told | ({"data": trial.data} if trial.data else {})


def curve_of(t: FrozenTrial) -> tuple[tuple[int, float], ...]:
    """(step, value) of the reports on record."""
    return tuple((int(s), float(v)) for s, v in t.user_attrs.get("so_far", {}).get("curve", ()))


def result_of(t: FrozenTrial, minimize: bool) -> Result:
    """How a trial on record stands."""
    so_far = t.user_attrs.get("so_far", {})
    step, value = rules.best_of(curve_of(t), minimize)
    best = so_far.get("best")
    return Result(
        state=State(t.state.name) if t.state.name in State.__members__ else State.RUNNING,
        value=value,
        best_step=step,
        steps=so_far.get("steps", 0),
        checkpoint=Checkpoint(**best) if best else None,
        error=so_far.get("error"),
        seconds=so_far.get("seconds", 0.0),
    )


def read(folder: Path) -> Record | None:
    """The record in a sweep's folder, which another process may be writing to; None if no study was begun there."""
    journal = (folder / JOURNAL).resolve()
    if not journal.is_file() or not journal.stat().st_size:
        return None
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
    studies = storage.get_all_studies()
    if not studies:
        return None
    study = optuna.load_study(study_name=studies[0].study_name, storage=storage)
    goal = study.direction.name.lower()
    trials = tuple(_recorded(t, goal == "minimize") for t in study.get_trials(deepcopy=False) if "begun" in t.user_attrs)
    return Record(goal, study.user_attrs.get("metric", "objective"), trials)


def _recorded(t: FrozenTrial, minimize: bool) -> Recorded:
    first, so_far = t.user_attrs["begun"], t.user_attrs.get("so_far", {})
    return Recorded(
        number=t.number,
        id=first["id"],
        seed=first["seed"],
        preprocessor=first["preprocessor"],
        scaling=first["scaling"],
        params=first["params"],
        labels=first["labels"],
        result=result_of(t, minimize),
        curve=curve_of(t),
        attempts=so_far.get("attempts", 0),
        reason=so_far.get("reason"),
        began=t.datetime_start,
        ended=t.datetime_complete,
    )
