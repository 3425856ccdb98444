"""Estimate the score of a sweep's exported model on new rows, from predictions for valid."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict

import numpy as np

from sweeps.bundle.ensemble import EnsembleChoice
from sweeps.bundle.manifest import Facts
from sweeps.bundle.resampling import bootstrap
from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.core.errors import InputError, first_line
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import format_trial_id
from sweeps.search.default_points import default_points, default_trials
from sweeps.study import ranking
from sweeps.study.study_store import StudyStore

from .cheaper_trial import cheaper_trial
from .model_scores import (
    DRAWS,
    ModelScores,
    gain,
    hidden_optimism,
    interval,
    score_folds,
    score_models,
    similar,
)
from .value_noise import fold_values

log = logging.getLogger(__name__)

# With fewer rows, rows of a class, or groups, an interval would say more than is known.
LEAST_ROWS = 100
LEAST_OF_CLASS = 5
LEAST_UNITS = 20
LEAST_FOLDS = 5
# The report shows the gain over this many of the best trials, and over the defaults.
MOST_SHOWN = 12
# The estimate may take this share of the sweep's time, or these seconds if that is more.
MOST_SHARE = 0.02
LEAST_SECONDS = 1.0
# So many draws tell how long all of them take.
TIMED_DRAWS = 4


def new_rows_or_reason(
    study_store: StudyStore,
    trials: TrialPredictions | None,
    number: int,
    choice: EnsembleChoice | None = None,
    sweep_seconds: float = 0.0,
) -> Facts:
    """Return what `describe_new_rows` returns, or its error in `unknown`.

    A model is exported in any case.
    """
    try:
        return describe_new_rows(study_store, trials, number, choice, sweep_seconds)
    except InputError as e:
        return {"unknown": e.problems[0].text}
    except Exception as e:
        log.exception("the score on new rows was not estimated")
        return {"unknown": f"{type(e).__name__}: {first_line(e)}"}


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
    if study_store.objectives.metric != space.objective.metric:
        return {"unknown": f"the objective `{space.objective.metric}` is a cost"}
    if trials is None or number not in trials.models:
        return _from_folds(study_store, trials, number)
    if (problem := why_too_few(trials)) is not None:
        return {"unknown": problem}
    numbers = list(trials.models)[: _most_models(trials, number, sweep_seconds)]
    if number not in numbers:
        return {"unknown": f"`{trials.scores.metric}` takes too long to compute on many draws"}
    predictions = [trials.models[each].predictions for each in numbers]
    model = numbers.index(number)
    winners = [number]
    if choice is not None:
        predictions.append(choice.predictions)
        winners = [member.number for member in choice.weights]
    models = score_models(trials.scores, predictions, trials.units, study_store.minimize)
    facts, others = _describe(study_store, models, numbers, model, choice)
    facts["rows"] = len(trials.valid.folds)
    if (cheaper := cheaper_trial(study_store, trials, others, winners)) is not None:
        facts["cheaper"] = cheaper
    return facts


def _from_folds(study_store: StudyStore, trials: TrialPredictions | None, number: int) -> Facts:
    """Return what the values of the folds tell; see `describe_new_rows`."""
    folds = study_store.space.data.folds
    ranked = study_store.ranked()[: study_store.space.checkpoints.predictions]
    values = {
        each: fold_values([value for _, value in study_store.states[each].curve])
        for each in dict.fromkeys([*ranked, number])
        if len(study_store.states[each].curve) == folds
    }
    if folds < LEAST_FOLDS or number not in values:
        reason = "" if trials is None else trials.problems.get(number, "")
        text = reason or f"trial {format_trial_id(number)} has kept no predictions for valid"
        if folds >= LEAST_FOLDS:
            return {"unknown": f"{text}, and has ended before its last fold"}
        return {"unknown": f"{text}, and `data.valid` has fewer than {LEAST_FOLDS} folds"}
    models = score_folds(np.array([*values.values()]), study_store.minimize)
    numbers = list(values)
    facts, _ = _describe(study_store, models, numbers, numbers.index(number), None)
    return facts | {"folds": folds}


def _describe(
    study_store: StudyStore,
    models: ModelScores,
    numbers: list[int],
    best: int,
    choice: EnsembleChoice | None,
) -> tuple[Facts, list[int]]:
    """Return facts about the exported model, and the trials that cannot be told from it.

    Args:
        study_store: The study.
        models: Scores of the trials' models, and after them that of the average, if there is one.
        numbers: Numbers of the trials.
        best: Place of the best trial.
        choice: See `describe_new_rows`.
    """
    space = study_store.space
    among = range(min(len(numbers), space.checkpoints.predictions))
    completed = sum(ranking.tier(result) == 0 for result in study_store.results().values())
    optimism = hidden_optimism(models, best, among, completed)
    model = best
    if choice is None:
        optimism += models.optimism(model, among)
    else:
        model = len(numbers)
        optimism += 0.0 if choice.gain is None else choice.gain.optimism
    rule = space.data.valid
    is_of_folds = rule is not None and rule.kind == "folds"
    further: list[float] = []
    if choice is None and space.data.can_redivide and study_store.choice is not None:
        values = study_store.choice.values.get(numbers[best], ())[1:]
        further = [value for value in values if value is not None]
    overlap = 1.0 if rule is None or rule.fraction is None else rule.fraction
    others = [other for other in similar(models, model) if other not in (model, len(numbers))]
    keys = ((number, state.keys) for number, state in study_store.states.items())
    defaults = set(default_trials(default_points(space), keys))
    trials = []
    for place, number in enumerate(numbers):
        about: Facts = {"trial": format_trial_id(number)}
        if number in defaults:
            about["default"] = study_store.trial(number).trainer
        if place != model:
            # The best of the other trials were lucky, too. The defaults were not chosen.
            own = optimism if number in defaults else 0.0
            about |= asdict(gain(models, model, place, own))
        if number in defaults or (place != model and place < MOST_SHOWN):
            trials.append(about)
    facts = {
        **asdict(interval(models, model, optimism, is_of_folds, further, overlap)),
        "trials": trials,
        "similar": len(others),
        "compared": len(numbers) - (choice is None),
    }
    return facts, [numbers[other] for other in others]


def _most_models(trials: TrialPredictions, number: int, sweep_seconds: float) -> int:
    """Return how many models can be scored on all draws in the time that there is."""
    draws = bootstrap(trials.units, TIMED_DRAWS, seed=0)
    seconds = []
    for _ in range(2):  # the first time, libraries may be imported
        began = time.perf_counter()
        trials.scores.draw_scores([trials.models[number].predictions], trials.units, draws)
        seconds.append(time.perf_counter() - began)
    of_model = (1 + 2 * DRAWS) / TIMED_DRAWS * min(seconds)
    return int(max(LEAST_SECONDS, MOST_SHARE * sweep_seconds) / of_model)


def why_too_few(trials: TrialPredictions) -> str | None:
    """Return why the rows of valid are too few for an interval; None if they are not."""
    labels, units = trials.valid.labels, trials.units
    if len(labels) < LEAST_ROWS:
        return f"valid has {count_noun(len(labels), 'row')}, and it needs {LEAST_ROWS}"
    if len(units.strata) < LEAST_UNITS:
        return f"valid has {len(units.strata)} {units.kind}, and it needs {LEAST_UNITS}"
    if trials.has_classes:
        counts = np.bincount(labels.astype(np.int64), minlength=len(trials.info.classes or ()))
        fewest = int(counts.argmin())
        if counts[fewest] < LEAST_OF_CLASS:
            name = trials.info.classes[fewest] if trials.info.classes else fewest
            rows = count_noun(int(counts[fewest]), "row")
            return f"the class {name!r} has {rows} in valid, and it needs {LEAST_OF_CLASS}"
    return None
