"""What a driver decides that no whole sweep of the tests comes to: without Ray."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions

from sweeps.controller.controller import SweepController
from sweeps.core.errors import InputError, Problem
from sweeps.core.processes import is_alive
from sweeps.core.sweep_folder import STAGES
from sweeps.core.trial import Action, Checkpoint, Report, State
from sweeps.data.data_actor import LOST_MESSAGE
from sweeps.execution.messages import Past, Progress, Stage, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record
from sweeps.study.journal import Journal
from tests.search.deaths import Deaf
from tests.waiting import wait_until

BODY = "params: {eta: {uniform: [0, 1]}}"


class Pool(Deaf):
    """Keeps what it is told of trials."""

    def __init__(self) -> None:
        self.started: list[Past | None] = []
        self.start = SimpleNamespace(remote=lambda trial, folder, past=None: self.started.append(past))


def conductor(space: Any, folder: Any) -> tuple[SweepController, Pool]:
    pool, deaf = Pool(), Deaf()
    tracker: Any = deaf
    going = SweepController(SearchLoop.open(folder, space), pool, tracker, time.time(), lambda: False, lambda s: None, lambda: None)
    going.settle()
    return going, pool


def record_of(folder: Any) -> tuple[record.TrialRecord, ...]:
    found = record.read(folder)
    assert found is not None
    return found.trials


def ready(monkeypatch: pytest.MonkeyPatch, raises: Exception) -> None:
    """Whatever is waited for is there, and is this error."""

    def get(what: Any) -> None:
        raise raises

    monkeypatch.setattr(
        "sweeps.controller.controller.ray", SimpleNamespace(wait=lambda what, timeout: (what, []), get=get, exceptions=ray.exceptions)
    )


@pytest.mark.parametrize("ended", [0, 1])
def test_a_chain_that_is_found_bad_ends_the_sweep_unless_trials_have_ended(make_space, tmp_path, monkeypatch, ended):
    going, _ = conductor(make_space(BODY, scheduler="{name: none}"), tmp_path)
    for _ in range(ended):
        name = going.begin()
        assert name is not None
        going.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), state=State.COMPLETE))
    bad = InputError(Problem("space.preprocessor", "no column `x`"))
    ready(monkeypatch, ray.exceptions.RayTaskError("prefit", "", bad))
    going.prefit = object()
    going._look_at_prefit()
    assert (going.refused is None) == bool(ended) and (going.reason is None) == bool(ended), "its own trials fail, others stay"


def test_the_death_of_a_driver_is_no_failure_of_a_trial_whose_pool_is_lost_later(make_space, tmp_path, monkeypatch):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    first.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), attempts=3))  # two gangs were lost under it
    going, pool = conductor(space, tmp_path)
    assert going.begin() == name and pool.started[-1] == Past(3, ((1, 0.5),), None, None, 0.0, 0)
    going.hear(name, Progress((Report(2, {"loss": 0.4}, 2.0),), attempts=4))
    ready(monkeypatch, ray.exceptions.RayActorError())
    going._look_whether_the_pool_lives()
    assert pool.started[-1] is not None and (pool.started[-1].attempts, pool.started[-1].lost) == (4, 1)
    going.hear(name, Progress((Report(3, {"loss": 0.3}, 3.0),), attempts=5))
    going._look_whether_the_pool_lives()
    assert pool.started[-1].lost == 2


def test_what_a_trial_took_that_waits_to_go_on_counts_as_spent(make_space, tmp_path):
    body = BODY + "\nscaling: {num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}"
    space = make_space(body, scheduler="{name: none}", extra="")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    first.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), seconds=7200.0))
    going, _ = conductor(space, tmp_path)
    assert going.search.interrupted == deque([0]) and going.reason is None
    object.__setattr__(going.space.limits, "max_gpu_hours", 1.5)
    going._look_at_budgets()
    assert going.reason is not None and going.reason.startswith("limits.max_gpu_hours")


def news(step: int, loss: float, **more: Any) -> Progress:
    return Progress((Report(step, {"loss": loss}, float(step)),), **more)


def test_a_rung_that_was_passed_is_passed_again_whoever_has_come_there_since(make_space, tmp_path):
    space = make_space(BODY)  # asha, one in three
    first, _ = conductor(space, tmp_path)
    early = first.begin()
    assert early is not None and first.hear(early, news(1, 0.9, rung=1)) is Action.CONTINUE, "the first to come there"
    for loss in (0.3, 0.2, 0.1, 0.05):
        later = first.begin()
        assert later is not None
        first.hear(later, news(1, loss, rung=1))
    assert first.hear(early, Progress(rung=1)) is Action.CONTINUE, "its worker was lost beyond it"
    going, _ = conductor(space, tmp_path)  # the driver was
    assert 0 in going.search.interrupted and going.begin() == early
    assert going.hear(early, Progress(rung=1)) is Action.CONTINUE
    late = going.begin()
    while late is not None and late in {f"{n:04d}" for n in range(5)}:
        late = going.begin()
    assert late is not None and going.hear(late, news(1, 0.8, rung=1)) is Action.STOP, "though not for others"


def test_a_budget_that_is_spent_when_a_sweep_goes_on_stops_what_was_interrupted(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = conductor(space, tmp_path)
    for _ in range(2):
        name = first.begin()
        assert name is not None
        first.hear(name, news(1, 0.5))
    object.__setattr__(space.limits, "timeout", 60.0)
    tracker: Any = Deaf()
    going = SweepController(
        SearchLoop.open(tmp_path, space), Pool(), tracker, time.time() - 61, lambda: False, lambda s: None, lambda: None
    )
    going.settle()
    going.close()
    assert going.reason == "limits.timeout" and not going.search.interrupted
    states = [(t.result.state, t.reason) for t in record_of(tmp_path)]
    assert states == [(State.PRUNED, "limits.timeout")] * 2


def test_trials_that_are_left_resumable_stay_so(make_space, tmp_path):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    first.hear(name, news(1, 0.5))
    going, _ = conductor(space, tmp_path)
    going.stop("interrupted", State.RUNNING)
    going.close()
    assert [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


@pytest.mark.parametrize("whole", [False, True])
def test_a_trial_of_several_ranks_is_at_its_end_with_its_last_checkpoint_alone(make_space, tmp_path, whole):
    space = make_space(BODY + "\nscaling: {num_workers: 2}", scheduler="{name: none, max_t: 2}")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    path = tmp_path / "trials" / name / "checkpoint_000002"
    path.mkdir(parents=True)
    first.hear(name, news(1, 0.5))
    first.hear(name, news(2, 0.4, checkpoint=Checkpoint(str(path), 2, 2) if whole else None))  # else a rank was still to write its part
    going, _ = conductor(space, tmp_path)
    assert (going.search.interrupted == deque()) == whole
    assert record_of(tmp_path)[0].result.state is (State.COMPLETE if whole else State.RUNNING)


def test_what_a_search_broke_of_is_kept_and_a_study_that_cannot_be_written_is_left_as_it_is(make_space, tmp_path, monkeypatch):
    going, _ = conductor(make_space(BODY, scheduler="{name: none}"), tmp_path)
    name = going.begin()
    assert name is not None

    def full(self: Any, logs: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append_logs", full)
        with pytest.raises(OSError, match="no space") as e:
            going.hear(name, news(1, 0.5))
        assert going.broke is e.value
        going.close()
    assert [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


def test_a_keeper_that_is_lost_ends_the_sweep_and_every_trial_stays_resumable(make_space, tmp_path, monkeypatch):
    monkeypatch.setattr("sweeps.controller.controller.ray", SimpleNamespace(wait=lambda what, timeout: ([], what)))
    going, _ = conductor(make_space(BODY, scheduler="{name: none}"), tmp_path)
    name = going.begin()
    assert name is not None
    going.data_actor = os.getpid()
    going.tick()
    assert going.reason is None
    gone = subprocess.Popen(["true"])
    wait_until(lambda: not is_alive(gone.pid), 10, "the process to end")  # a zombie: nobody has asked for its exit code
    going.data_actor, going.shown = gone.pid, 0.0
    going.tick()
    gone.wait()
    going.close()
    assert going.reason == LOST_MESSAGE and [t.result.state for t in record_of(tmp_path)] == [State.RUNNING]


def test_ctrl_c_before_the_first_trial_begins_none(tmp_path, make_space):
    going = SweepController(
        SearchLoop.open(tmp_path, make_space("params: {x: {uniform: [0.0, 1.0]}}")), Pool(), Deaf(), 0.0, lambda: True, print, print
    )
    going.settle()
    assert going.reason == "interrupted" and not going.search.store.results()
    with pytest.raises(StopIteration):
        going.begin()


def test_the_trials_that_do_not_train_yet_stand_in_the_sweeps_folder_until_the_driver_ends(tmp_path, monkeypatch, make_space):
    (tmp_path / STAGES).write_text('{"0000": "waiting for workers"}')  # of a driver that was killed
    going, _ = conductor(make_space(BODY), tmp_path)
    assert not (tmp_path / STAGES).exists()
    stages: dict[str, tuple[Stage, int | None]] = {"0000": (Stage.TRAINING, None), "0001": (Stage.WAITING, None)}
    usage = Usage({"CPU": 2.0}, stages=stages)
    monkeypatch.setattr(
        "sweeps.controller.controller.ray",
        SimpleNamespace(wait=lambda what, timeout: (what, []), get=lambda _: usage, exceptions=ray.exceptions),
    )
    going.asked, going.life = object(), SimpleNamespace()
    going._look_at_pool()
    assert json.loads((tmp_path / STAGES).read_text()) == {"0001": "waiting for workers"}
    stages["0001"] = (Stage.TRAINING, None)
    usage.silent["0000"] = "rank 1 has not reported for 301 s"
    going.asked = object()
    going._look_at_pool()
    assert json.loads((tmp_path / STAGES).read_text()) == {"0000": "silent: rank 1 has not reported for 301 s"}
    usage.silent.clear()
    going.asked = object()
    going._look_at_pool()
    assert json.loads((tmp_path / STAGES).read_text()) == {}
    going.close()
    assert not (tmp_path / STAGES).exists()
