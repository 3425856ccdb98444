"""Measure the rounds of a LightGBM booster, record the best round, and write checkpoints.

A checkpoint has the best model and its predictions.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np

from sweeps import trial
from sweeps.core.metrics import OWN, find
from sweeps.trainers import LabeledRows, safe_names
from sweeps.trainers._best import BestStep
from sweeps.trainers._metrics import measure
from sweeps.trainers._requested import SPLITS, RequestedMetrics

if TYPE_CHECKING:
    import pandas as pd

REFUSED_IN_NAMES = ' \t\n[]{}",:'
# LightGBM's names of the metrics in `sweeps.core.metrics`. `multi_error` is not among them: it
# counts ties between classes as errors.
NATIVE = {
    "binary": {
        "logloss": "binary_logloss",
        "error": "binary_error",
        "auc": "auc",
        "rmse": "rmse",
        "mae": "l1",
        "mse": "l2",
    },
    "multiclass": {"mlogloss": "multi_logloss", "logloss": "multi_logloss"},
    "regression": {"rmse": "rmse", "mae": "l1", "mse": "l2"},
}
# Tiny tables, with which LightGBM is asked whether it knows a metric.
TINY: dict[str, tuple[list[float], dict[str, Any]]] = {
    "binary": ([0, 1, 0, 1], {"objective": "binary"}),
    "multiclass": ([0, 1, 2, 0], {"objective": "multiclass", "num_class": 3}),
    "regression": ([1.0, 2.0, 3.0, 4.0], {"objective": "regression"}),
}


def metric_name(task: str, split: str, metric: str) -> str | None:
    """Return LightGBM's name of a metric.

    Return None if LightGBM does not have the metric, or defines it in another way.

    Args:
        task: "binary", "multiclass" or "regression".
        split: "train" or "valid". The name does not depend on it.
        metric: Name of the metric without a split.
    """
    return NATIVE[task].get(metric) if metric in OWN else _own_name(task, metric)


@functools.lru_cache(maxsize=64)
def _own_name(task: str, metric: str) -> str | None:
    """Return the name under which LightGBM reports one of its metrics.

    A name that LightGBM does not know gives None.
    """
    label, params = TINY[task]
    params = params | metric_parameters([metric])
    params |= {"verbosity": -1, "num_threads": 1, "min_data_in_bin": 1}
    try:
        data = lgb.Dataset(np.arange(4.0).reshape(4, 1), label, group=[4], params=params)
        found = lgb.Booster(params, data).eval_train()
    except lgb.basic.LightGBMError:
        return None
    return str(found[0].metric_name) if len(found) == 1 else None


def metric_parameters(metrics: Sequence[str]) -> dict[str, Any]:
    """Return LightGBM's parameters for metrics, which may have a position such as `ndcg@5`."""
    names = [name.partition("@")[0] for name in metrics]
    at = re.findall(r"@(\d+)", " ".join(metrics))
    return {"metric": names or "None"} | ({"eval_at": at} if at else {})


def predict(
    booster: lgb.Booster, features: pd.DataFrame, threads: int, rounds: int = -1
) -> np.ndarray:
    """Predict rows with the first rounds of a booster.

    Args:
        booster: The model.
        features: The rows.
        threads: Number of threads; 0 for all CPUs. LightGBM also uses this number for the next
            rounds of training.
        rounds: Number of rounds to use; -1 for all.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k
        classes, shape (n, k); or the values of a regression, shape (n,).
    """
    if not len(features):  # LightGBM refuses a table without rows
        outputs = booster.num_model_per_iteration()
        return np.zeros((0, outputs) if outputs > 1 else 0)
    features = features.set_axis(safe_names(features.columns, REFUSED_IN_NAMES), axis=1)
    return np.asarray(
        booster.predict(features, num_iteration=rounds, num_threads=threads), np.float64
    )


