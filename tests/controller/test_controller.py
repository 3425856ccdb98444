"""What a driver decides that no whole sweep of the tests comes to: without Ray."""

from __future__ import annotations

import dataclasses
import errno
import math
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.controller.commands import (
    Answer,
    Command,
    CommandQueue,
    Enqueue,
    Pause,
    Resume,
    Stop,
    read_answer,
    send,
)
from sweeps.controller.controller import MAX_POOL_DEATHS, SweepController
from sweeps.controller.deadline import Deadline
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, State
from sweeps.execution.messages import TrialUpdate, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record
from sweeps.study.events import TrialPaused, TrialReported, TrialResized
from sweeps.study.journal import Journal
from sweeps.study.record import STOPPED
from sweeps.study.states import TrialState
from sweeps.tracking.earlier_events import TrialHistory
from tests.search.deaths import Deaf
from tests.trial_updates import trial_update

BODY = "params: {eta: {uniform: [0, 1]}}"


class Pool(Deaf):
    """Keeps what it is told of trials."""

    def __init__(self) -> None:
        self.started: list[TrialState] = []
        self.start = SimpleNamespace(remote=lambda state, *_: self.started.append(state))


class Monitor:
    """In the place of a `PoolMonitor`."""

    def __init__(
        self,
        error: InputError | None = None,
        restarted: bool = False,
        changed: InputError | None = None,
    ):
        self.usage = None
        self.prefit_error = lambda: error
        self.pool_was_restarted = lambda: restarted
        self.data_error = changed
        self.update_usage = self.close = lambda: None
        self.all_started = False

    def set_all_started(self, all_started: bool) -> None:
        self.all_started = all_started


def controller(space: Any, folder: Any) -> tuple[SweepController, Pool]:
    pool, deaf = Pool(), Deaf()
    pool_handle: Any = pool
    tracker: Any = deaf
    search = SearchLoop.open(folder, space)
    going = SweepController(
        search,
        pool_handle,
        tracker,
        time.monotonic(),
        lambda: False,
        lambda status: None,
        lambda: None,
    )
    going.finish_leftover_trials()
    return going, pool


def record_of(folder: Any) -> tuple[TrialState, ...]:
    found = record.read(folder)
    assert found is not None
    return found.trials


@pytest.mark.parametrize("ended", [0, 1])
def test_prefit_error_ends_sweep_before_first_trial_has_ended(make_space, tmp_path, ended):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    for _ in range(ended):
        name = going.start_trial()
        assert name is not None
        going.on_update(trial_update(name, (Report(1, {"loss": 0.5}, 1.0),), state=State.COMPLETE))
    going._monitor = Monitor(error=InputError(Problem("space.preprocessor", "no column `x`")))
    going.poll()
    assert (going.refused is None) == bool(ended) and (going.reason is None) == bool(ended), (
        "its own trials fail, others stay"
    )


