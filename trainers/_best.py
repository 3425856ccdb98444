"""Record the best step of a trial, also in the trial's checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

from sweeps import trial

STATE = "state.json"


class BestStep:
    """Best step of a trial so far.

    Args:
        cur: The trial.

    Attributes:
        step: Number of the best step. None before the first step whose value is not NaN.
        value: The objective's value at the best step. None if there is no best step yet.
    """

    def __init__(self, cur: trial.Current):
        self.cur = cur
        self.step: int | None = None
        self.value: float | None = None

    def compare(self, step: int, value: float) -> bool:
        """Compare a step's value with the best value so far. If the value is better, the step becomes the best step.

        Args:
            step: Number of the step.
            value: The objective's value at the step.

        Returns:
            Whether the step has become the best step.
        """
        if not self.cur.better(value, self.value):
            return False
        self.step, self.value = step, value
        return True

    def write(self, folder: Path, step: int) -> None:
        """Write the best step into a checkpoint's folder.

        Args:
            folder: Folder of the checkpoint.
            step: Number of the last step.
        """
        (folder / STATE).write_text(
            json.dumps({"step": step, "best_step": self.step, "best_value": self.value})
        )

    def read(self, folder: Path) -> int:
        """Restore the best step that `write` wrote. Return the number of the last step before the checkpoint."""
        state = json.loads((folder / STATE).read_text())
        self.step, self.value = state["best_step"], state["best_value"]
        return int(state["step"])
