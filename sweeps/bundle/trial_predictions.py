"""Read the predictions for valid that the trials of a sweep have kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import BundleError
from sweeps.core.files.checkpoint_files import checkpoint_root
from sweeps.core.files.prediction_files import KeptPredictions, read_predictions
from sweeps.core.plugins import references
from sweeps.core.trial import format_trial_id
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.splits.valid_rows import ValidRows
from sweeps.space.sections.average_problem import prediction_problem
from sweeps.space.sections.data_models import variant_of
from sweeps.study import ranking
from sweeps.study.study_store import StudyStore

from .averaging import has_only_classes, to_numbers
from .resampling import Units, units_of
from .valid_scores import ValidScores

# A trial's value may differ from the score of its predictions by this share, because libraries
# compute metrics with 32 bits.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class KeptModel:
    """Predictions of the best model of a trial for valid.

    Attributes:
        step: The step of the model.
        predictions: The predictions, as `averaging.to_numbers` returns them.
        seconds: See `KeptPredictions`.
    """

    step: int
    predictions: np.ndarray
    seconds: float


@dataclass(frozen=True)
class TrialPredictions:
    """The predictions of the trials of a sweep, the best trial first.

    Attributes:
        info: Information about the data.
        valid: The rows of valid.
        scores: Scores predictions for these rows.
        models: The trials' models, by the number of the trial.
        problems: Reason why predictions of a trial cannot be used, by the number of the trial.
    """

    info: DatasetInfo
    valid: ValidRows
    scores: ValidScores
    models: dict[int, KeptModel]
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def has_classes(self) -> bool:
        """True if the labels are classes."""
        return self.info.task in metrics.CLASSIFICATION

    @cached_property
    def units(self) -> Units:
        """The units in which the rows of valid are drawn."""
        rows = sum(self.info.rows.get(split, 0) for split in ("train", "valid"))
        return units_of(self.valid, self.has_classes, rows)


def read_trial_predictions(study_store: StudyStore) -> TrialPredictions | None:
    """Read the predictions that the trials of a sweep have kept.

    These are completed trials that violate no constraint, and that read the same source of data as
    the best of them. Return None if there are none, or if predictions do not give the objective.

    Raises:
        InputError: The metric cannot be computed.
    """
    prepared = PreparedStore(study_store.folder)
    space = study_store.space
    if prediction_problem(space.objectives, space.data) is not None:
        return None
    results = study_store.results()
    trials: TrialPredictions | None = None
    first_source = ""
    for number in ranking.ranked(results.items(), study_store.objectives.minimize):
        result = results[number]
        if ranking.tier(result) != 0:
            continue
        kept = read_predictions(checkpoint_root(study_store.folder, format_trial_id(number)))
        if kept is None:
            continue
        data = study_store.trial(number).data
        source = variant_of(space.data, data).source
        if trials is None:
            valid = prepared.load_valid(data)
            if valid is None:
                continue
            info = prepared.load_info(data)
            scores = ValidScores(space.objective.metric, info.task, valid)
            trials = TrialPredictions(info, valid, scores, {})
            first_source = source
        if source != first_source:
            trials.problems[number] = "its trial read another source of data"
            continue
        try:
            predictions = _to_numbers(kept, trials)
        except BundleError as e:
            trials.problems[number] = str(e)
            continue
        if (text := _difference(trials.scores, predictions, result.value)) is not None:
            trials.problems[number] = text
            continue
        trials.models[number] = KeptModel(kept.step, predictions, kept.seconds)
    return trials


def _to_numbers(kept: KeptPredictions, trials: TrialPredictions) -> np.ndarray:
    """Return kept predictions as numbers that can be averaged.

    Raises:
        BundleError: The metric needs probabilities and the model predicts classes, or the file has
            not one prediction for each row.
    """
    metric = trials.scores.metric
    task = trials.info.task
    shapes = {fold.shape[1:] for fold in kept.folds}
    rows = sum(len(fold) for fold in kept.folds)
    if len(shapes) != 1 or rows != len(trials.valid.folds):
        raise BundleError("its predictions do not fit the rows of valid, or each other")
    output = np.concatenate(kept.folds)
    classes = len(trials.info.classes or ())
    only_classes = has_only_classes(output, task, classes)
    if only_classes and metrics.needs(metric, task) not in (None, "classes"):
        raise BundleError(f"`{metric}` needs probabilities, but the model predicts only classes")
    numbers = to_numbers(output, task, classes)
    if references.is_reference(metric) and (only_classes or numbers.shape != output.shape):
        raise BundleError(
            f"`{metric}` is a function that gets what the model predicts; the model predicts "
            f"an array of {output.dtype} with shape {output.shape}, and the average has shape "
            f"{numbers.shape}"
        )
    return numbers


def _difference(scores: ValidScores, predictions: np.ndarray, value: float | None) -> str | None:
    """Return a text if the score of a trial's predictions is not the trial's value; else None."""
    score = scores.score(predictions)
    if value is None or math.isclose(score, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE**2):
        return None
    return f"its predictions have the score {score:.6g}, but its value is {value:.6g}"
