"""Train the best trials of a search again, and choose the one that is still the best."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence

from sweeps.controller.session import SweepSession
from sweeps.core.trial import State
from sweeps.data.splits.refit_rows import RefitRows
from sweeps.evaluation.racing import ROUNDS, still_racing
from sweeps.study.choice import TrialChoice
from sweeps.study.objectives import Objectives
from sweeps.study.study_store import StudyStore
from sweeps.study.trial_building import seed_of

from .rerun import scratch_folder
from .train_trials import train_on_rows

log = logging.getLogger(__name__)


def confirm_trials(
    session: SweepSession,
    study_store: StudyStore,
    numbers: Sequence[int],
    why_stop: Callable[[int, Sequence[int]], str | None],
) -> tuple[TrialChoice, str | None]:
    """Train trials again, side by side, and choose the one with the best mean value.

    In each round, the trials have another seed. If the rows of valid are a random choice, they are
    other rows, the same for all trials. The study records the values after each round, so a resumed
    sweep continues with the next round.

    Args:
        session: A session that has loaded the data and runs no trial. It cannot run trials of the
            search afterwards.
        study_store: The sweep's study.
        numbers: Numbers of the trials, the best first.
        why_stop: Function of the number of a round and of its trials, which is called before the
            round. It returns a text if the round must not begin. It is also called during a round,
            without trials, and returns a text if the round must end; its values are not used then.

    Returns:
        The choice, and why there were fewer rounds; None if there were all.

    Raises:
        InputError: The data has changed.
        SweepFailed: The processes of the sweep were lost.
    """
    results, minimize = study_store.results(), study_store.minimize
    values = {number: (results[number].value,) for number in numbers}
    choice = TrialChoice("confirmed", len(study_store.states), None, values)
    recorded = study_store.choice
    if recorded is not None and recorded.values.keys() == values.keys():
        choice = recorded
    left = still_racing(choice.values, minimize)
    reason = None
    for number_of_round in range(max(map(len, choice.values.values())), ROUNDS + 1):
        if len(left) < 2 or (reason := why_stop(number_of_round, left)) is not None:
            break
        measured, reason = _train_round(
            session, study_store, left, number_of_round, functools.partial(why_stop, 0, ())
        )
        if reason is not None:
            break
        added = {number: (*choice.values[number], value) for number, value in measured.items()}
        choice = dataclasses.replace(choice, values={**choice.values, **added})
        study_store.record_choice(choice)
        left = still_racing(choice.values, minimize)
    return dataclasses.replace(choice, number=left[0] if left else numbers[0]), reason


def _train_round(
    session: SweepSession,
    study_store: StudyStore,
    numbers: Sequence[int],
    number_of_round: int,
    why_stop: Callable[[], str | None],
) -> tuple[dict[int, float | None], str | None]:
    """Train trials once more.

    Returns:
        The value of each trial; None if the training failed or breaks a constraint. The second
        result is the text of `why_stop`, if it has ended the training.
    """
    space = study_store.space
    trials = []
    for number in numbers:
        seed = seed_of(space.search.seed, number, f"round {number_of_round}")
        trials.append(dataclasses.replace(study_store.trial(number), seed=seed))
    # The loop runs once, also if the scheduler counts rows, and its best step counts as in a trial
    # of all rows.
    objectives = dataclasses.replace(Objectives.from_space(space), on_more_rows=False)
    settings = {"max_t": None} if space.scheduler.counts_rows else {}
    division = number_of_round if space.data.can_redivide else 0
    with scratch_folder(study_store.folder) as scratch:
        rows = RefitRows(("train",), str(scratch), division)
        ended, reason = train_on_rows(session, trials, rows, settings, why_stop, objectives)
    values: dict[int, float | None] = {}
    for number, (state, end) in ended.items():
        result = state.result
        is_known = end.state is State.COMPLETE and result.feasible
        if not is_known:
            log.warning("trial %s was trained again and has no value: %s", state.id, end.error)
        values[number] = result.value if is_known else None
    return values, reason
