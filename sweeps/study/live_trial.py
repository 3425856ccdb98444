"""In-memory state of a trial that this driver has started or resumed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from sweeps.core.checkpoint_files import checkpoint_exists, checkpoint_root
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, Trial
from sweeps.study import record
from sweeps.study.objectives import Objectives
from sweeps.study.record import Perturbation


@dataclasses.dataclass(frozen=True)
class ProgressUpdate:
    """Progress of a trial since the previous update.

    Attributes:
        reports: Reports in the order of their steps.
        checkpoint: Latest checkpoint; None if there is no new checkpoint since the previous update.
        best: Checkpoint of the best step; None if this checkpoint has not changed since the
            previous update.
        attempts: Number of attempts so far. In each attempt, a gang of workers runs the training
            loop.
        seconds: Wall time in seconds that the trial has spent on gangs of workers, summed over all
            attempts.
        worker_seconds: Seconds that workers have spent on the trial, summed over all workers and
            attempts.
        sizes: All numbers of workers that an elastic trial has had; empty for other trials.
    """

    reports: tuple[Report, ...]
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    attempts: int = 1
    seconds: float = 0.0
    worker_seconds: float = 0.0
    sizes: tuple[GangSizePeriod, ...] = ()


class LiveTrial:
    """In-memory state of a trial that this driver has started or resumed.

    Args:
        trial: The trial.
        keys: Key of each active dimension, by the dimension's name. A key stands for a value; see
            `sweeps.space.Dimension.value`.

    Attributes:
        trial: The trial, with its current parameters.
        keys: Current key of each active dimension, by the dimension's name.
        curve: Values of the leading metric (see `Objectives.metric`), by step.
        other_curves: (step, value) pairs of the other metrics in objectives and constraints, by
            metric.
        steps: Step of the last report; 0 before the first report.
        checkpoint, best, attempts, seconds, worker_seconds, sizes: See `ProgressUpdate`.
        chunks: Number of progress records of the trial in the study.
        lineage: Perturbations of the trial, in the order in which they happened.
        decided_rung: Last perturbation step at which the scheduler decided about the trial; 0
            before the first decision.
        passed_rung: Last rung from which the trial continued; 0 before the first rung.
        ended: True if the trial has ended.
    """

    def __init__(self, trial: Trial, keys: dict[str, Any]):
        self.trial, self.keys = trial, keys
        self.lineage: tuple[Perturbation, ...] = ()
        self.decided_rung = self.passed_rung = 0
        self.curve: dict[int, float] = {}
        self.other_curves: dict[str, list[tuple[int, float]]] = {}
        self.steps = 0
        self.checkpoint: Checkpoint | None = None
        self.best: Checkpoint | None = None
        self.attempts, self.seconds, self.worker_seconds, self.chunks = 0, 0.0, 0.0, 0
        self.sizes: tuple[GangSizePeriod, ...] = ()
        self.ended = False

    @classmethod
    def restore(
        cls, trial: Trial, t: FrozenTrial, folder: Path, objectives: Objectives
    ) -> LiveTrial:
        """Restore the state of a trial from the study.

        The sweep's folder may have been moved since the paths of checkpoints were recorded. Each
        checkpoint is therefore looked up in the trial's current folder, or in the sweep's store, by
        the last part of its recorded path.

        Args:
            trial: The trial.
            t: The trial as Optuna recorded it.
            folder: The sweep's folder.
            objectives: The objectives of the sweep.

        Returns:
            The restored state. `checkpoint` or `best` is None if this checkpoint no longer exists.
        """
        live, latest = cls(trial, record.keys_of(t)), record.latest_progress(t)

        def existing(name: str) -> Checkpoint | None:
            if (recorded := latest.get(name)) is None:
                return None
            path = f"{checkpoint_root(folder, trial.id)}/{Path(recorded['path']).name}"
            return (
                Checkpoint(path, recorded["step"], recorded["best_step"])
                if checkpoint_exists(path)
                else None
            )

        live.curve, live.other_curves = (
            dict(record.curve_of(t)),
            record.others_of(t, objectives.reported_metrics[1:]),
        )
        live.steps, live.chunks = max(live.curve, default=0), len(record.progress_records(t))
        live.checkpoint, live.best = existing("checkpoint"), existing("best")
        live.attempts, live.seconds = latest.get("attempts", 0), latest.get("seconds", 0.0)
        live.worker_seconds, live.sizes = record.worker_seconds_of(t), record.sizes_of(t)
        live.lineage, live.decided_rung, live.passed_rung = (
            record.lineage_of(t),
            record.decided_of(t),
            record.passed_of(t),
        )
        return live

    def add_report(self, report: Report, objectives: Objectives) -> None:
        """Add a report to the curves.

        Args:
            report: The new report.
            objectives: Objectives and constraints of the sweep.
        """
        value = math.nan if objectives.metric is None else report.metrics[objectives.metric]
        self.steps, self.curve[report.step] = report.step, value
        for name in objectives.reported_metrics[1:]:
            if name in report.metrics:
                self.other_curves.setdefault(name, []).append((report.step, report.metrics[name]))

    def to_json(self) -> dict[str, Any]:
        """Return the entries of a progress record, such as `steps`, without the reports."""
        return {
            "steps": self.steps,
            "checkpoint": dataclasses.asdict(self.checkpoint) if self.checkpoint else None,
            "best": dataclasses.asdict(self.best) if self.best else None,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 4),
            **self._elastic_to_json(),
        }

    def _elastic_to_json(self) -> dict[str, Any]:
        """Return the entries that only the progress records of elastic trials have.

        {} for other trials.
        """
        if self.trial.shape.most is None:
            return {}
        return {
            record.WORKER_SECONDS: round(self.worker_seconds, 4),
            record.SIZES: [dataclasses.asdict(size) for size in self.sizes],
        }
