"""Estimate the score of a sweep's exported model on new rows, from predictions for valid."""

from __future__ import annotations

import time
from dataclasses import asdict

import numpy as np

from sweeps.bundle.ensemble import EnsembleChoice
from sweeps.bundle.manifest import Facts
from sweeps.bundle.resampling import Units, units_of
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.core import metrics
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import format_trial_id
from sweeps.search.default_points import default_points, default_trials
from sweeps.space.sections.average_problem import prediction_problem
from sweeps.study import ranking
from sweeps.study.study_store import StudyStore

from .model_scores import (
    DRAWS,
    ModelScores,
    gain,
    hidden_optimism,
    interval,
    score_models,
    similar,
)

# With fewer rows, rows of a class, or groups, an interval would say more than is known.
LEAST_ROWS = 100
LEAST_OF_CLASS = 5
LEAST_UNITS = 20
# The estimate may take this share of the sweep's time, or these seconds if that is more.
MOST_SHARE = 0.02
LEAST_SECONDS = 1.0


def describe_new_rows(
    study_store: StudyStore,
    trials: TrialPredictions | None,
    number: int,
    choice: EnsembleChoice | None = None,
    sweep_seconds: float = 0.0,
) -> Facts:
    """Return the key `new_rows` of `SweepResult.best`.

    Args:
        study_store: The study.
        trials: The predictions of its trials; see `read_trial_predictions`.
        number: Number of the best trial.
        choice: The average that is exported; None if the best trial is.
        sweep_seconds: Wall time of the sweep, of which a small share is spent here.

    Raises:
        InputError: The metric cannot be computed.
    """
    space = study_store.space
    if prediction_problem(space.objectives, space.data) is not None:
        text = "it needs labelled rows of valid, and one objective that sweeps can compute"
        return {"unknown": text}
    if trials is None or number not in trials.models:
        reason = "" if trials is None else trials.problems.get(number, "")
        trial = f"trial {format_trial_id(number)}"
        return {"unknown": reason or f"{trial} has kept no predictions for valid"}
    has_classes = trials.info.task in metrics.CLASSIFICATION
    rows = sum(trials.info.rows.get(split, 0) for split in ("train", "valid"))
    units = units_of(trials.valid, has_classes, rows)
    if (problem := why_too_few(trials, units, has_classes)) is not None:
        return {"unknown": problem}
    numbers = list(trials.models)[: _most_models(trials, number, sweep_seconds)]
    if number not in numbers:
        return {"unknown": f"`{trials.scores.metric}` takes too long to compute on many draws"}
    predictions = [trials.models[each].predictions for each in numbers]
    minimize = study_store.minimize
    among = range(min(len(numbers), space.checkpoints.predictions))
    model = numbers.index(number)
    best_trial = model
    if choice is not None:
        model = len(numbers)
        predictions.append(choice.predictions)
    models = score_models(trials.scores, predictions, units, minimize)
    completed = sum(ranking.tier(result) == 0 for result in study_store.results().values())
    optimism = hidden_optimism(models, best_trial, among, completed)
    if choice is None:
        optimism += models.optimism(model, among)
    elif choice.gain is not None:
        optimism += choice.gain.optimism
    rule = space.data.valid
    is_of_folds = rule is not None and rule.kind == "folds"
    others = [other for other in similar(models, model) if other not in (model, len(numbers))]
    return {
        **asdict(interval(models, model, optimism, is_of_folds)),
        "rows": len(trials.valid.folds),
        "defaults": _defaults(study_store, models, numbers, model, optimism),
        "similar": len(others),
        "compared": len(numbers) - (choice is None),
    }


def _most_models(trials: TrialPredictions, number: int, sweep_seconds: float) -> int:
    """Return how many models can be scored on all draws in the time that there is.

    Metrics that are a mean over the rows take no time.
    """
    metric = metrics.find(trials.scores.metric, trials.info.task)
    if metric is not None and metric.rows is not None:
        return len(trials.models)
    began = time.perf_counter()
    trials.scores.score(trials.models[number].predictions)
    of_model = (1 + 2 * DRAWS) * (time.perf_counter() - began)
    return int(max(LEAST_SECONDS, MOST_SHARE * sweep_seconds) / of_model)


def why_too_few(trials: TrialPredictions, units: Units, has_classes: bool) -> str | None:
    """Return why the rows of valid are too few for an interval; None if they are not."""
    labels = trials.valid.labels
    if len(labels) < LEAST_ROWS:
        return f"valid has {count_noun(len(labels), 'row')}, and it needs {LEAST_ROWS}"
    if len(units.strata) < LEAST_UNITS:
        return f"valid has {len(units.strata)} {units.kind}, and it needs {LEAST_UNITS}"
    if has_classes:
        counts = np.bincount(labels.astype(np.int64), minlength=len(trials.info.classes or ()))
        fewest = int(counts.argmin())
        if counts[fewest] < LEAST_OF_CLASS:
            name = trials.info.classes[fewest] if trials.info.classes else fewest
            rows = count_noun(int(counts[fewest]), "row")
            return f"the class {name!r} has {rows} in valid, and it needs {LEAST_OF_CLASS}"
    return None


def _defaults(
    study_store: StudyStore,
    models: ModelScores,
    numbers: list[int],
    model: int,
    optimism: float,
) -> list[Facts]:
    """Return the gain of the exported model over the default configuration of each trainer.

    A default that is the exported model has no gain.
    """
    keys = ((number, state.keys) for number, state in study_store.states.items())
    facts = []
    for number in default_trials(default_points(study_store.space), keys):
        if number not in numbers:
            continue
        default = numbers.index(number)
        about = {
            "trial": format_trial_id(number),
            "trainer": study_store.trial(number).trainer,
        }
        if default != model:
            about |= asdict(gain(models, model, default, optimism))
        facts.append(about)
    return facts
