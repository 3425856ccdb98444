"""A driver and a reader compute the same state of a trial, for any order and any cut of events."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from dataclasses import replace
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.best_step import Constraint
from sweeps.core.errors import DamagedStudy
from sweeps.core.resources import Shape
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, Result, State, Trial
from sweeps.space.sections.search_models import Objective
from sweeps.study import transitions
from sweeps.study.event_records import EVENTS_PREFIX, batch_of, state_of
from sweeps.study.events import (
    AttemptFailed,
    AttemptStarted,
    FailureCounts,
    Perturbation,
    RankPlace,
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from sweeps.study.log import Log
from sweeps.study.objectives import Objectives
from sweeps.study.states import TrialState
from tests.study.trial_states import LOSS, known_trial

PLAIN = Objectives((Objective("loss", "minimize"),))
LIMITED = Objectives((Objective("auc", "maximize"),), (Constraint("loss", "<=", 0.5),))
numbers = st.floats(0, 1) | st.sampled_from([math.nan, math.inf])
steps = st.integers(1, 12)
checkpoints = (
    st.builds(lambda step: Checkpoint(f"checkpoint_{step:06d}", step, step), steps) | st.none()
)


def report(step: int, loss: float, auc: float | None) -> Report:
    metrics = {"loss": loss} | ({} if auc is None else {"auc": auc})
    return Report(step, metrics, float(step))


reports = st.lists(st.builds(report, steps, numbers, numbers | st.none()), max_size=4).map(tuple)
START = TrialStarted(
    1.0,
    3,
    Trial(3, {"eta": 0.1}, (), Shape(1, (("CPU", 1.0),)), 7, {"params.eta": 0.1}),
    {"params.eta": 0.1},
    bracket=1,
)


def perturbed(step: int, copied: tuple[Report, ...]) -> TrialDecided:
    saved = Checkpoint(f"checkpoint_{step:06d}_of_0001", step, step)
    known = sorted({r.step: r for r in copied if r.step <= step}.values(), key=lambda r: r.step)
    labels = {"params.eta": step / 100}
    change = Perturbation(
        step, "0001", step, labels, {"eta": step / 100}, labels, 2.0, saved, tuple(known)
    )
    return TrialDecided(2.0, 3, step, change, str(change))


events = st.one_of(
    st.builds(
        lambda new, kept, best, seconds: TrialReported(
            2.0, 3, new, kept, best, round(seconds, 4), round(2 * seconds, 4)
        ),
        reports,
        checkpoints,
        checkpoints,
        st.floats(0, 100),
    ),
    st.builds(
        lambda attempt: AttemptStarted(2.0, 3, attempt, (RankPlace("10.0.0.1", ("0",)),)), steps
    ),
    st.builds(lambda n: AttemptFailed(2.0, 3, "lost", FailureCounts(n, n)), steps),
    st.builds(lambda rung: TrialDecided(2.0, 3, rung), steps),
    st.builds(perturbed, steps, reports),
    st.builds(
        lambda step, workers: TrialResized(2.0, 3, GangSizePeriod(step, workers, step, 2.0)),
        steps,
        st.integers(1, 4),
    ),
    st.builds(lambda rung: TrialPaused(2.0, 3, rung), steps),
)
ends = st.sampled_from([State.COMPLETE, State.PRUNED, State.FAIL]).map(
    lambda state: TrialEnded(3.0, 3, Result(state, reason="why", final={"test": 0.5}))
)
histories = st.builds(lambda some, end: [*some, *end], st.lists(events), st.lists(ends, max_size=1))
goals = st.sampled_from([PLAIN, LIMITED])


def folded(history: list[TrialEvent], objectives: Objectives) -> TrialState:
    return transitions.apply_all(transitions.initial_state(START, objectives), history)


def stored(batches: list[list[TrialEvent]]) -> optuna.trial.FrozenTrial:
    """Optuna's trial after its attributes were written as JSON and read."""
    attributes = {
        f"{EVENTS_PREFIX}{n}": json.loads(json.dumps(batch_of(batch, 0.0)))
        for n, batch in enumerate(batches)
    }
    trial = optuna.trial.create_trial(value=0.0, user_attrs=attributes)
    trial.number = 3
    return trial


def comparable(state: TrialState) -> str:
    """Return the facts of a state as text, without its place in the record. NaN equals NaN."""
    known = {name: getattr(state, name) for name in state.__dataclass_fields__}
    for name in ("batches", "at", "objectives", "trial", "started"):
        del known[name]
    logs = {name: list(log) for name, log in known.items() if isinstance(log, Log)}
    trial = (state.params, state.labels, state.trial.lineage, state.trial.chain)
    return repr((known | logs, trial, state.result))