class BestRound(BestStep):
    """Best round of a booster so far.

    Args:
        cur: The trial.
        whole: True if later rounds change earlier trees. The model of the best round is then kept
            in memory.

    Attributes:
        rounds: Number of rounds of the best model. It is less than `step` if rounds have grown no
            tree. -1 if there is no best round yet.
        text: The model of the best round as text, if `whole` is True.
    """

    def __init__(self, cur: trial.Current, whole: bool):
        super().__init__(cur)
        self.whole = whole
        self.rounds = -1
        self.text: str | None = None

    def predict(self, booster: lgb.Booster, features: pd.DataFrame) -> np.ndarray:
        """Predict rows with the model of the best round.

        Args:
            booster: The booster after its last round.
            features: The rows.
        """
        if self.text is not None:
            return predict(lgb.Booster(model_str=self.text), features, self.cur.threads)
        return predict(booster, features, self.cur.threads, self.rounds)

    def save(self, booster: lgb.Booster, step: int, folder: Path) -> None:
        """Write a checkpoint, from which a resumed trial continues after `step`.

        The checkpoint has the model of the best round, and the state of the training.

        Args:
            booster: The booster after its last round.
            step: Number of the last round.
            folder: Folder of the checkpoint.
        """
        best_step = self.step or step
        if self.text is not None:
            (folder / "model.txt").write_text(self.text)
        else:
            booster.save_model(folder / "model.txt", num_iteration=self.rounds)
        if best_step != step:
            booster.save_model(folder / "latest.txt", num_iteration=-1)
        self.write(folder, step)
        check = self.cur.check
        self.cur.note_checkpoint(
            folder, best_step, None if check is None else self.predict(booster, check)
        )

    def restore(self, folder: Path) -> int:
        """Restore the state that `save` wrote, and return the last round before the checkpoint."""
        text = (folder / "model.txt").read_text()
        self.rounds = lgb.Booster(model_str=text).current_iteration()
        self.text = text if self.whole else None
        return self.read(folder)


class RoundMetrics:
    """Measures the metrics that each round reports, and the metrics of the finished model.

    Args:
        requested: The requested metrics.
        task: "binary", "multiclass" or "regression".
    """

    def __init__(self, requested: RequestedMetrics, task: str):
        self.requested, self.task = requested, task
        self.computed = {
            split: [name for name in requested.computed if name.startswith(split)]
            for split in SPLITS
        }

    def measure(self, booster: lgb.Booster) -> dict[str, float]:
        """Measure the last round.

        Args:
            booster: A booster that has the data set of valid.

        Returns:
            The value of each metric, by a name such as `valid-logloss`.
        """
        measured: dict[tuple[str, str], float] = {}
        for split in SPLITS:
            if self.computed[split] or split in self.requested.splits:
                compute = functools.partial(self._compute, split) if self.computed[split] else None
                found = (
                    booster.eval_valid(compute) if split == "valid" else booster.eval_train(compute)
                )
                measured |= {(split, each[1]): float(each[2]) for each in found}
        names = self.requested.framework_names
        return {
            name: measured[name.partition("-")[0], names.get(name, name)]
            for name in self.requested.reported
        }

    def _compute(
        self, split: str, predictions: np.ndarray, data: lgb.Dataset
    ) -> list[tuple[str, float, bool]]:
        """Compute the metrics that LightGBM does not have.

        LightGBM calls this method with predictions for all rows of a split.
        """
        values = measure(
            self.task, split, np.asarray(data.get_label()), predictions, self.computed[split]
        )
        return [(name, value, False) for name, value in values.items()]

    def final(
        self,
        booster: lgb.Booster,
        best: BestRound,
        step: int,
        rows: Mapping[str, LabeledRows],
        reported: Mapping[str, float],
    ) -> dict[str, float]:
        """Measure the model of the best round.

        Metrics that the trial reported are left out, and metrics that only LightGBM has.

        Args:
            booster: The booster after its last round.
            best: The best round.
            step: Number of the last round.
            rows: Rows of "train" and "valid".
            reported: The metrics that the last round reports.
        """
        wanted = [
            n
            for n in self.requested.final
            if n not in reported and find(n.partition("-")[2], self.task) is not None
        ]
        found: dict[str, float] = {}
        for split in SPLITS:
            if any(name.startswith(split) for name in wanted):
                is_last = (best.step or step) == step
                predictions = (
                    _last_predictions(booster, split)
                    if is_last
                    else best.predict(booster, rows[split].features)
                )
                found |= measure(self.task, split, rows[split].label, predictions, wanted)
        return found


def _last_predictions(booster: lgb.Booster, split: str) -> np.ndarray:
    """Return the predictions of the last round, which LightGBM has in memory."""
    kept: list[np.ndarray] = []

    def keep(predictions: np.ndarray, _: lgb.Dataset) -> list[tuple[str, float, bool]]:
        kept.append(predictions.copy())
        return []

    if split == "valid":
        booster.eval_valid(keep)
    else:
        booster.eval_train(keep)
    return kept[0]
