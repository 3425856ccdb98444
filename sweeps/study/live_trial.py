"""What the ledger knows of a trial that this driver runs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Checkpoint, Report, Trial
from sweeps.study import record
from sweeps.study.objectives import Objectives
from sweeps.study.record import Taken


class LiveTrial:
    """A trial that was begun or taken up.

    Attributes:
        trial: itself.
        keys: what each dimension is now.
        curve: the metric that leads of its reports, by step.
        others: (step, value) of the other metrics that are asked for.
        steps: of its last report.
        checkpoint, best, attempts, seconds: see `sweeps.execution.messages.Progress`.
        told: how often it was written.
        lineage, decided: the perturbations of PBT, and the last milestone that was decided.
        passed: the last rung from which it was told to go on; 0 before the first.
        over: it has ended.
    """

    def __init__(self, trial: Trial, keys: dict[str, Any]):
        self.trial, self.keys = trial, keys
        self.lineage: tuple[Taken, ...] = ()
        self.decided = self.passed = 0
        self.curve: dict[int, float] = {}
        self.others: dict[str, list[tuple[int, float]]] = {}
        self.steps = 0
        self.checkpoint: Checkpoint | None = None
        self.best: Checkpoint | None = None
        self.attempts, self.seconds, self.told = 0, 0.0, 0
        self.over = False

    @classmethod
    def recalled(cls, trial: Trial, t: FrozenTrial, folder: Path, judge: Objectives) -> LiveTrial:
        """As it is on record. The sweep's folder may have been moved, which its checkpoints' paths do not know."""
        row, so_far = cls(trial, record.keys_of(t)), record.so_far(t)

        def found(name: str) -> Checkpoint | None:
            if (there := so_far.get(name)) is None:
                return None
            at = SweepFolder(folder).trial(trial.id) / Path(there["path"]).name
            return Checkpoint(str(at), there["step"], there["best_step"]) if at.is_dir() else None

        row.curve, row.others = dict(record.curve_of(t)), record.others_of(t, judge.asked[1:])
        row.steps, row.told = max(row.curve, default=0), len(record.told(t))
        row.checkpoint, row.best = found("checkpoint"), found("best")
        row.attempts, row.seconds = so_far.get("attempts", 0), so_far.get("seconds", 0.0)
        row.lineage, row.decided, row.passed = record.lineage_of(t), record.decided_of(t), record.passed_of(t)
        return row

    def take(self, report: Report, judge: Objectives) -> float:
        """Take up a report; its value of the metric that leads, NaN if none does."""
        value = math.nan if judge.metric is None else report.metrics[judge.metric]
        self.steps, self.curve[report.step] = report.step, value
        for name in judge.asked[1:]:
            if name in report.metrics:
                self.others.setdefault(name, []).append((report.step, report.metrics[name]))
        return value

    def record(self) -> dict[str, Any]:
        """How it stands, as it is written."""
        as_dict = lambda c: dataclasses.asdict(c) if c else None  # noqa: E731
        return {
            "steps": self.steps,
            "checkpoint": as_dict(self.checkpoint),
            "best": as_dict(self.best),
            "attempts": self.attempts,
            "seconds": round(self.seconds, 4),
        }
