"""Compare the exported models of two sweeps on the same rows of valid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from sweeps.bundle.averaging import average, to_numbers
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.bundle.valid_scores import ValidScores
from sweeps.core import metrics
from sweeps.core.errors import SweepsError
from sweeps.core.files.checkpoint_files import checkpoint_root
from sweeps.core.files.prediction_files import read_predictions
from sweeps.data.prepared_store import PreparedStore

from .model_scores import WIDTH, Interval, score_models


@dataclass(frozen=True)
class ComparedModel:
    """The exported model of a sweep, as far as it can be compared.

    Attributes:
        trials: The data, and the rows of valid. It has no models.
        predictions: Predictions of the model for these rows.
        value: The score on new rows; see `new_rows.describe_new_rows`.
    """

    trials: TrialPredictions
    predictions: np.ndarray
    value: float


def read_model(
    folder: Path, best: Mapping[str, Any] | None, data: Mapping[str, Any], metric: str
) -> ComparedModel | None:
    """Read the exported model of a sweep. No user code runs.

    Args:
        folder: Folder of the sweep.
        best: `SweepResult.best`, or the facts of a bundle with the same keys.
        data: The tuned keys of `data` of the best trial.
        metric: The objective.

    Returns:
        The model; None if it has no interval on new rows, or no predictions.
    """
    is_known = metrics.base_name(metric) in metrics.METRICS
    if best is None or "value" not in best.get("new_rows", {}) or not is_known:
        return None
    members = best["ensemble"]["members"] if "ensemble" in best else {best["trial"]: 1}
    kept = [read_predictions(checkpoint_root(folder, trial)) for trial in members]
    try:
        prepared = PreparedStore(folder)
        info, valid = prepared.load_info(data), prepared.load_valid(data)
    except SweepsError:
        return None
    if valid is None or any(each is None for each in kept):
        return None
    classes = len(info.classes or ())
    known = [np.concatenate(each.folds) for each in kept if each is not None]
    if any(len(each) != len(valid.folds) for each in known):
        return None
    predictions = average(
        [to_numbers(each, info.task, classes) for each in known], [*members.values()]
    )
    trials = TrialPredictions(info, valid, ValidScores(metric, info.task, valid), {})
    return ComparedModel(trials, predictions, best["new_rows"]["value"])


def improvement(old: ComparedModel, new: ComparedModel, minimize: bool) -> Interval | None:
    """Return how much better a model is on new rows than another; below 0 if it is worse.

    The scores on new rows are corrected for the choice of each model. The error is that of the
    difference on the same draws of the rows, and the whole difference of the corrections.

    Returns:
        The difference; None if the rows of valid, the labels or the classes differ.
    """
    rows, others = old.trials.valid, new.trials.valid
    # Other rows would hardly have the same labels in the same order. Hashes of rows depend on the
    # columns, which may differ.
    has_same_rows = np.array_equal(rows.labels, others.labels)
    has_same_folds = np.array_equal(rows.folds, others.folds)
    has_same_classes = old.trials.info.classes == new.trials.info.classes
    if not (has_same_rows and has_same_folds and has_same_classes):
        return None
    if np.array_equal(old.predictions, new.predictions):
        return Interval(0.0, 0.0, 0.0)
    predictions = [old.predictions, new.predictions]
    models = score_models(old.trials.scores, predictions, old.trials.units, minimize)
    sign = 1 if minimize else -1
    value = sign * (old.value - new.value)
    correction = value - sign * float(models.values[0] - models.values[1])
    spread = float(np.nanstd(models.draws[:, 0] - models.draws[:, 1], ddof=1))
    error = math.hypot(spread, correction)
    return Interval(value, value - WIDTH * error, value + WIDTH * error)


def probability(difference: Interval) -> float:
    """Return the probability that a difference is above 0."""
    error = (difference.high - difference.value) / WIDTH
    if not error:
        return float(difference.value > 0)
    return NormalDist().cdf(difference.value / error)
