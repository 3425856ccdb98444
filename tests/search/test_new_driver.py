"""A new driver finishes what a dead one had begun, and repeats none of its decisions."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import random
import time
from pathlib import Path
from typing import Any

import pytest
from optuna.storages.journal import _storage

from sweeps.controller.controller import SweepController
from sweeps.core.trial import Action, Checkpoint, Report, State
from sweeps.execution.messages import RankUpdate
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialReported
from sweeps.study.transitions import apply_all
from sweeps.tracking.hub import TrackerHub
from tests.controller.controllers import start_trial
from tests.execution.driving import trial
from tests.in_loop import in_loop
from tests.search.deaths import Killed, dying, records_of
from tests.search.decisions import decided
from tests.search.next_trial import next_trial
from tests.search.test_crash import BODY, MAX_T, POINTS, PROMOTION, Pool
from tests.study.trial_states import new_trial
from tests.trial_updates import rank_places, trial_update


@pytest.mark.parametrize("half", [False, True], ids=["put in line", "sampled in part"])
@pytest.mark.parametrize("points", [POINTS, "[]"], ids=["an initial point", "a sampled one"])
def test_next_configuration_does_not_become_a_due_repeat(
    make_space: Any, tmp_path: Path, points: Any, half: bool
) -> None:
    """A driver dies as it begins a trial, while another has trained to its end: the next one ends
    that first, and owes it a repeat.
    """
    space = make_space(BODY, max_trials=3, points=points, extra="repeats: {count: 2}")
    loop = SearchLoop.open(tmp_path, space)
    first = next_trial(loop)
    loop.store.append(
        TrialReported(
            1.0,
            first.number,
            tuple(Report(s, {"loss": 1.0}, 1.0) for s in range(1, MAX_T + 1)),
            seconds=0.1,
        ),
    )
    before = records_of(tmp_path)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        dying(patch, 2 + 3 * half, 1.0)
        loop.ask()
    assert records_of(tmp_path) == before + 2 + 3 * half
    loop = SearchLoop.open(tmp_path, space)
    pool = Pool()
    controller = SweepController(
        loop, pool, TrackerHub(), time.monotonic(), lambda: False, lambda s: None, lambda: None
    )
    controller.finish_leftover_trials()
    trials = [pool.started[start_trial(controller)].trial for _ in range(2)]
    repeat, other = sorted(trials, key=lambda t: t.repeat_of is None)
    assert (repeat.repeat_of, other.repeat_of) == (first.number, None)
    assert repeat.params == first.params != other.params
    if points != "[]":
        assert other.params["eta"] == 0.1
    assert [SearchLoop.open(tmp_path, space).store.trial(t.number) for t in trials] == trials, (
        "what is on record is what runs"
    )


def test_replay_keeps_order_of_ends_if_clock_was_set_back(
    make_space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY, max_trials=9))
    ends = [State.FAIL, State.COMPLETE, State.PRUNED]
    for number, state in enumerate(ends):
        loop.store.clock = functools.partial(float, number)
        trial = next_trial(loop)
        loop.store.append(
            TrialReported(1.0, trial.number, (Report(1, {"loss": 1.0}, 1.0),), seconds=0.1)
        )
        loop.store.end(trial.number, state)
        now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=number + 1)
        monkeypatch.setattr(_storage, "datetime", _clock_at(now))
    again = SearchLoop.open(tmp_path, make_space(BODY, max_trials=9))
    ended = [t.datetime_complete for t in again.store.trials() if t.datetime_complete is not None]
    assert len(ended) == len(ends)
    assert ended == sorted(ended, reverse=True)
    assert again.budget.ended == ends


def _clock_at(moment: datetime.datetime) -> type[datetime.datetime]:
    """Return a class in place of `datetime` whose current time stands still."""

    class Still(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return moment

    return Still


def test_the_time_that_was_used_is_on_record(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, max_trials=2)
    loop = SearchLoop.open(tmp_path, space)
    loop.store.clock = lambda: 12.5
    trial = next_trial(loop)
    loop.store.append(
        TrialReported(1.0, trial.number, (Report(1, {"loss": 1.0}, 1.0),), seconds=0.1)
    )
    again = SearchLoop.open(tmp_path, space)
    assert again.store.spent == 12.5 and list(again.interrupted) == [0] and again.to_run == 2


@pytest.mark.parametrize(
    "steps, expected",
    [(0, None), (1, State.PRUNED), (2, None), (MAX_T, State.COMPLETE)],
    ids=["new", "at a rung", "past it", "at max_t"],
)
def test_a_trial_that_only_lacked_its_end_gets_it_and_does_not_run(
    make_space: Any, tmp_path: Path, steps: Any, expected: Any
) -> None:
    """Three good trials at the first rung; the fourth is worse, and its driver died before the
    verdict, or long after another one.
    """
    space = make_space(BODY, max_trials=4)
    loop = SearchLoop.open(tmp_path, space)
    for _ in range(3):
        done = next_trial(loop)
        loop.store.append(
            TrialReported(1.0, done.number, (Report(1, {"loss": 0.1}, 1.0),), seconds=0.1)
        )
        loop.store.end(done.number, State.COMPLETE)
    trial = next_trial(loop)
    loop.store.append(
        TrialReported(
            1.0,
            trial.number,
            tuple(Report(s, {"loss": 9.0}, float(s)) for s in range(1, steps + 1)),
            seconds=0.1,
        ),
    )
    loop, pool = SearchLoop.open(tmp_path, space), Pool()
    controller = SweepController(
        loop, pool, TrackerHub(), time.monotonic(), lambda: False, lambda s: None, lambda: None
    )
    controller.finish_leftover_trials()
    if expected is None:
        assert controller.start_trial() == trial.id and trial.id in pool.started
        assert controller.on_update(trial_update(trial.id, (), rung=1)) is (steps > 1)
    else:
        with pytest.raises(StopIteration):
            controller.start_trial()
        assert loop.store.results()[3].state is expected and not pool.started


@pytest.mark.parametrize(
    "saved, better",
    [(True, False), (True, True), (False, False)],
    ids=["paused", "promoted", "without a checkpoint"],
)
def test_a_trial_that_waited_for_its_pause_gets_it_and_does_not_run(
    make_space: Any, tmp_path: Path, saved: bool, better: bool
) -> None:
    """Three trials wait at the first rung. The driver died before it decided about the fourth."""
    space = make_space(BODY, max_trials=9, scheduler=PROMOTION["scheduler"])
    loop = SearchLoop.open(tmp_path, space)
    for value in (0.2, 0.3, 0.4, 0.1 if better else 0.5):
        trial = next_trial(loop)
        path = tmp_path / "trials" / trial.id / "checkpoint_000001"
        path.mkdir(parents=True)
        kept = Checkpoint(path.name, 1, 1) if saved or trial.number < 3 else None
        loop.store.append(
            TrialReported(1.0, trial.number, (Report(1, {"loss": value}, 1.0),), kept, kept, 0.1)
        )
        if trial.number < 3:
            decided(loop, trial.number, 1)
    loop, pool = SearchLoop.open(tmp_path, space), Pool()
    controller = SweepController(
        loop, pool, TrackerHub(), time.monotonic(), lambda: False, lambda s: None, lambda: None
    )
    controller.finish_leftover_trials()
    paused = saved and not better
    assert list(loop.view.paused) == ([0, 1, 2, 3] if paused else [0, 1, 2]) and list(
        loop.interrupted
    ) == ([] if paused else [3])
    if not paused:
        assert controller.start_trial() == "0003" and pool.started["0003"].checkpoint == kept
        now = Checkpoint("checkpoint_000001", 1, 1)  # It reaches the rung again.
        loop.store.append(TrialReported(1.0, 3, (), now, now, 0.1))
        assert decided(loop, 3, 1) is (Action.CONTINUE if better else Action.PAUSE)
    if not better:
        assert controller.start_trial() == "0000", "the best of four"


@pytest.mark.parametrize(
    "limit, hours", [({"target": 0.5}, 0), ({"timeout": 3600.0}, 2)], ids=["target", "timeout"]
)
def test_resume_after_reached_limit_starts_no_trial(
    make_space: Any, tmp_path: Path, limit: Any, hours: int
) -> None:
    space = make_space(BODY, max_trials=4)
    space = dataclasses.replace(space, limits=dataclasses.replace(space.limits, **limit))
    loop = SearchLoop.open(tmp_path, space)
    done = next_trial(loop)
    loop.store.append(
        TrialReported(1.0, done.number, (Report(1, {"loss": 0.1}, 1.0),), seconds=0.1)
    )
    loop.store.end(done.number, State.COMPLETE)
    loop, pool = SearchLoop.open(tmp_path, space), Pool()
    controller = SweepController(
        loop,
        pool,
        TrackerHub(),
        time.monotonic() - 3600 * hours,
        lambda: False,
        lambda s: None,
        lambda: None,
    )
    controller.finish_leftover_trials()
    assert controller.reason is not None
    assert controller.reason.startswith(f"limits.{next(iter(limit))}")
    with pytest.raises(StopIteration):
        controller.start_trial()


@pytest.mark.parametrize("seed", range(20))
@in_loop
def test_what_the_record_names_is_never_deleted(seed: int) -> None:
    """Any order of updates, calls and records: every checkpoint that the driver has recorded exists
    on disk.
    """
    chance = random.Random(seed)
    running = RunningTrial(new_trial(trial(0, {}, 1, "none")), "")
    driven, disk, on_record = running.state, set(), set()
    attempt = running.begin_attempt(rank_places(1))
    for step in range(1, 30):
        saved = Checkpoint(f"checkpoint_{step:06d}", step, step)
        disk.add(saved.name)
        report = Report(step, {"loss": chance.random()}, 0.0)
        running.record(attempt, RankUpdate(0, step, (report,), (saved,)))
        disk -= set(running.parts.drop_unneeded(running.state))
        if chance.random() < 0.5:
            update = running.next_update()
            if chance.random() < 0.7:  # the driver records it, and asks for more
                driven = apply_all(driven, update.events)
                on_record = {c.name for c in (driven.checkpoint, driven.best) if c}
                running.parts.mark_recorded()
            disk -= set(running.parts.drop_unneeded(running.state))
        assert on_record <= disk
    assert len(disk) <= 6
