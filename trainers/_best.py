"""Record the best round of a booster, and write checkpoints with the best model and its predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import xgboost as xgb

from sweeps import trial
from sweeps.trainers._dmatrix import Columns, named

LOGITS = '"name":"binary:logitraw"'


class Best:
    """Best round of a booster so far.

    Args:
        cur: The trial.
        whole: True if XGBoost cannot cut the model of an earlier round out of the booster. The model of the best round is then kept in
            memory.
        check: Rows for which each checkpoint records predictions, so that a bundle can be checked against them. None to record none.
        columns: Names and types of the columns, which saved models contain.

    Attributes:
        step: Number of the best round. None before the first round whose value is not NaN.
        value: The objective's value at the best round. None if there is no best round yet.
    """

    def __init__(self, cur: trial.Current, whole: bool, check: xgb.DMatrix | None, columns: Columns):
        self.cur, self.check, self.whole, self.columns = cur, check, whole, columns
        self.step: int | None = None
        self.value: float | None = None
        self.raw: bytearray | None = None

    def see(self, booster: xgb.Booster, step: int, value: float) -> None:
        """Compare a round's value with the best value so far. If the value is better, the round becomes the best round.

        Args:
            booster: The booster after the round.
            step: Number of the round.
            value: The objective's value at the round.
        """
        if self.cur.better(value, self.value):
            self.step, self.value = step, value
            if self.whole:
                self.raw = booster.save_raw("ubj")

    def model(self, booster: xgb.Booster, step: int) -> xgb.Booster:
        """Return the model of the best round. This is `booster` itself if `step`, its last round, is the best round."""
        if (self.step or step) == step:
            return booster
        return xgb.Booster(model_file=self.raw) if self.raw else booster[: self.step]

    def save(self, booster: xgb.Booster, step: int, folder: Path) -> None:
        """Write a checkpoint: the model of the best round, and the state from which a resumed trial continues after `step`.

        Args:
            booster: The booster after its last round.
            step: Number of the last round.
            folder: Folder of the checkpoint.
        """
        best_step = self.step or step
        model = self.model(booster, step)
        if best_step != step:
            self._write(booster, folder / "latest.ubj")
        self._write(model, folder / "model.ubj")
        state = {"step": step, "best_step": self.step, "best_value": self.value}
        (folder / "state.json").write_text(json.dumps(state))
        self.cur.note_checkpoint(folder, best_step, None if self.check is None else self.predictions(booster, best_step, model))

    def _write(self, model: xgb.Booster, file: Path) -> None:
        """Save a model with the names of its columns. In memory, models have no column names."""
        named(model, self.columns)
        model.save_model(file)
        named(model, Columns())

    def predictions(self, booster: xgb.Booster, best_step: int, model: xgb.Booster) -> np.ndarray:
        """Predict the check rows with the model of the best round as it is in memory, not as it is in a file.

        The prediction is made on a CPU, because a bundle also predicts on a CPU.

        Args:
            booster: The booster after its last round.
            best_step: Number of the best round.
            model: The model of the best round.
        """
        assert self.check is not None
        if has_gpu():
            model = model.copy()
            model.set_param({"device": "cpu"})
            return answers(model, self.check)
        return answers(model, self.check) if self.whole else answers(booster, self.check, best_step)

    def restore(self, folder: Path) -> int:
        """Restore the state that `save` wrote, and return the number of the last round before the checkpoint."""
        state = json.loads((folder / "state.json").read_text())
        self.step, self.value = state["best_step"], state["best_value"]
        if self.whole and self.step is not None:
            self.raw = bytearray((folder / "model.ubj").read_bytes())
        return int(state["step"])


def answers(booster: xgb.Booster, matrix: xgb.DMatrix, rounds: int = 0) -> np.ndarray:
    """Predict rows with the first rounds of a booster.

    Args:
        booster: The model.
        matrix: The rows.
        rounds: Number of rounds to use; 0 for all.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k classes, shape (n, k); or the values
        of a regression, shape (n,).
    """
    out = booster.predict(matrix, iteration_range=(0, rounds)).astype(np.float64)
    if LOGITS in booster.save_config():
        out = 1.0 / (1.0 + np.exp(-out))
    return out


def has_gpu() -> bool:
    """Return whether Ray has assigned a GPU, or a fraction of a GPU, to this worker."""
    import ray

    return bool(ray.is_initialized() and ray.get_gpu_ids())
