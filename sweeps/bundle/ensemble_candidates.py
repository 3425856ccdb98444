"""Choose the models of a sweep that an ensemble may have as members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweeps.core.errors import InputError
from sweeps.core.trial import format_trial_id
from sweeps.study.study_store import StudyStore

from .trial_choice import SavedModel, saved_model
from .trial_predictions import TrialPredictions

OPTION = "--ensemble"
# The notes give the reasons for at most this many of the trials that cannot be members.
SHOWN_REASONS = 3


@dataclass(frozen=True)
class EnsembleCandidates:
    """The models of a sweep that an ensemble may have as members, the best trial first.

    Attributes:
        trials: The predictions of the sweep's trials.
        predictions: Predictions of each model for valid.
        problems: Reason why a trial cannot be a member, by the trial's id.
    """

    trials: TrialPredictions
    predictions: dict[SavedModel, np.ndarray]
    problems: dict[str, str]

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


def candidates_of(study_store: StudyStore, trials: TrialPredictions | None) -> EnsembleCandidates:
    """Return the trials with predictions that have kept a model.

    Args:
        study_store: The study.
        trials: The predictions of its trials; see `read_trial_predictions`.

    Raises:
        InputError: No trial has kept its predictions, and a model.
    """
    predictions: dict[SavedModel, np.ndarray] = {}
    problems: dict[str, str] = {}
    if trials is not None:
        problems |= {format_trial_id(n): reason for n, reason in trials.problems.items()}
        for number, kept in trials.models.items():
            model = saved_model(study_store, number)
            if (
                model is None
                or study_store.space.trainer_of(study_store.trial(number).labels).load is None
            ):
                continue
            if kept.step == model.step:
                predictions[model] = kept.predictions
            else:
                problems[model.trial_id] = "it has no predictions of its best model"
    if trials is None or not (predictions or problems):
        raise InputError(
            OPTION,
            "no completed trial of this sweep has kept a model and its predictions for valid; keep "
            "both (`checkpoints`), and let a trial complete",
        )
    return EnsembleCandidates(trials, predictions, problems)
