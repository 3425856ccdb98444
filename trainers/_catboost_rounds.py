"""Run CatBoost's `fit` between checkpoints, report its iterations, and record the best one."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import catboost as cb
import numpy as np

from sweeps import trial
from sweeps.core.metrics import USUAL

from . import Params
from ._best import Steps
from ._catboost_model import (
    COMPLEMENTS_OF_ACCURACY,
    Model,
    labeled_pool,
    metric_name,
    predictions_of,
)
from ._metrics import SPLITS, measure
from ._requested import RequestedMetrics
from ._rounds import Rounds

NEVER = 10**9  # seconds between two snapshots; CatBoost also writes one when `fit` ends


class RawPredictions:
    """Metric of CatBoost that keeps the raw predictions for valid, to compute other metrics.

    Attributes:
        raw: Raw predictions of the last iteration for valid, shape (n,) or (n, k).
    """

    no_jit = True  # CatBoost would try to compile the methods with numba

    def __init__(self) -> None:
        self.raw = np.zeros(0)

    def __deepcopy__(self, memo: object) -> RawPredictions:
        return self  # CatBoost copies its parameters

    def is_max_optimal(self) -> bool:
        """Return False. The value of this metric is not used."""
        return False

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        """Keep the predictions. CatBoost calls this method for train, and then for valid."""
        self.raw = np.array(approxes[0]) if len(approxes) == 1 else np.stack(approxes, axis=1)
        return 0.0, 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        """Return the value of this metric, which is not used."""
        return error


class CatBoostTraining(Steps):
    """Training of one model. CatBoost calls `after_iteration` after every iteration.

    Args:
        cur: The trial.
        config: The trial's `params`.
        params: CatBoost's parameters, without metrics.
        scratch: An existing folder for CatBoost's files.
    """

    def __init__(self, cur: trial.Current, config: Params, params: Params, scratch: Path):
        is_weighted = cur.weight is not None
        translate = functools.partial(metric_name, str(cur.task), weighted=is_weighted)
        self.requested = RequestedMetrics(config, cur, USUAL, translate)
        super().__init__(cur, self.requested.lead)
        self.params = params
        self.loss = str(params["loss_function"]).partition(":")[0]
        self.data = {
            split: cur.cached(f"catboost.{split}", functools.partial(labeled_pool, split, cur))
            for split in SPLITS
        }
        self.scratch = scratch
        self.rounds = Rounds.of(config, params["iterations"], cur.max_t)
        self._restored_step = 0  # the last iteration that was reported before the checkpoint
        # About the iteration after which `fit` was ended: its metrics, and True if it has a
        # checkpoint.
        self._last_metrics: dict[str, float] | None = None
        self._due = False
        self._error: BaseException | None = None  # the exception that ended `fit`
        self._raw = RawPredictions()

    @property
    def is_finished(self) -> bool:
        """True if the last iteration was the last one to train."""
        return self.rounds.is_last(self.step, self.best)

    def load(self, folder: Path) -> None:
        """Continue from CatBoost's snapshot.

        If `params` have changed, the earlier iterations are trained again.
        """
        self._restored_step = self.step
        before = json.loads((folder / "params.json").read_text())
        if before == json.loads(json.dumps(self.params)):
            shutil.copyfile(folder / "snapshot", self.scratch / "snapshot")
        else:
            self.step = 0
            self.best = None
            self.best_metrics = {}

    def fit(self) -> None:
        """Train until the next checkpoint, or until the end, and report all iterations.

        Raises:
            ValueError: CatBoost has ended the training early.
        """
        self._last_metrics = None
        self._error = None
        self.model = cb.CatBoost(
            self.params | self._metric_parameters() | {"train_dir": str(self.scratch)}
        )
        train, _ = self.data["train"]
        valid, _ = self.data["valid"]
        self.model.fit(
            train,
            eval_set=valid,
            callbacks=[self],
            save_snapshot=True,
            snapshot_file=str(self.scratch / "snapshot"),
            snapshot_interval=NEVER,
        )
        if self._error is not None:
            raise self._error
        if self._last_metrics is None:
            raise ValueError(
                f"CatBoost ended the training after iteration {self.step}: the values of leaves "
                "became infinite; try a larger `l2_leaf_reg`"
            )
        if self.step > self._restored_step:
            self.report(self._last_metrics, last=self.is_finished, due=self._due)

    def after_iteration(self, info: Any) -> bool:
        """Measure and report an iteration. Return whether `fit` continues.

        CatBoost would lose an exception, such as the one with which `report` stops a trial. `fit`
        therefore raises the exception later.
        """
        try:
            return self._continues(int(info.iteration), info.metrics)
        except BaseException as e:
            self._error = e
            return False

    def _continues(self, step: int, history: Mapping[str, Mapping[str, list[float]]]) -> bool:
        """Measure and report an iteration, unless `fit` reports it. Return whether `fit` continues.

        Args:
            step: Number of the iteration.
            history: See `_measured`.
        """
        self.step = step
        if not self.cur.report_due(step, step in self.rounds.reported):
            return True
        metrics = self._measured(history)
        self.compare(step, metrics)
        self._due = step > self._restored_step and self.cur.checkpoint_due(
            step, last=self.is_finished
        )
        if self._due or self.is_finished:
            self._last_metrics = metrics
            return False
        if step > self._restored_step:
            self.report(metrics, last=False, due=False)
        return True

    def _metric_parameters(self) -> Params:
        """Return the parameters that tell CatBoost which metrics to measure on which splits."""
        reported = self.requested.reported
        on_train = self.requested.framework_metrics(
            name for name in reported if name.startswith("train-")
        )
        metrics = []
        for metric in self.requested.framework_metrics(reported):
            if metric != self.params["loss_function"]:  # CatBoost measures this one in any case
                separator = ";" if ":" in metric else ":"
                skip_train = "false" if metric in on_train else "true"
                metrics.append(f"{metric}{separator}hints=skip_train~{skip_train}")
        params: Params = {}
        if metrics:
            params["custom_metric"] = metrics
        if self.requested.computed:
            params["eval_metric"] = self._raw
        return params

    def _measured(self, history: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
        """Return the metrics that the last iteration reports.

        Args:
            history: Maps "learn" and "validation" to the values of each of CatBoost's metrics in
                all iterations.
        """
        metrics: dict[str, float] = {}
        for name, metric in self.requested.framework_names.items():
            if name in self.requested.reported:
                values = history["learn" if name.startswith("train-") else "validation"]
                # CatBoost adds defaults to some names, as in `AUC:type=Mu`.
                key = next(k for k in values if k == metric or k.startswith(f"{metric}:"))
                value = values[key][-1]
                if name.partition("-")[2] in COMPLEMENTS_OF_ACCURACY:
                    value = 1.0 - value
                metrics[name] = value
        if self.requested.computed:
            task = str(self.cur.task)
            label = self.data["valid"][1]
            predictions = predictions_of(self._raw.raw, task, self.loss)
            metrics |= measure(task, "valid", label, predictions, self.requested.computed)
        return self.requested.select(metrics)

    def _best_model(self) -> Model:
        """Return the model of the best iteration."""
        return Model(
            self.model,
            str(self.cur.task),
            self.loss,
            rounds=self.best or self.step,
            threads=self.params["thread_count"],
        )

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the model of the best iteration, with the metrics that sweeps has."""
        best = self._best_model()

        def predict(split: str) -> tuple[np.ndarray, np.ndarray]:
            pool, label = self.data[split]
            return label, best.predict_pool(pool)

        return self.requested.measure_final(reported, predict)

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best iteration, and CatBoost's snapshot of the training."""
        best = self._best_model()
        best.model.save_model(str(folder / "model.cbm"))
        # The file may have more trees than `rounds`, because CatBoost can remove trees only from
        # models of symmetric trees.
        (folder / "model.json").write_text(
            json.dumps({"task": best.task, "loss": best.loss, "rounds": best.rounds})
        )
        (folder / "params.json").write_text(json.dumps(self.params))
        shutil.copyfile(self.scratch / "snapshot", folder / "snapshot")
        return None if self.cur.check is None else best.predict(self.cur.check)
