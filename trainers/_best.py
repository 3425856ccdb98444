"""Record the best step of a trial, also in the trial's checkpoints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps import trial

STATE = "state.json"


class BestStep:
    """Best step of a trial so far.

    Args:
        cur: The trial.

    Attributes:
        step: Number of the best step. None before the first step whose value is not NaN.
        metrics: The metrics at the best step. {} if there is no best step yet.
    """

    def __init__(self, cur: trial.Current):
        self.cur = cur
        self.step: int | None = None
        self.metrics: dict[Any, float] = {}

    def compare(self, step: int, metrics: Mapping[str, float], lead: str) -> bool:
        """Compare a step with the best step so far.

        If the step is better, it becomes the best step.

        Args:
            step: Number of the step.
            metrics: Metrics of the step.
            lead: The metric that decides among the steps that satisfy the constraints.

        Returns:
            Whether the step has become the best step.
        """
        measured: dict[Any, float] = {**metrics, self.cur.metric: metrics.get(lead, math.nan)}
        if not self.cur.better(measured, self.metrics):
            return False
        self.step, self.metrics = step, measured
        return True

    @property
    def state(self) -> dict[str, Any]:
        """The best step as entries of a JSON object, which a checkpoint contains."""
        return {"best_step": self.step, "best_metrics": list(self.metrics.items())}

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Restore the best step from an object with the entries of `state`."""
        self.step = state["best_step"]
        self.metrics = dict(state["best_metrics"])

    def write(self, folder: Path, step: int) -> None:
        """Write the best step into a checkpoint's folder.

        Args:
            folder: Folder of the checkpoint.
            step: Number of the last step.
        """
        (folder / STATE).write_text(json.dumps({"step": step, **self.state}))

    def read(self, folder: Path) -> int:
        """Restore the best step that `write` wrote.

        Return the number of the last step before the checkpoint.
        """
        state = json.loads((folder / STATE).read_text())
        self.restore_state(state)
        return int(state["step"])
