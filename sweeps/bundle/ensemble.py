"""Choose the members of an ensemble: one bundle that averages models of a sweep.

The members are chosen by their predictions for the rows of valid, on which none of them was
trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.core.text.texts import count_noun
from sweeps.space import Space
from sweeps.space.sections.average_problem import average_problem
from sweeps.study.study_store import StudyStore

from .averaging import average
from .ensemble_candidates import OPTION, EnsembleCandidates, read_candidates
from .manifest import Facts
from .selection import Gain, divide, measure_gain, select
from .trial_choice import SavedModel

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
        gain: See `measure_gain`; None if it cannot be measured.
        notes: Notes on trials that cannot be members.
    """

    weights: Mapping[SavedModel, int]
    values: Mapping[SavedModel, float]
    facts: Facts
    value: float
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


def choose(study_store: StudyStore, rounds: int) -> EnsembleChoice:
    """Choose the members of an ensemble with `sweeps.bundle.selection`.

    Args:
        study_store: The study of a sweep that `require_supported` accepts.
        rounds: Number of rounds of the selection.

    Raises:
        InputError: The metric cannot be computed, or no model has predictions with a finite score.
    """
    space = study_store.space
    candidates = read_candidates(study_store)
    scorer = _Scorer(space.objective.metric, candidates)
    models = list(candidates.predictions)
    if not scorer.is_fast:
        models = models[:CANDIDATES_OF_SLOW_METRIC]
    whole = [candidates.predictions[model] for model in models]
    predictions = [each[scorer.rows] for each in whole]
    minimize = space.objective.goal == "minimize"
    chosen = select(predictions, scorer.score_rows, minimize, rounds)
    if chosen is None:
        reasons = [f": trial {trial} {text}" for trial, text in candidates.problems.items()]
        text = f"no model of this sweep has a finite `{scorer.metric}` on valid"
        raise InputError(OPTION, text + "".join(reasons[:1]))
    gain = None
    if len(chosen.weights) > 1:
        gain = scorer.measure_gain(predictions, minimize, rounds)
    values = {model: scorer.score(each) for model, each in zip(models, whole, strict=True)}
    value = scorer.score(average([whole[i] for i in chosen.weights], [*chosen.weights.values()]))
    single = models[chosen.single]
    facts: Facts = {
        "rounds": rounds,
        "values": chosen.round_values,
        "rows": len(candidates.valid.folds),
        "candidates": {model.trial_id: model.step for model in models},
        "single": {"trial": single.trial_id, "value": values[single]},
    }
    weights = {models[i]: weight for i, weight in chosen.weights.items()}
    return EnsembleChoice(weights, values, facts, value, gain, tuple(candidates.notes))


class _Scorer:
    """Scores predictions for valid: in a cross-validation, the mean of the scores of the folds.

    Args:
        metric: The metric.
        candidates: The models and the rows.

    Attributes:
        rows: Indices of the rows on which members are chosen.
        is_fast: True if a score takes less than a millisecond for a thousand rows.
    """

    def __init__(self, metric: str, candidates: EnsembleCandidates):
        self.metric = metric
        self.is_fast = metrics.base_name(metric) in metrics.OWN
        self._task = candidates.info.task
        self._valid = candidates.valid
        self.rows = np.arange(len(candidates.valid.folds))
        if len(self.rows) > MOST_ROWS:
            self.rows = np.sort(np.random.default_rng(0).permutation(self.rows)[:MOST_ROWS])

    def score(self, predictions: np.ndarray) -> float:
        """Return the score of predictions for all rows."""
        return self._mean(np.arange(len(self._valid.folds)), predictions)

    def score_rows(self, predictions: np.ndarray) -> float:
        """Return the score of predictions for `rows`."""
        return self._mean(self.rows, predictions)

    def _mean(self, rows: np.ndarray, predictions: np.ndarray) -> float:
        """Return the score of predictions for some rows.

        Raises:
            InputError: The metric cannot be computed.
        """
        folds = self._valid.folds[rows]
        labels = self._valid.labels[rows]
        scores = []
        for fold in np.unique(folds):
            mask = folds == fold
            scores.append(self._score_fold(labels[mask], predictions[mask]))
        return float(np.mean(scores))

    def _score_fold(self, labels: np.ndarray, predictions: np.ndarray) -> float:
        metric = self.metric
        try:
            value = metrics.score(metric, self._task, labels, predictions)
        except Exception as e:  # a user's metric may raise anything
            text = f"the metric `{metric}` cannot be computed on valid: {type(e).__name__}: {e}"
            raise InputError(OPTION, text) from e
        if value is None:
            text = f"cannot compute the metric `{metric}` for the task {self._task}"
            raise InputError(OPTION, f"{text}, because only the loop knows it; use --trial ID")
        return value

    def measure_gain(
        self, predictions: list[np.ndarray], minimize: bool, rounds: int
    ) -> Gain | None:
        """Measure the gain of an ensemble over the best model; see `selection.measure_gain`.

        Args:
            predictions: Predictions of each model for `rows`.
            minimize: True if smaller scores are better.
            rounds: Number of rounds of the selection.
        """
        rows = self.rows
        strata = self._valid.folds[rows]
        if self._task in ("binary", "multiclass"):
            _, codes = np.unique(self._valid.labels[rows], return_inverse=True)
            strata = strata * (codes.max() + 1) + codes
        groups = None
        if self._valid.groups is not None:
            _, groups = np.unique(self._valid.groups[rows], return_inverse=True)
        count = DIVISIONS if self.is_fast else DIVISIONS_OF_SLOW_METRIC
        try:
            return measure_gain(
                predictions,
                lambda chosen, part: self._mean(rows[chosen], part),
                divide(strata, groups, count),
                minimize=minimize,
                rounds=rounds,
            )
        except InputError:  # a half may lack a class
            return None
