"""Record the best round of an XGBoost booster, and write checkpoints.

A checkpoint has the best model and its predictions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xgboost as xgb

from sweeps import trial
from sweeps.trainers._best import BestStep
from sweeps.trainers._dmatrix import Columns, named

LOGITS = '"name":"binary:logitraw"'


class BestRound(BestStep):
    """Best round of a booster so far.

    Args:
        cur: The trial.
        whole: True if XGBoost cannot cut the model of an earlier round out of the booster. The
            model of the best round is then kept in memory.
        check: Rows for which each checkpoint records predictions, so that a bundle can be checked
            against them. None to record none.
        columns: Names and types of the columns, which saved models contain.

    Attributes:
        raw: The booster of the best round, which the loop keeps if `whole` is True. None if there
            is none.
    """

    def __init__(
        self, cur: trial.Current, whole: bool, check: xgb.DMatrix | None, columns: Columns
    ):
        super().__init__(cur)
        self.check, self.whole, self.columns = check, whole, columns
        self.raw: bytearray | None = None

    def model(self, booster: xgb.Booster, step: int) -> xgb.Booster:
        """Return the model of the best round.

        This is `booster` itself if `step`, its last round, is the best round.
        """
        if (self.step or step) == step:
            return booster
        return xgb.Booster(model_file=self.raw) if self.raw else booster[: self.step]

    def save(self, booster: xgb.Booster, step: int, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues after `step`.

        The checkpoint has the model of the best round, and the state of the training.

        Args:
            booster: The booster after its last round.
            step: Number of the last round.
            folder: Folder of the checkpoint.
        """
        best_step = self.step or step
        model = self.model(booster, step)
        if best_step != step:
            self._save_model(booster, folder / "latest.ubj")
        self._save_model(model, folder / "model.ubj")
        self.write(folder, step)
        self.cur.note_checkpoint(
            folder,
            best_step,
            None if self.check is None else self.predictions(booster, best_step, model),
        )

    def _save_model(self, model: xgb.Booster, file: Path) -> None:
        """Save a model with the names of its columns. In memory, models have no column names."""
        named(model, self.columns)
        model.save_model(file)
        named(model, Columns())

    def predictions(self, booster: xgb.Booster, best_step: int, model: xgb.Booster) -> np.ndarray:
        """Predict the check rows with the best round's model in memory, not with one from a file.

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
            return predict(model, self.check)
        return predict(model, self.check) if self.whole else predict(booster, self.check, best_step)

    def restore(self, folder: Path) -> int:
        """Restore the state that `save` wrote, and return the last round before the checkpoint."""
        step = self.read(folder)
        if self.whole and self.step is not None:
            self.raw = bytearray((folder / "model.ubj").read_bytes())
        return step


def predict(booster: xgb.Booster, matrix: xgb.DMatrix, rounds: int = 0) -> np.ndarray:
    """Predict rows with the first rounds of a booster.

    Args:
        booster: The model.
        matrix: The rows.
        rounds: Number of rounds to use; 0 for all.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k
        classes, shape (n, k); or the values of a regression, shape (n,).
    """
    out = booster.predict(matrix, iteration_range=(0, rounds)).astype(np.float64)
    if LOGITS in booster.save_config():
        out = 1.0 / (1.0 + np.exp(-out))
    return out


def has_gpu() -> bool:
    """Return whether Ray has assigned a GPU, or a fraction of a GPU, to this worker."""
    import ray

    return bool(ray.is_initialized() and ray.get_gpu_ids())
