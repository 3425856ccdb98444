"""Choose the trial that a sweep exports, as `objective.choose` says."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sweeps.controller.time_limits import MOST_CONFIRMING
from sweeps.core import clock
from sweeps.core.errors import InputError, SweepsError, first_line
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import format_trial_id
from sweeps.space.sections.choice_rule import choice_rule
from sweeps.study import ranking
from sweeps.study.choice import TrialChoice

if TYPE_CHECKING:
    from sweeps.bundle.trial_predictions import TrialPredictions
    from sweeps.controller.controller import SweepController
    from sweeps.controller.session import SweepSession

log = logging.getLogger(__name__)


def choose_trial(
    controller: SweepController,
    session: SweepSession,
    read_predictions: Callable[[], TrialPredictions | None],
) -> tuple[str, ...]:
    """Choose the trial that a sweep exports, and record the choice in the study.

    Without a choice in the study, the sweep exports the trial with the best value.

    Args:
        controller: The controller of a search that has ended and has a best trial.
        session: The session of the search.
        read_predictions: Function that returns the predictions of the trials.

    Returns:
        Notes: why the choice was not made, or not completed.
    """
    space = controller.space
    store = controller.study_store
    rule = choice_rule(
        space.objectives, space.data, space.repeats, space.bundle, controller.scheduler.perturbs
    )
    candidates = _candidates(controller)
    recorded = store.choice
    if rule == "best" or len(candidates) < 2:
        return ()
    if recorded is not None and recorded.rule == rule and recorded.number is not None:
        return ()
    stage = {"mean": "choosing the trial", "confirmed": "training the best trials again"}
    controller.publish_stage(stage[rule])
    try:
        if rule == "mean":
            return _choose_by_mean(controller, candidates, read_predictions)
        return _confirm(controller, session, candidates)
    except Exception as e:  # The best trial is exported in any case.
        if not isinstance(e, SweepsError):
            log.exception("no trial was chosen")
        text = e.problems[0].text if isinstance(e, InputError) else first_line(e)
        return (f"the trial with the best value was chosen, because {rule} failed: {text}",)


def _candidates(controller: SweepController) -> list[int]:
    """Return the first trials of the complete configurations that can be exported, best first."""
    from sweeps.bundle.trial_choice import saved_model

    store = controller.study_store
    configurations = store.configurations()
    ranked = ranking.ranked(configurations.results().items(), store.minimize)
    results = configurations.results()
    return [
        number
        for number in ranked
        if ranking.tier(results[number]) == 0
        and (
            controller.space.trainer_of(store.trial(number).labels).load is None
            or saved_model(store, number) is not None
        )
    ]


def _choose_by_mean(
    controller: SweepController,
    candidates: Sequence[int],
    read_predictions: Callable[[], TrialPredictions | None],
) -> tuple[str, ...]:
    """Choose the trial with the best mean of a Gaussian process, and record it."""
    from sweeps.evaluation.value_noise import value_noise
    from sweeps.search.final_means import final_means

    store = controller.study_store
    noise = value_noise(store, read_predictions())
    if noise is None and store.space.repeats.count == 1:
        return ("the trial with the best value was chosen, because the noise is unknown",)
    means = final_means(store, noise)
    known = [number for number in candidates if number in means]
    if known:
        chosen = min(known, key=lambda number: (means[number], candidates.index(number)))
        store.record_choice(TrialChoice("mean", len(store.states), chosen))
    return ()


def _confirm(
    controller: SweepController, session: SweepSession, candidates: Sequence[int]
) -> tuple[str, ...]:
    """Train the best trials again, choose the one with the best mean, and record it."""
    from sweeps.evaluation.racing import CANDIDATES, round_seconds
    from sweeps.exports.confirmation import confirm_trials

    store = controller.study_store
    progress = controller.progress
    slots = max(1, progress.concurrency)
    limits = controller.space.limits
    now = clock.monotonic()
    until = controller.time_limits.confirmation_ends(now)
    is_auto = controller.space.objective.choose == "auto"
    if is_auto:
        until = min(until, now + MOST_CONFIRMING * (now - controller.began))
    gpu_hours = store.sweep.budget.gpu_seconds / 3600

    def why_stop() -> str | None:
        if (reason := controller.why_no_training()) is not None:
            return reason
        return "the time was over" if clock.monotonic() > until else None

    def why_no_round(numbers: Sequence[int]) -> str | None:
        nonlocal gpu_hours
        seconds = [progress.training_seconds(number) for number in numbers]
        if clock.monotonic() + round_seconds(seconds, slots) > until:
            return "the time was over"
        results = store.results()
        gpu_hours += sum(results[n].metrics.get("gpu_seconds", 0.0) for n in numbers) / 3600
        if gpu_hours > (limits.max_gpu_hours or math.inf):
            return "`limits.max_gpu_hours` was reached"
        return why_stop()

    numbers = candidates[:CANDIDATES]
    choice, reason = confirm_trials(session, store, numbers, why_stop, why_no_round)
    if reason is not None and controller.reason == "interrupted":
        return ()  # a resume continues
    if choice.rounds or reason is None:
        store.record_choice(choice)
    if reason is None or is_auto:
        return ()
    trials = ", ".join(map(format_trial_id, numbers))
    times = count_noun(choice.rounds, "time")
    return (f"trials {trials} were trained again only {times}, because {reason}",)
