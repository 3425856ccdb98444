"""Estimate the score of a sweep's exported model on new rows, from predictions for valid."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass

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


def describe_new_rows(
    study_store: StudyStore,
    trials: TrialPredictions | None,
    number: int,
    choice: EnsembleChoice | None = None,
    sweep_seconds: float = 0.0,
) -> Facts:
    """Return the key `new_rows` of `SweepResult.best`. If it is not known, `unknown` says why.

    Args:
        study_store: The study.
        trials: The predictions of its trials; see `read_trial_predictions`.
        number: Number of the best trial.
        choice: The average that is exported; None if the best trial is.
        sweep_seconds: Wall time of the sweep, of which a small share is spent here.
    """
    try:
        return _Winner(study_store, trials, number, choice).describe(sweep_seconds)
    except InputError as e:
        return {"unknown": e.problems[0].text}
    except Exception as e:  # A model is exported in any case.
        log.exception("the score on new rows was not estimated")
        return {"unknown": f"{type(e).__name__}: {first_line(e)}"}


@dataclass(frozen=True)
class _Winner:
    """The exported model of a sweep; for the attributes, see `describe_new_rows`."""

    study_store: StudyStore
    trials: TrialPredictions | None
    number: int
    choice: EnsembleChoice | None

    def describe(self, sweep_seconds: float) -> Facts:
        """Return what the predictions tell, or else the values of the folds.

        Raises:
            InputError: The metric cannot be computed.
        """
        store, trials, choice = self.study_store, self.trials, self.choice
        if store.objectives.metric != store.space.objective.metric:
            return {"unknown": f"the objective `{store.space.objective.metric}` is a cost"}
        if trials is None or self.number not in trials.models:
            return self._from_folds()
        if (problem := why_too_few(trials)) is not None:
            return {"unknown": problem}
        numbers = list(trials.models)[: _most_models(trials, self.number, sweep_seconds)]
        if self.number not in numbers:
            return {"unknown": f"`{trials.scores.metric}` takes too long to compute on many draws"}
        predictions = [trials.models[each].predictions for each in numbers]
        winners = [self.number]
        if choice is not None:
            predictions.append(choice.predictions)
            winners = [member.number for member in choice.weights]
        models = score_models(trials.scores, predictions, trials.units, store.minimize)
        facts, others = self._compare(models, numbers)
        facts["rows"] = len(trials.valid.folds)
        if (cheaper := cheaper_trial(store, trials, others, winners)) is not None:
            facts["cheaper"] = cheaper
        return facts

    def _from_folds(self) -> Facts:
        """Return what the values of the folds tell."""
        store = self.study_store
        folds = store.space.data.folds
        ranked = store.ranked()[: store.space.checkpoints.predictions]
        values = {
            each: fold_values([value for _, value in store.states[each].curve])
            for each in dict.fromkeys([*ranked, self.number])
            if len(store.states[each].curve) == folds
        }
        if folds >= LEAST_FOLDS and self.number in values:
            models = score_folds(np.array([*values.values()]), store.minimize)
            return self._compare(models, list(values))[0] | {"folds": folds}
        reason = "" if self.trials is None else self.trials.problems.get(self.number, "")
        name = format_trial_id(self.number)
        text = reason or f"trial {name} has kept no predictions for valid"
        if store.space.data.valid is None:
            return {"unknown": text}
        if folds >= LEAST_FOLDS:
            return {"unknown": f"{text}, and has ended before its last fold"}
        return {"unknown": f"{text}, and `data.valid` has fewer than {LEAST_FOLDS} folds"}

    def _compare(self, models: ModelScores, numbers: list[int]) -> tuple[Facts, list[int]]:
        """Return facts about the exported model, and the trials that cannot be told from it.

        Args:
            models: Scores of the trials' models, and after them that of the average, if there is
                one.
            numbers: Numbers of the trials.
        """
        store = self.study_store
        rule = store.space.data.valid
        best = numbers.index(self.number)
        among = range(min(len(numbers), store.space.checkpoints.predictions))
        completed = sum(ranking.tier(result) == 0 for result in store.results().values())
        optimism = hidden_optimism(models, best, among, completed)
        further: list[float] = []
        own = {len(numbers)}
        model = len(numbers)
        if self.choice is None:
            model = best
            optimism += models.optimism(model, among)
            own = self._repeats(numbers)
            if store.space.data.can_redivide and store.choice is not None:
                values = store.choice.values.get(self.number, ())[1:]
                further = [value for value in values if value is not None]
        elif self.choice.gain is not None:
            optimism += self.choice.gain.optimism
        overlap = 1.0 if rule is None or rule.fraction is None else rule.fraction
        is_of_folds = rule is not None and rule.kind == "folds"
        others = [other for other in similar(models, model) if other not in own]
        keys = ((number, state.keys) for number, state in store.states.items())
        defaults = set(default_trials(default_points(store.space), keys))
        trials = []
        for place, number in enumerate(numbers):
            if number not in defaults and (place in own or place >= MOST_SHOWN):
                continue
            about: Facts = {"trial": format_trial_id(number)}
            if number in defaults:
                about["default"] = store.trial(number).trainer
            if place not in own:
                # The best of the other trials were lucky, too. The defaults were not chosen.
                luck = optimism if number in defaults else 0.0
                about |= asdict(gain(models, model, place, luck))
            trials.append(about)
        facts = {
            **asdict(interval(models, model, optimism, is_of_folds, further, overlap)),
            "trials": trials,
            "similar": len(others),
            "compared": len(set(range(len(numbers))) - own),
        }
        return facts, [numbers[other] for other in others]

    def _repeats(self, numbers: list[int]) -> set[int]:
        """Return the places of the trials that have the configuration of the best trial."""
        configurations = map(dict, self.study_store.configurations().trials.values())
        own = next(trials for trials in configurations if self.number in trials)
        return {place for place, number in enumerate(numbers) if number in own}


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