def test_minutes_leave_time_for_training_of_best_trial(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    end = going.began + 100.0
    going._deadline = Deadline(end, start=1.0, growth=2.0)
    closing = going._deadline.closing
    assert going._time_limit(end - closing - 0.1) is None
    assert going._time_limit(end - closing + 0.1) == "--minutes"
    name = going.start_trial()
    assert name is not None
    reports = (Report(1, {"loss": 0.5}, 1.0),)
    going.on_update(trial_update(name, reports, state=State.COMPLETE, seconds=10.0))
    needed = going._deadline.reserve(10.0, trains=True)
    assert going.reason is None and needed > closing + 20.0
    assert going._time_limit(end - needed - 0.1) is None
    assert going._time_limit(end - needed + 0.1) == "--minutes"
    assert going.progress.timeout == pytest.approx(100.0 - needed)


def saved(folder: Any, name: str, step: int) -> Checkpoint:
    """Return a checkpoint of a trial, with its folder."""
    path = folder / "trials" / name / f"checkpoint_{step:06d}"
    path.mkdir(parents=True)
    return Checkpoint(path.name, step, step)


def test_time_is_kept_for_a_running_trial_that_is_the_best(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    end = time.monotonic() + 100.0
    going._deadline = Deadline(end, start=1.0, growth=3.0)
    first, second = going.start_trial(), going.start_trial()
    assert first is not None and second is not None
    going.on_update(trial_update(first, (Report(1, {"loss": 0.5}, 1.0),), None, seconds=1.0))
    going.running[int(second)].began -= 10.0
    going.on_update(news(second, 1, 0.4, best=saved(tmp_path, second, 1)))
    assert going.progress.leader(going.policy.can_win) == (second, pytest.approx(10.0, abs=2.0))
    needed = going._reserve(going._deadline, time.monotonic())
    assert needed == pytest.approx(going._deadline.closing + 30.0, abs=6.0)
    going.on_update(news(second, 2, 0.6))
    _, seconds = going.progress.leader(going.policy.can_win) or ("", 0.0)
    assert seconds == pytest.approx(5.0, abs=2.0), "the best step is half of the way"


@pytest.mark.parametrize(
    ("scheduler", "folds", "seconds"),
    [
        ("{name: none}", 3, 30.0),
        ("{name: asha, resource: data.rows, max_t: 9, grace_period: 1}", 0, 130.0),
    ],
)
def test_before_a_trial_has_ended_time_is_kept_for_all_steps_of_the_best(
    make_space, tmp_path, scheduler, folds, seconds
):
    space = make_space(BODY, scheduler=scheduler)
    data = dataclasses.replace(space.data, valid=dataclasses.replace(space.data.valid, folds=folds))
    going, _ = controller(dataclasses.replace(space, data=data), tmp_path)
    name = going.start_trial()
    assert name is not None and going.progress.leader(going.policy.can_win) is None
    going.running[int(name)].began -= 10.0
    going.on_update(news(name, 1, 0.4))
    assert going.progress.leader(going.policy.can_win) == (name, pytest.approx(seconds, rel=0.2))


def test_time_is_kept_for_all_folds_of_a_best_trial_that_was_stopped(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    data = dataclasses.replace(space.data, valid=dataclasses.replace(space.data.valid, folds=5))
    going, _ = controller(dataclasses.replace(space, data=data), tmp_path)
    name = going.start_trial()
    assert name is not None
    going.on_update(news(name, 1, 0.5, seconds=2.0))
    going.on_update(news(name, 2, 0.4, seconds=4.0))
    going.on_update(trial_update(name, state=State.PRUNED, seconds=4.0))
    assert going.progress.leader(going.policy.can_win) == (name, pytest.approx(10.0))


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("folds", [0, 3])
def test_a_trial_that_only_time_has_ended_may_win(make_space, tmp_path, folds, has_checkpoint):
    space = make_space(BODY, scheduler="{name: none}")
    data = dataclasses.replace(space.data, valid=dataclasses.replace(space.data.valid, folds=folds))
    going, _ = controller(dataclasses.replace(space, data=data), tmp_path)
    first, second = going.start_trial(), going.start_trial()
    assert first is not None and second is not None
    going.on_update(news(first, 1, 0.5, state=State.COMPLETE, best=saved(tmp_path, first, 1)))
    going.on_update(news(second, 1, 0.4))
    best = saved(tmp_path, second, 2) if has_checkpoint else None
    going.on_update(news(second, 2, 0.3, best=best))
    going._deadline = Deadline(time.monotonic() - 1.0, start=1.0)
    going._check_limits()
    assert going.reason == "--minutes"
    going.on_update(trial_update(second, (), state=State.PRUNED))
    going.close()
    wins = has_checkpoint and not folds
    result = going.study_store.results()[1]
    assert result.reason == ("--minutes" if wins else "--minutes, unfinished")
    assert going.study_store.winner() == wins


def test_the_earlier_of_minutes_and_timeout_ends_the_search(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    limits = dataclasses.replace(space.limits, timeout=50.0)
    going, _ = controller(dataclasses.replace(space, limits=limits), tmp_path)
    going._deadline = Deadline(going.began + 100.0, start=1.0)
    assert going._time_limit(going.began + 49.0) is None
    assert going._time_limit(going.began + 51.0) == "limits.timeout"
    going._deadline = Deadline(going.began + 20.0, start=1.0)
    assert going._time_limit(going.began + 20.0) == "--minutes"


def test_the_winner_is_not_trained_after_an_interrupt_or_without_time(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    assert going.why_no_training() is None
    going._deadline = Deadline(time.monotonic() + 1.0, start=1.0)
    assert going.why_no_training() == "--minutes leaves too little time"
    going.stop("interrupted", State.RUNNING)
    assert going.why_no_training() == "the sweep was interrupted"


def test_a_resumed_trial_leads_only_after_a_report_to_this_driver(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = controller(space, tmp_path)
    name = first.start_trial()
    assert name is not None
    first.on_update(news(name, 1, 0.5))
    going, _ = controller(space, tmp_path)
    assert going.start_trial() == name
    assert going.progress.leader(going.policy.can_win) is None
    going.on_update(news(name, 2, 0.4))
    assert (going.progress.leader(lambda number: True) or ("",))[0] == name


def test_trackers_get_no_report_without_metrics(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    events: list[Any] = []
    going.trackers.publish = events.append  # type: ignore[method-assign]
    name = going.start_trial()
    assert name is not None
    going.on_update(news(name, 1, 0.5))
    going.on_update(trial_update(name, state=State.COMPLETE, seconds=1.0))
    reported = [event for event in events if isinstance(event, TrialReported)]
    assert [len(event.reports) for event in reported] == [1]
    again = [e for e in TrialHistory(tmp_path)() if isinstance(e, TrialReported)]
    assert [len(event.reports) for event in again] == [1]


def known_of(pool: Any) -> tuple[int, tuple[tuple[int, float], ...]]:
    """Return the attempt and the curve of the trial that was last started in the pool."""
    recorded = pool.started[-1]
    assert recorded is not None
    return recorded.attempt, recorded.curve


def test_a_trial_continues_after_the_death_of_a_driver_and_of_the_pool(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = controller(space, tmp_path)
    name = first.start_trial()
    assert name is not None
    first.on_update(
        trial_update(name, (Report(1, {"loss": 0.5}, 1.0),), attempt=3)
    )  # two gangs were lost under it
    going, pool = controller(space, tmp_path)
    assert going.start_trial() == name and known_of(pool) == (3, ((1, 0.5),))
    going.on_update(trial_update(name, (Report(2, {"loss": 0.4}, 2.0),), attempt=4))
    going._monitor = Monitor(restarted=True)
    going.poll()
    assert known_of(pool) == (4, ((1, 0.5), (2, 0.4)))


def test_pool_that_keeps_dying_ends_sweep_with_resumable_trials(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    first, second = going.start_trial(), going.start_trial()
    assert first is not None and second is not None
    going._monitor, going._status_time = Monitor(restarted=True), -math.inf
    for _ in range(MAX_POOL_DEATHS - 1):
        going._status_time = -math.inf
        going.poll()
    going.on_update(trial_update(first, (Report(1, {"loss": 0.5}, 1.0),), state=State.COMPLETE))
    for _ in range(MAX_POOL_DEATHS - 1):  # The trial that ended has set the count back.
        going._status_time = -math.inf
        going.poll()
    going._status_time = -math.inf
    with pytest.raises(SweepsError, match=f"died {MAX_POOL_DEATHS} times.*sweeps resume"):
        going.poll()
    assert [trial.result.state for trial in record_of(tmp_path)] == [State.COMPLETE, State.RUNNING]


def test_a_pool_that_restarts_after_a_time_limit_ends_its_trials_for_good(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    assert going.start_trial() is not None
    told: list[State] = []
    going.pool.interrupt = SimpleNamespace(remote=told.append)
    going.stop("limits.timeout", State.PRUNED)
    going._monitor = Monitor(restarted=True)
    going.poll()
    assert told == [State.PRUNED, State.PRUNED]


def test_what_a_trial_took_that_waits_to_go_on_counts_as_spent(make_space, tmp_path):
    body = BODY + "\nscaling: {num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}"
    space = make_space(body, scheduler="{name: none}", extra="")
    first, _ = controller(space, tmp_path)
    name = first.start_trial()
    assert name is not None
    spent = {"seconds": 7200.0, "worker_seconds": 7200.0}
    first.on_update(trial_update(name, (Report(1, {"loss": 0.5}, 1.0),), **spent))
    going, _ = controller(space, tmp_path)
    assert going.search.interrupted == deque([0]) and going.reason is None
    object.__setattr__(going.space.limits, "max_gpu_hours", 1.5)
    going._check_limits()
    assert going.reason is not None and going.reason.startswith("limits.max_gpu_hours")


def news(trial: str, step: int, loss: float, **more: Any) -> TrialUpdate:
    return trial_update(trial, (Report(step, {"loss": loss}, float(step)),), **more)


def test_passed_rung_is_passed_again_after_later_trials(make_space, tmp_path):
    space = make_space(BODY)  # asha, one in three
    first, _ = controller(space, tmp_path)
    early = first.start_trial()
    assert early is not None and first.on_update(news(early, 1, 0.9, rung=1)), (
        "the first to come there"
    )
    for loss in (0.3, 0.2, 0.1, 0.05):
        later = first.start_trial()
        assert later is not None
        first.on_update(news(later, 1, loss, rung=1))
    assert first.on_update(trial_update(early, rung=1)), "its worker was lost beyond it"
    going, _ = controller(space, tmp_path)  # the driver was
    assert 0 in going.search.interrupted and going.start_trial() == early
    assert going.on_update(trial_update(early, rung=1))
    late = going.start_trial()
    while late is not None and late in {f"{n:04d}" for n in range(5)}:
        late = going.start_trial()
    assert late is not None and not going.on_update(news(late, 1, 0.8, rung=1)), (
        "though not for others"
    )


def test_spent_budget_stops_interrupted_trials_on_resume(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = controller(space, tmp_path)
    for _ in range(2):
        name = first.start_trial()
        assert name is not None
        first.on_update(news(name, 1, 0.5))
    object.__setattr__(space.limits, "timeout", 60.0)
    tracker: Any = Deaf()
    going = SweepController(
        SearchLoop.open(tmp_path, space),
        Pool(),
        tracker,
        time.monotonic() - 61,
        lambda: False,
        lambda s: None,
        lambda: None,
    )
    going.finish_leftover_trials()
    going.close()
    assert going.reason == "limits.timeout" and not going.search.interrupted
    states = [(t.result.state, t.reason) for t in record_of(tmp_path)]
    assert states == [(State.PRUNED, "limits.timeout, unfinished")] * 2


def test_trials_that_are_left_resumable_stay_so(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = controller(space, tmp_path)
    name = first.start_trial()
    assert name is not None
    first.on_update(news(name, 1, 0.5))
    going, _ = controller(space, tmp_path)
    going.stop("interrupted", State.RUNNING)
    going.close()
    assert [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


@pytest.mark.parametrize("whole", [False, True])
def test_last_checkpoint_alone_ends_no_trial_of_several_ranks(make_space, tmp_path, whole):
    space = make_space(BODY + "\nscaling: {num_workers: 2}", scheduler="{name: none, max_t: 2}")
    first, _ = controller(space, tmp_path)
    name = first.start_trial()
    assert name is not None
    path = tmp_path / "trials" / name / "checkpoint_000002"
    path.mkdir(parents=True)
    first.on_update(news(name, 1, 0.5))
    first.on_update(news(name, 2, 0.4, checkpoint=Checkpoint(path.name, 2, 2) if whole else None))
    going, _ = controller(space, tmp_path)
    assert (going.search.interrupted == deque()) == whole
    assert record_of(tmp_path)[0].result.state is (State.COMPLETE if whole else State.RUNNING)


def test_a_study_that_cannot_be_written_is_left_as_it_is(make_space, tmp_path, monkeypatch):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    name = going.start_trial()
    assert name is not None

    def full(self: Any, logs: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append_logs", full)
        with pytest.raises(OSError, match="no space"):
            going.on_update(news(name, 1, 0.5))
        going.close(failed=True)
    assert [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


def test_changed_data_ends_the_sweep_and_every_trial_stays_resumable(make_space, tmp_path):
    going, _ = controller(make_space(BODY, scheduler="{name: none}"), tmp_path)
    name = going.start_trial()
    assert name is not None
    going._monitor = Monitor()
    going.poll()
    assert going.reason is None
    changed = InputError(Problem("data.train", "the data has changed since the sweep began"))
    going._monitor, going._status_time = Monitor(changed=changed), 0.0
    going.poll()
    going.close()
    assert going.data_error is changed and going.reason == "the data has changed"
    assert [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


def test_ctrl_c_before_the_first_trial_begins_none(tmp_path, make_space):
    going = SweepController(
        SearchLoop.open(tmp_path, make_space("params: {x: {uniform: [0.0, 1.0]}}")),
        Pool(),
        Deaf(),
        0.0,
        lambda: True,
        print,
        print,
    )
    going.finish_leftover_trials()
    assert going.reason == "interrupted" and not going.study_store.results()
    with pytest.raises(StopIteration):
        going.start_trial()


# ---- commands from outside


@pytest.fixture
def going(make_space, tmp_path) -> SweepController:
    """A controller with a trial that runs."""
    made, _ = controller(make_space(BODY), tmp_path)
    assert made.start_trial() == "0000"
    made._monitor = Monitor()
    return made


def command(going: SweepController, command: Command) -> Answer:
    """Send a command, let the controller carry it out, and return the answer."""
    file = send(going.folder, command)
    going._status_time = 0.0
    going.poll()
    assert not file.exists(), "a handled command is deleted"
    answer = read_answer(file)
    assert answer is not None
    return answer


def answers_of(going: SweepController, *commands: Command) -> list[str]:
    """Send commands one after the other, and return the text of each answer, or its problems."""
    return [
        "; ".join(answer.problems) or answer.text
        for answer in (command(going, one) for one in commands)
    ]


def test_a_command_stops_the_sweep_and_leaves_its_trials_resumable(going):
    assert answers_of(going, Stop(), Stop()) == [
        "stopping; 1 trial is interrupted",
        "the sweep is ending already (interrupted)",
    ]
    assert going.reason == "interrupted" and going.commands.notes
    with pytest.raises(StopIteration):
        going.start_trial()
    going.close()
    assert [t.result.state for t in record_of(going.folder)] == [State.RUNNING]


def test_a_command_stops_one_trial_at_once_and_the_record_has_the_cause(going):
    assert going.start_trial() == "0001"
    calls: list[tuple[Any, ...]] = []
    going.pool.stop = SimpleNamespace(remote=lambda *args: calls.append(args))
    going.on_update(news("0000", 1, 0.5))
    file = send(going.folder, Stop("0000"))
    for _ in range(2):  # The pool may have been restarted after the first request.
        going._status_time = 0.0
        going.poll()
    assert calls == [("0000",)] * 2 and read_answer(file) is None, (
        "the answer waits for the trial's last reports"
    )
    assert not going.on_update(news("0000", 2, 0.4, state=State.PRUNED))
    going._status_time = 0.0
    going.poll()
    assert read_answer(file) == Answer("trial 0000 is stopped, after 2 steps", "0000") and list(
        going.running
    ) == [1]
    first, second = record_of(going.folder)
    assert (first.result.state, second.result.state) == (State.PRUNED, State.RUNNING)
    assert first.reason == first.result.reason == STOPPED and first.result.value == 0.4
    assert answers_of(going, Stop("0000")) == ["trial 0000 has ended already (PRUNED)"]


def test_a_trial_that_ends_before_it_is_stopped_keeps_its_end(going):
    file = send(going.folder, Stop("0000"))
    going._status_time = 0.0
    going.poll()
    going.on_update(news("0000", 1, 0.5, state=State.COMPLETE))
    going._status_time = 0.0
    going.poll()
    assert read_answer(file) == Answer(problems=("trial 0000 has ended already (COMPLETE)",))
    assert [(t.result.state, t.reason) for t in record_of(going.folder)] == [(State.COMPLETE, None)]


def test_a_paused_trial_and_an_interrupted_trial_can_be_stopped(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: hyperband, max_t: 9, reduction_factor: 3}")
    first, _ = controller(space, tmp_path)
    for _ in range(2):
        assert first.start_trial() is not None
    first.on_update(news("0000", 1, 0.5))
    first.search.store.append(TrialPaused(1.0, 0, 1))
    going, _ = controller(space, tmp_path)
    going._monitor = Monitor()
    assert going.search.view.paused == {0: 1} and list(going.search.interrupted) == [1]
    assert answers_of(going, Stop("0000"), Stop("0001")) == [
        "trial 0000 is stopped, after 1 step",
        "trial 0001 is stopped, before its first step",
    ]
    assert not going.search.view.paused and not going.search.interrupted
    assert [(t.result.state, t.reason) for t in record_of(tmp_path)] == [
        (State.PRUNED, STOPPED)
    ] * 2


def test_after_a_pause_trials_run_on_but_none_starts_until_the_resume(going):
    assert (
        command(going, Pause()).text == "paused; 1 trial is still running, and no new trial starts"
    )
    assert going.start_trial() is None and going.reason is None and going.status().paused
    assert record.read(going.folder).paused
    assert going.on_update(news("0000", 1, 0.5))
    send(going.folder, Resume())
    going._status_time = 0.0
    going.poll()
    assert going.start_trial() == "0001"
    assert not record.read(going.folder).paused and not going.status().paused


def test_a_driver_that_follows_a_paused_one_is_not_paused(make_space, tmp_path):
    space = make_space(BODY)
    first, _ = controller(space, tmp_path)
    first._monitor = Monitor()
    assert first.start_trial() == "0000"
    command(first, Pause())
    assert record.read(tmp_path).paused
    going, _ = controller(space, tmp_path)
    assert (
        going.start_trial() == "0000"
        and going.start_trial() == "0001"
        and not record.read(tmp_path).paused
    )


def test_a_sweep_ends_if_no_trial_is_left_to_start_in_a_pause(make_space, tmp_path):
    going, _ = controller(make_space(BODY, max_trials=2), tmp_path)
    going._monitor = Monitor()
    assert going.start_trial() is not None
    command(going, Pause())
    command(going, Resume())
    assert going.start_trial() is not None
    assert answers_of(going, Pause()) == [
        "all trials have started already, so a pause would change nothing"
    ]
    for name in ("0000", "0001"):
        going.on_update(news(name, 1, 0.5, state=State.COMPLETE))
    with pytest.raises(StopIteration):
        going.start_trial()


def test_an_enqueued_configuration_starts_next_and_the_record_says_so(going):
    assert command(going, Enqueue({"eta": 0.25})) == Answer(
        "trial 0001 is the next trial to start", "0001"
    )
    assert (
        command(going, Enqueue({"params.eta": 0.75})).text
        == "trial 0002 starts after 1 trial enqueued earlier"
    )
    assert [going.start_trial(), going.start_trial(), going.start_trial()] == [
        "0001",
        "0002",
        "0003",
    ]
    trials = record_of(going.folder)
    assert [t.trial.enqueued for t in trials] == [False, True, True, False]
    assert [t.params["eta"] for t in trials[1:3]] == [0.25, 0.75] and trials[1].to_json()[
        "enqueued"
    ] is True
    assert going.search.store.trial(1).enqueued and not going.search.store.trial(3).enqueued


def test_enqueued_configuration_survives_driver_exactly_once(make_space, tmp_path):
    space = make_space(BODY)
    first, _ = controller(space, tmp_path)
    first._monitor = Monitor()
    file = send(tmp_path, Enqueue({"eta": 0.25}))
    text = file.read_bytes()
    first._status_time = 0.0
    first.poll()
    file.write_bytes(text)  # The driver died before it could delete the command.
    CommandQueue(tmp_path).discard_stale()
    going, _ = controller(space, tmp_path)
    going._monitor, going._status_time = Monitor(), 0.0
    going.poll()
    assert read_answer(file) == Answer("trial 0000 starts after 1 trial enqueued earlier", "0000")
    assert [going.start_trial(), going.start_trial()] == ["0000", "0001"]
    assert [(t.trial.enqueued, t.params["eta"] == 0.25) for t in record_of(tmp_path)] == [
        (True, True),
        (False, False),
    ]


def test_initial_points_are_not_skipped_because_of_enqueued_configurations(make_space, tmp_path):
    space = make_space(BODY, points="[{params.eta: 0.1}, {params.eta: 0.2}]", max_trials=4)
    going, _ = controller(space, tmp_path)
    going._monitor = Monitor()
    for eta in (0.7, 0.8):
        command(going, Enqueue({"eta": eta}))
        assert going.start_trial() is not None
    going, _ = controller(space, tmp_path)  # a resume
    while len(going.running) < 4:
        assert going.start_trial() is not None
    assert [t.params["eta"] for t in record_of(tmp_path)] == [0.7, 0.8, 0.1, 0.2]
    going._monitor = Monitor()
    refused = (
        "all 4 trials of limits.max_trials have started; `sweeps resume --add-trials` adds trials "
        "later"
    )
    assert answers_of(going, Enqueue({"eta": 0.5})) == [refused]
    with pytest.raises(StopIteration):
        going.start_trial()


PBT = "{name: pbt, perturbation_interval: 2, max_t: 4}"
REFUSED = [
    (
        BODY,
        "{name: none}",
        Enqueue({"eta": 3, "etaa": 1}),
        ["must be within its bounds, 0 to 1, got 3", "no dimension `etaa`"],
        True,
    ),
    (BODY, "{name: none}", Enqueue({}), ["give at least one value"], True),
    (BODY, PBT, Enqueue({"eta": 0.5}), ["pbt starts all trials of its population at once"], False),
    (BODY, PBT, Pause(), ["pbt starts all trials at once"], False),
    (
        "params: {eta: {grid: [1, 2]}}",
        "{name: none}",
        Enqueue({"eta": 1}),
        ["all dimensions of the space are grids"],
        False,
    ),
    (
        "params: {eta: 0.5}",
        "{name: none}",
        Enqueue({"eta": 0.5}),
        ["the space has no dimension"],
        False,
    ),
    (BODY, "{name: none}", Stop("0099"), ["no trial `0099`; the trials are 0000 to 0000"], True),
    (BODY, "{name: none}", Resume(), ["is running and is not paused"], False),
]


@pytest.mark.parametrize("body, scheduler, refused, why, invalid", REFUSED)
def test_a_command_that_cannot_be_carried_out_is_answered_and_logged(
    make_space, tmp_path, caplog, body, scheduler, refused, why, invalid
):
    going, _ = controller(make_space(body, scheduler=scheduler, max_trials=4), tmp_path)
    going._monitor = Monitor()
    assert going.start_trial() == "0000"
    answer = command(going, refused)
    assert len(answer.problems) == len(why) and answer.invalid is invalid and not answer.text
    assert all(text in "; ".join(answer.problems) and text in caplog.text for text in why)
    assert going.reason is None and not going.status().paused


ELASTIC = (
    BODY + "\nscaling: {num_workers: {elastic: [1, 3]}, resources_per_worker: {CPU: 1, GPU: 0.5}}"
)


def test_sizes_of_elastic_trial_are_recorded_and_published(make_space, tmp_path):
    space = make_space(ELASTIC, scheduler="{name: none}", extra="")
    going, _ = controller(space, tmp_path)
    events: list[Any] = []
    going.trackers.publish = events.append  # type: ignore[method-assign]
    name = going.start_trial()
    assert name is not None
    three, two = GangSizePeriod(0, 3, 0, 1.0), GangSizePeriod(2, 2, 3, 2.0)
    going.on_update(news(name, 1, 0.5, sizes=(three,), seconds=10.0, worker_seconds=30.0))
    going.on_update(news(name, 4, 0.4, sizes=(two,), seconds=20.0, worker_seconds=50.0))
    going.on_update(news(name, 5, 0.4, seconds=30.0, worker_seconds=70.0))
    changes = [event for event in events if isinstance(event, TrialResized)]
    assert [(e.size, e.time) for e in changes] == [(three, 1.0), (two, 2.0)]
    again, pool = controller(space, tmp_path)
    resume_from = again.start_trial() and pool.started[-1]
    assert resume_from is not None and (
        resume_from.sizes,
        resume_from.worker_seconds,
        resume_from.seconds,
    ) == ((three, two), 70.0, 30.0)
    again.on_update(trial_update(name, state=State.COMPLETE, seconds=40.0, worker_seconds=90.0))
    study = record.read(tmp_path)
    assert study is not None
    trial = study.trials[0]
    assert (
        trial.sizes == (three, two)
        and trial.result.metrics["cpu_seconds"] == 90.0
        and trial.result.metrics["gpu_seconds"] == 45.0
    )


def test_the_pool_learns_when_no_trial_is_left_to_start(make_space, tmp_path):
    going, _ = controller(
        make_space(ELASTIC, scheduler="{name: none}", extra="", max_trials=2), tmp_path
    )
    going._monitor = monitor = Monitor()
    told = []
    for _ in range(2):
        going._status_time = 0.0
        going.poll()
        told.append(monitor.all_started)
        assert going.start_trial() is not None
    going._status_time = 0.0
    going.poll()
    assert [*told, monitor.all_started] == [False, False, True]
    resumed, _ = controller(going.space, tmp_path)
    assert resumed._trials_left(), "both trials were interrupted"


def test_the_number_of_running_trials_follows_the_cluster(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}", extra="")
    going, _ = controller(space, tmp_path)
    going.driver.slots, going._slots_of = 1, lambda total: int(total["CPU"])
    going._monitor = Monitor()
    first = going.start_trial()
    assert first is not None and going.start_trial() is None
    for cpus in (1.0, 2.0, 2.0):
        going._monitor.usage = Usage({"CPU": cpus})  # type: ignore[assignment]
        going._status_time = 0.0
        going.poll()
    assert going.start_trial() is not None and going.start_trial() is None
    going.on_update(trial_update(first, (Report(1, {"loss": 0.5}, 1.0),), state=State.COMPLETE))
    assert going.start_trial() is not None
