"""Choose the members of an ensemble: one bundle that averages models of a sweep.

The members are chosen by their predictions for the rows of valid, on which none of them was
trained.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import format_trial_id
from sweeps.space import Space
from sweeps.space.sections.average_problem import average_problem
from sweeps.study.study_store import StudyStore

from .averaging import average
from .manifest import Facts
from .resampling import halves, units_of
from .selection import Gain, measure_gain, select
from .trial_choice import SavedModel, saved_model
from .trial_predictions import TrialPredictions
from .valid_scores import ValidScores

OPTION = "--ensemble"
# The notes give the reasons for at most this many of the trials that cannot be members.
SHOWN_REASONS = 3
# Members are chosen on at most this many rows, and the gain over the best single model is measured
# on this many divisions of them.
MOST_ROWS = 20_000
DIVISIONS = 5
# A metric of scikit-learn or of the user takes milliseconds. There are fewer models to choose from
# then, and fewer divisions.
CANDIDATES_OF_SLOW_METRIC = 8
DIVISIONS_OF_SLOW_METRIC = 2


def require_supported(space: Space) -> None:
    """Check that a sweep's models can be averaged, and scored on the rows of valid.

    Raises:
        InputError: They cannot. The message gives the reason and the next step.
    """
    problem = average_problem(space.objectives, space.data, space.trainers.values())
    if problem is not None:
        raise InputError(OPTION, problem)


@dataclass(frozen=True)
class EnsembleChoice:
    """The members of an ensemble.

    Attributes:
        weights: Weight of each member, the largest first.
        values: Score of each member alone on valid.
        facts: Facts about the choice, for the key `ensemble` of a bundle's manifest.
        value: Score of the ensemble on valid.
        predictions: Predictions of the ensemble for valid.
        gain: See `measure_gain`; None if it cannot be measured.
        notes: Notes on trials that cannot be members.
    """

    weights: Mapping[SavedModel, int]
    values: Mapping[SavedModel, float]
    facts: Facts
    value: float
    predictions: np.ndarray
    gain: Gain | None
    notes: tuple[str, ...]

    @property
    def members_line(self) -> str:
        """A line that lists the members with their weights."""
        members = ", ".join(
            f"{model.trial_id} (weight {weight})" for model, weight in self.weights.items()
        )
        rounds = count_noun(self.facts["rounds"], "round")
        used = count_noun(len(self.facts["candidates"]), "trial")
        line = f"members: {members}; chosen in {rounds} among {used}"
        if len(self.weights) == 1 and self.facts["rounds"] > 1:
            line += "; no average scored better than this model alone"
        return line


def score_lines(metric: str, ensemble: Facts) -> list[str]:
    """Return lines with the scores of an ensemble and of the best single model.

    Args:
        metric: The metric.
        ensemble: The key `ensemble` of `SweepResult.best`.
    """
    single = ensemble["single"]
    lines = []
    for split, key in (("valid", "value"), ("test", "test")):
        if ensemble[key] is None:
            continue
        line = f"{metrics.base_name(metric)} on {split}: {ensemble[key]:.6g} for the ensemble"
        if single[key] is not None:
            line += f", {single[key]:.6g} for the best single model (trial {single['trial']})"
        lines.append(line)
    return lines


def choose(study_store: StudyStore, trials: TrialPredictions | None, rounds: int) -> EnsembleChoice:
    """Choose the members of an ensemble with `sweeps.bundle.selection`.

    Args:
        study_store: The study of a sweep that `require_supported` accepts.
        trials: The predictions of its trials; see `read_trial_predictions`.
        rounds: Number of rounds of the selection.

    Raises:
        InputError: The metric cannot be computed, no trial has kept its predictions and a model, or
            no model has predictions with a finite score.
    """
    space = study_store.space
    candidates, problems = _candidates(study_store, trials)
    if trials is None or not (candidates or problems):
        raise InputError(
            OPTION,
            "no completed trial of this sweep has kept a model and its predictions for valid; keep "
            "both (`checkpoints`), and let a trial complete",
        )
    scores = trials.scores
    models = list(candidates)
    if not scores.is_fast:
        models = models[:CANDIDATES_OF_SLOW_METRIC]
    whole = [candidates[model] for model in models]
    rows = _rows_of_choice(len(trials.valid.folds))
    predictions = [each[rows] for each in whole]
    minimize = space.objective.goal == "minimize"
    chosen = select(predictions, functools.partial(scores.score, rows=rows), minimize, rounds)
    if chosen is None:
        reasons = [f": trial {trial} {text}" for trial, text in problems.items()]
        text = f"no model of this sweep has a finite `{scores.metric}` on valid"
        raise InputError(OPTION, text + "".join(reasons[:1]))
    averaged = average([whole[i] for i in chosen.weights], [*chosen.weights.values()])
    gain = None
    if len(chosen.weights) > 1:
        gain = gain_of(scores, predictions, averaged[rows], rows, minimize=minimize, rounds=rounds)
    values = {model: scores.score(each) for model, each in zip(models, whole, strict=True)}
    value = scores.score(averaged)
    single = models[chosen.single]
    facts: Facts = {
        "rounds": rounds,
        "values": chosen.round_values,
        "rows": len(trials.valid.folds),
        "candidates": {model.trial_id: model.step for model in models},
        "single": {"trial": single.trial_id, "value": values[single]},
    }
    weights = {models[i]: weight for i, weight in chosen.weights.items()}
    return EnsembleChoice(weights, values, facts, value, averaged, gain, _notes(problems))


def _candidates(
    study_store: StudyStore, trials: TrialPredictions | None
) -> tuple[dict[SavedModel, np.ndarray], dict[str, str]]:
    """Return the predictions of each model that can be a member, the best trial first.

    The second result has the reason why a trial cannot be a member, by the trial's id.
    """
    predictions: dict[SavedModel, np.ndarray] = {}
    if trials is None:
        return predictions, {}
    problems = {format_trial_id(n): reason for n, reason in trials.problems.items()}
    for number, kept in trials.models.items():
        model = saved_model(study_store, number)
        trainer = study_store.space.trainer_of(study_store.trial(number).labels)
        if model is None or trainer.load is None:
            continue
        if kept.step == model.step:
            predictions[model] = kept.predictions
        else:
            problems[model.trial_id] = "it has no predictions of its best model"
    return predictions, problems


def _notes(problems: Mapping[str, str]) -> tuple[str, ...]:
    """Return notes on the trials that cannot be members, given the reasons."""
    notes = [f"note: trial {trial} is no candidate: {text}" for trial, text in problems.items()]
    hidden = len(notes) - SHOWN_REASONS
    if hidden > 0:
        notes[SHOWN_REASONS:] = [f"note: {hidden} more trials are no candidates"]
    return tuple(notes)


def _rows_of_choice(count: int) -> np.ndarray:
    """Return the indices of the rows on which members are chosen."""
    if count <= MOST_ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:MOST_ROWS])


def gain_of(
    scores: ValidScores,
    predictions: list[np.ndarray],
    final: np.ndarray,
    rows: np.ndarray,
    *,
    minimize: bool,
    rounds: int,
) -> Gain | None:
    """Measure the gain of an ensemble over the best model; see `selection.measure_gain`.

    Args:
        scores: Scores predictions.
        predictions: Predictions of each model for some rows of valid.
        final: Predictions of the ensemble for these rows.
        rows: The indices of these rows.
        minimize: True if smaller scores are better.
        rounds: Number of rounds of the selection.
    """
    count = DIVISIONS if scores.is_fast else DIVISIONS_OF_SLOW_METRIC
    units = units_of(scores.valid, scores.task in metrics.CLASSIFICATION)
    masks = halves(units, count, seed=0)[:, units.of_row[rows]]
    try:
        return measure_gain(
            predictions,
            final,
            lambda chosen, part: scores.score(part, rows[chosen]),
            list(masks),
            minimize=minimize,
            rounds=rounds,
        )
    except InputError:  # a half may lack a class
        return None
