"""The steps of a trial: compare them, report them, and continue from a checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps import trial

from . import report, without

if TYPE_CHECKING:
    import numpy as np

STATE = "state.json"


class Steps:
    """The steps of a trial on one rank, and the best of them.

    A trainer's subclass keeps the model of the best step.

    Args:
        cur: The trial.
        lead: Metric that decides among the steps that satisfy the constraints.

    Attributes:
        step: Number of the latest step; 0 before the first step.
        best: Number of the best step. None before the first step whose value is not NaN.
        best_metrics: The metrics at the best step. {} if there is no best step yet.
    """

    def __init__(self, cur: trial.Current, lead: str):
        self.cur = cur
        self.lead = lead
        self.step = 0
        self.best: int | None = None
        self.best_metrics: dict[str | None, float] = {}

    @property
    def is_best(self) -> bool:
        """True if the latest step is the best step, or if every value so far is NaN.

        Checkpoints then have the model of the latest step.
        """
        return self.best in (None, self.step)

    def compare(self, step: int, metrics: Mapping[str, float]) -> None:
        """Compare a new step with the best step so far.

        If the new step is better, it becomes the best step, and its model is kept.

        Args:
            step: Number of the step.
            metrics: Metrics of the step.
        """
        self.step = step
        measured: dict[str | None, float] = dict(metrics.items())
        # `better` compares the objective's metric, so the value of `lead` takes its place. The name
        # of this metric is None if all objectives are costs.
        measured[self.cur.metric] = metrics.get(self.lead, math.nan)
        if self.cur.better(measured, self.best_metrics):
            self.best = step
            self.best_metrics = measured
            self.keep()

    def report(self, metrics: dict[str, float], *, last: bool, due: bool) -> None:
        """Report the latest step. Only rank 0 reports a checkpoint.

        Args:
            metrics: Metrics of the step.
            last: True if the training ends after this step. The model of the best step is then
                measured.
            due: True if a checkpoint is due.
        """
        import ray.train

        if last:  # before `report`, which ends the trial at the scheduler's `max_t`
            self.report_final(metrics)
        saves = due and ray.train.get_context().get_world_rank() == 0
        report(metrics, self.write if saves else None)

    def report_final(self, reported: Mapping[str, float]) -> None:
        """Report metrics of the best step's model, except those that the last step reports."""
        self.cur.report_final(without(self.final(reported), reported))

    def write(self, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues after the latest step."""
        predictions = self.save(folder)
        state = {
            "step": self.step,
            "best": self.best,
            "best_metrics": list(self.best_metrics.items()),
        }
        (folder / STATE).write_text(json.dumps(state))
        self.cur.note_checkpoint(folder, self.best or self.step, predictions)

    def restore(self) -> None:
        """Continue from the trial's checkpoint, if there is one."""
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, STATE).read_text())
            self.step = state["step"]
            self.best = state["best"]
            self.best_metrics = dict(state["best_metrics"])
            self.load(Path(folder))

    def keep(self) -> None:
        """Keep the model of the latest step, which is the best step so far."""

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the model of the best step. Metrics in `reported` may be left out."""
        raise NotImplementedError

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best step and the state of the training.

        Return the model's predictions for the check rows; None if there are no such rows.
        """
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""
        raise NotImplementedError