@given(histories, goals, st.data())
def test_a_trial_that_is_read_is_known_as_the_driver_knew_it(
    history: Any, objectives: Any, data: Any
) -> None:
    whole: list[TrialEvent] = [START, *history]
    cuts = data.draw(st.sets(st.integers(1, len(whole))))
    places = [0, *sorted(cuts | {len(whole)})]
    batches = [whole[a:b] for a, b in itertools.pairwise(places)]
    read = state_of(stored(batches), objectives)
    assert read is not None and read.batches == len(batches)
    assert comparable(read) == comparable(folded(history, objectives))


@given(histories, goals, st.data())
def test_events_that_arrive_twice_or_too_late_add_no_reports(
    history: Any, objectives: Any, data: Any
) -> None:
    again = data.draw(st.lists(st.sampled_from(history), max_size=4)) if history else []
    late = [e for e in again if isinstance(e, TrialReported)]
    before = folded(history, objectives)
    after = transitions.apply_all(before, late)
    known = [r.step for r in before.own_reports]
    assert [r.step for r in after.own_reports[: len(known)]] == known
    assert all(r.step > before.steps for r in after.own_reports[len(known) :])
    if not any(isinstance(e, TrialDecided) for e in history):
        assert len(after.own_reports) == len(known)


@given(reports, goals)
def test_the_best_step_so_far_is_the_best_step_of_all(new: Any, objectives: Any) -> None:
    ordered = tuple(sorted({r.step: r for r in new}.values(), key=lambda r: r.step))
    state = folded([TrialReported(2.0, 3, ordered)], objectives)
    keys = [state.key_at(r.step) for r in ordered]
    assert state.best_key == min(keys, default=state.best_key)
    if state.best_place is not None:
        assert keys[state.best_place] == min(keys)
    if objectives is PLAIN:
        assert repr(list(state.compared)) == repr(list(state.curve))


@given(st.lists(st.integers()), st.lists(st.integers()), st.lists(st.integers()))
def test_logs_that_share_a_list_do_not_see_each_other(first: Any, one: Any, other: Any) -> None:
    log = Log(first)
    left, right = log.with_more(one), log.with_more(other)
    assert list(log) == first and left == Log([*first, *one]) and right == Log([*first, *other])
    assert left.with_more(other)[:] == [*first, *one, *other] and len(log) == len(first)


@pytest.mark.parametrize(
    "damage",
    [{"keys": "x"}, {"event": "began"}, {"time": 1e300}, {"trial": {}}, {"trial": 5}],
    ids=["keys", "event", "time", "trial", "no mapping"],
)
def test_a_damaged_event_is_named(damage: dict[str, Any]) -> None:
    trial = stored([[START]])
    trial.user_attrs["events.0"]["events"][0] |= damage
    with pytest.raises(DamagedStudy, match=r"trial 0003: in the study is a record"):
        state_of(trial, PLAIN)


def test_record_keeps_infinite_values_and_texts_that_are_not_unicode() -> None:
    trial = replace(START.trial, params={"eta": math.inf, "file": "a\udcff"})
    reported = TrialReported(2.0, 3, (Report(1, {"loss": math.inf, "of \udcff": 0.5}, 2.0),))
    ended = TrialEnded(3.0, 3, Result(State.FAIL, error="no \udcff"))
    state = state_of(stored([[replace(START, trial=trial)], [reported, ended]]), PLAIN)
    assert state is not None and state.params == trial.params
    assert state.reports[0].metrics == reported.reports[0].metrics
    assert state.error == "no \udcff"


def test_record_of_an_end_has_an_ended_state() -> None:
    trial = stored([[START], [TrialEnded(3.0, 3, Result(State.RUNNING))]])
    with pytest.raises(DamagedStudy, match="in the state RUNNING"):
        state_of(trial, PLAIN)


def test_the_times_of_a_trial_are_local() -> None:
    running = known_trial(0, LOSS, Result(State.RUNNING), began=60.0)
    ended = known_trial(0, LOSS, Result(State.COMPLETE), began=60.0, ended=90.0)
    assert running.end_time is None and running.began == datetime.datetime.fromtimestamp(60.0)
    assert ended.end_time == datetime.datetime.fromtimestamp(90.0)
