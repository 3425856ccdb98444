from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Result, State
from sweeps.space.sections.search_models import Objective, Repeats
from sweeps.study.objectives import Objectives
from sweeps.study.record_reader import Record
from sweeps.study.states import TrialState
from sweeps.sweep_report.regret import Moment, pauses_of, progress_of, steps_of
from tests.study.trial_states import known_trial

START = datetime.datetime(2026, 1, 1)
MINIMIZE = Objectives((Objective("loss", "minimize"),))


def trial(
    number: int,
    state: State,
    value: float | None,
    end: float | None = None,
    objectives: Objectives = MINIMIZE,
    **attributes: Any,
) -> TrialState:
    """Return a trial that ran for one second on two CPUs, and ended `end` seconds after the start
    of the sweep.

    Args:
        number: The trial's number.
        state: State of the trial.
        value: Value of the objective at the only step; None for a trial without a step.
        end: End of the trial; None for `number` + 1.
        objectives: The objective of the sweep.
        attributes: Attributes of the trial, such as `repeat_of`.
    """
    at = START.timestamp() + (number + 1.0 if end is None else end)
    return known_trial(
        number,
        objectives,
        Result(state, seconds=1.0),
        [] if value is None else [{str(objectives.metric): value}],
        began=at - 1,
        ended=at,
        scaling={"resources_per_worker": {"CPU": 2}},
        **attributes,
    )


def bests(progress: tuple[Moment, ...]) -> list[float | None]:
    """Return the best value at the end of each trial."""
    return [moment.best for moment in progress]


def test_the_best_value_counts_the_trials_in_the_order_of_their_ends() -> None:
    trials = [
        trial(0, State.COMPLETE, 0.5, end=9),
        trial(1, State.COMPLETE, 0.7, end=4),
        trial(2, State.RUNNING, 0.1),
    ]
    progress = progress_of(Record(MINIMIZE, tuple(trials)))
    assert bests(progress) == [0.7, 0.5]
    assert [(s.trials, s.seconds, s.cpu_seconds) for s in progress] == [
        (1, 2.0, 2.0),
        (2, 7.0, 4.0),
    ]  # trial 2 began at second 2


def test_pruned_trial_is_never_best_if_final_best_is_complete() -> None:
    trials = (
        trial(0, State.PRUNED, 0.1),
        trial(1, State.COMPLETE, 0.5),
        trial(2, State.PRUNED, 0.05),
        trial(3, State.FAIL, None),
    )
    assert bests(progress_of(Record(MINIMIZE, trials))) == [None, 0.5, 0.5, 0.5]
    assert bests(progress_of(Record(MINIMIZE, trials[:1]))) == [0.1]


def test_repeats_count_as_one_configuration() -> None:
    trials = (
        trial(0, State.COMPLETE, 0.2),
        trial(1, State.COMPLETE, 0.6, repeat_of=0),
        trial(2, State.COMPLETE, 0.5),
        trial(3, State.COMPLETE, 0.5, repeat_of=2),
    )
    progress = progress_of(Record(MINIMIZE, trials, repeats=Repeats(2)))
    assert bests(progress) == [None, 0.4, 0.4, 0.4]


def test_time_in_which_nobody_ran_the_sweep_does_not_count() -> None:
    record = Record(
        MINIMIZE, (trial(0, State.COMPLETE, 0.5, end=10), trial(1, State.COMPLETE, 0.4, end=1012))
    )
    start = START.timestamp()
    pauses = pauses_of(record, (start, start + 1005))
    assert pauses == [(start + 10, start + 1005)]
    assert [s.seconds for s in progress_of(record, pauses)] == [1.0, 8.0]
    assert pauses_of(record, (start,)) == [] and pauses_of(record, (start, start + 5)) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([State.COMPLETE, State.PRUNED, State.FAIL, State.RUNNING]),
            st.none() | st.floats(-10, 10) | st.just(math.nan),
            st.floats(0, 100),
        ),
        max_size=12,
    ),
    st.sampled_from(["minimize", "maximize"]),
)
def test_the_best_value_only_improves_and_ends_at_the_best_trial(drawn: Any, goal: Any) -> None:
    objectives = Objectives((Objective("loss", goal),))
    trials = tuple(
        trial(n, state, value, end + 1, objectives) for n, (state, value, end) in enumerate(drawn)
    )
    record = Record(objectives, trials)
    progress, final = progress_of(record), record.best_result
    known = [value for value in bests(progress) if value is not None]
    assert known == sorted(known, reverse=goal == "minimize")
    assert len(progress) == sum(state is not State.RUNNING for state, _, _ in drawn)
    if final is not None:
        assert progress[-1].best == final.value
    for name in ("trials", "seconds", "cpu_seconds"):
        amounts = [getattr(s, name) for s in progress]
        assert amounts == sorted(amounts) and all(amount >= 0 for amount in amounts)


@pytest.mark.parametrize(
    ("largest", "steps"),
    [
        (0, []),
        (0.9, []),
        (math.nan, []),
        (math.inf, []),
        (1, [1]),
        (8, [1, 2, 5, 8]),
        (20, [1, 2, 5, 10, 20]),
    ],
)
def test_regret_is_shown_at_round_amounts(largest: Any, steps: Any) -> None:
    assert steps_of(largest) == steps
