"""Read the predictions of a sweep's models for valid, with which an ensemble is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import BundleError, InputError
from sweeps.core.files.checkpoint_files import checkpoint_root
from sweeps.core.files.prediction_files import KeptPredictions, read_predictions
from sweeps.core.plugins import references
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.splits.valid_rows import ValidRows
from sweeps.space.sections.data_models import variant_of
from sweeps.study import ranking
from sweeps.study.study_store import StudyStore

from .averaging import has_only_classes, to_numbers
from .trial_choice import SavedModel, saved_model

OPTION = "--ensemble"
# The notes give the reasons for at most this many of the trials that cannot be members.
SHOWN_REASONS = 3


@dataclass(frozen=True)
class EnsembleCandidates:
    """The models of a sweep that an ensemble may have as members, the best trial first.

    Attributes:
        info: Information about the data.
        valid: The rows of valid.
        predictions: Predictions of each model for these rows, as `averaging.to_numbers` returns
            them.
        problems: Reason why a trial cannot be a member, by the trial's id.
    """

    info: DatasetInfo
    valid: ValidRows
    predictions: dict[SavedModel, np.ndarray]
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Notes on the trials that cannot be members."""
        notes = [
            f"note: trial {trial} is no candidate: {reason}"
            for trial, reason in self.problems.items()
        ]
        hidden = len(notes) - SHOWN_REASONS
        if hidden <= 0:
            return notes
        return [*notes[:SHOWN_REASONS], f"note: {hidden} more trials are no candidates"]


def read_candidates(study_store: StudyStore) -> EnsembleCandidates:
    """Read the predictions that the best trials of a sweep have kept.

    These are trials with a model that can be exported. Trials that violate a constraint are left
    out, and so are trials that read another source of data than the best trial.

    Raises:
        InputError: No trial has kept its predictions, and a model.
    """
    prepared = PreparedStore(study_store.folder)
    metric = study_store.space.objective.metric
    results = study_store.results()
    best: tuple[DatasetInfo, ValidRows] | None = None
    best_source = ""
    predictions: dict[SavedModel, np.ndarray] = {}
    problems: dict[str, str] = {}
    spec = study_store.space.data
    most = study_store.space.checkpoints.predictions
    for number in ranking.ranked(results.items(), study_store.objectives.minimize):
        if len(predictions) == most:
            break
        trial = study_store.trial(number)
        has_load = study_store.space.trainer_of(trial.labels).load is not None
        if not (has_load and results[number].feasible and ranking.tier(results[number]) == 0):
            continue
        kept = read_predictions(checkpoint_root(study_store.folder, trial.id))
        model = saved_model(study_store, number)
        if kept is None or model is None:
            continue
        if kept.step != model.step:
            problems[model.trial_id] = "it has no predictions of its best model"
            continue
        valid = prepared.load_valid(trial.data)
        if valid is None:
            continue
        source = variant_of(spec, trial.data).source
        if best is None:
            best = prepared.load_info(trial.data), valid
            best_source = source
        if source != best_source:
            problems[model.trial_id] = "its trial read another source of data"
            continue
        try:
            predictions[model] = _to_numbers(kept, valid, metric, best[0])
        except BundleError as e:
            problems[model.trial_id] = str(e)
    if best is None:
        raise InputError(
            OPTION,
            "no completed trial of this sweep has kept a model and its predictions for valid; keep "
            "both (`checkpoints`), and let a trial complete",
        )
    return EnsembleCandidates(*best, predictions, problems)


def _to_numbers(
    kept: KeptPredictions, valid: ValidRows, metric: str, info: DatasetInfo
) -> np.ndarray:
    """Return kept predictions as numbers that can be averaged.

    Raises:
        BundleError: The metric needs probabilities and the model predicts classes, or the file has
            not one prediction for each row.
    """
    shapes = {fold.shape[1:] for fold in kept.folds}
    rows = sum(len(fold) for fold in kept.folds)
    if len(shapes) != 1 or rows != len(valid.folds):
        raise BundleError("its predictions do not fit the rows of valid, or each other")
    output = np.concatenate(kept.folds)
    classes = len(info.classes or ())
    only_classes = has_only_classes(output, info.task, classes)
    if only_classes and metrics.needs(metric, info.task) not in (None, "classes"):
        raise BundleError(f"`{metric}` needs probabilities, but the model predicts only classes")
    numbers = to_numbers(output, info.task, classes)
    if references.is_reference(metric) and (only_classes or numbers.shape != output.shape):
        raise BundleError(
            f"`{metric}` is a function that gets what the model predicts; the model predicts "
            f"an array of {output.dtype} with shape {output.shape}, and the average has shape "
            f"{numbers.shape}"
        )
    return numbers
