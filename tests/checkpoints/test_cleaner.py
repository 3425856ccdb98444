"""A bound for checkpoints while a sweep runs: what is on the disk after each trial, and that nobody waits for it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.checkpoints import cleaner
from sweeps.checkpoints.cleaner import CheckpointCleaner
from sweeps.checkpoints.garbage_collection import collect_garbage
from sweeps.checkpoints.retention import RetentionPolicy
from sweeps.controller.controller import SweepController
from sweeps.core import checkpoint_files as checkpoints
from sweeps.core.checkpoint_files import remove, sizes
from sweeps.core.crash_cleanup import remove_partial_files
from sweeps.core.trial import Checkpoint, Report, Result, State
from sweeps.execution.messages import Progress
from sweeps.search.study_store import StudyStore
from sweeps.space.saved_space import save_space
from sweeps.space.section_models import Repeats
from tests.search.deaths import Deaf

NONE = "{name: none}"
BODY = "params: {eta: {uniform: [0, 1]}}"


def save(folder: Path, number: int, step: int, size: int = 1000) -> Checkpoint:
    path = folder / "trials" / f"{number:04d}" / f"checkpoint_{step:06d}"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "state").write_bytes(b"x" * size)
    return Checkpoint(str(path), step, step)


def driver(space: Any, folder: Path) -> SweepController:
    deaf = Deaf()
    study_store = StudyStore(folder, space)
    pool: Any = deaf
    tracker: Any = deaf
    return SweepController(study_store, pool, tracker, time.time(), lambda: False, lambda s: None, lambda: None)


def train(going: SweepController, loss: float, end: bool = True) -> str:
    """A trial that is best at its first step, with a checkpoint of each of its two."""
    name = going.begin()
    assert name is not None
    best, latest = save(going.folder, int(name), 1), save(going.folder, int(name), 2)
    reports = (Report(1, {"loss": loss}, 1.0), Report(2, {"loss": loss + 1}, 2.0))
    going.hear(name, Progress(reports, latest, best))
    if end:
        going.hear(name, Progress(state=State.COMPLETE, best=best))
    return name


def there(folder: Path) -> dict[str, list[int]]:
    found = {t.name: [int(p.name.removeprefix("checkpoint_")) for p in sorted(t.iterdir())] for t in sorted((folder / "trials").iterdir())}
    return {name: steps for name, steps in found.items() if steps}


def test_without_the_section_nothing_is_deleted_and_no_thread_is_there(make_space, tmp_path):
    going = driver(make_space(BODY, scheduler=NONE), tmp_path)
    train(going, 0.5)
    going.close()
    assert going.cleaner is None and there(tmp_path) == {"0000": [1, 2]}


def test_what_runs_and_the_best_keep_theirs_and_the_next_driver_goes_on(make_space, tmp_path):
    space = make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 1, top: 1}")
    going = driver(space, tmp_path)
    for loss in (0.5, 0.3, 0.4):
        train(going, loss)
    train(going, 0.1, end=False)
    going.close()
    assert there(tmp_path) == {"0001": [1], "0003": [1, 2]}, "the last was interrupted, and is gone on with"
    assert going.cleaner is not None
    assert going.cleaner.freed.to_json() == {"checkpoints": 5, "trials": 3, "bytes": 5000, "left": 3000}
    again = driver(space, tmp_path)
    assert again.study_store.standing(3).checkpoint.step == 2
    name = again.begin()
    assert name == "0003"
    again.hear(name, Progress(state=State.COMPLETE))
    again.close()
    assert there(tmp_path) == {"0003": [1]} and again.study_store.winner() == 3
    assert again.cleaner is not None and again.cleaner.freed.to_json() == {"checkpoints": 2, "trials": 2, "bytes": 2000, "left": 1000}


def test_so_much_disk_is_of_those_too_that_run(make_space, tmp_path):
    going = driver(make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 2, max_disk: 5KB}"), tmp_path)
    train(going, 0.1, end=False)
    assert going.cleaner is not None
    for loss in (0.5, 0.3, 0.4):
        train(going, loss)
        going.cleaner._thread.submit(lambda: None).result(10)  # it has looked, before the next trial saves anything
    going.close()
    assert there(tmp_path) == {"0000": [1, 2], "0002": [1, 2], "0003": [1]}, "the worst first, and of the next its latest"


def test_repeats_that_are_to_come_keep_the_trials_of_their_configuration(make_space, tmp_path):
    going = driver(make_space(BODY, 2, scheduler=NONE, extra="repeats: 2\ncheckpoints: {per_trial: 1, top: 1}"), tmp_path)
    train(going, 0.1)
    assert going.cleaner is not None
    going.cleaner._thread.submit(int).result(20)
    assert there(tmp_path) == {"0000": [1, 2]}
    for loss in (0.9, 0.4, 0.3):  # its repeat; another configuration and the repeat of that
        train(going, loss)
    going.close()
    assert going.study_store.winner() == 3 and there(tmp_path) == {"0003": [1]}


def test_nobody_waits_for_a_slow_disk(make_space, tmp_path, monkeypatch):
    held, threads = threading.Event(), []

    def slow(path: Path) -> bool:
        threads.append(threading.current_thread())
        assert held.wait(20)
        return remove(path)

    monkeypatch.setattr(cleaner, "remove", slow)
    going = driver(make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 1}"), tmp_path)
    train(going, 0.5)
    train(going, 0.4)
    assert there(tmp_path) == {"0000": [1, 2], "0001": [1, 2]}, "the driver has gone on meanwhile"
    held.set()
    going.close()
    assert there(tmp_path) == {"0000": [1], "0001": [1]} and threading.main_thread() not in threads


def test_a_checkpoint_that_cannot_be_deleted_is_not_counted_and_stops_nothing(tmp_path, monkeypatch, caplog):
    kept = [save(tmp_path, n, step) for n in (0, 1) for step in (1, 2)]
    stubborn = kept[1].path
    monkeypatch.setattr(cleaner, "remove", lambda path: str(path) != stubborn and remove(path))
    results = {n: Result(State.COMPLETE, float(n), 1, 2, kept[2 * n], values=(float(n),)) for n in (0, 1)}
    cleaning = CheckpointCleaner(tmp_path, RetentionPolicy(1), Repeats(), (True,), [])
    for n, result in results.items():
        cleaning.trial_ended((n, None, result, "checkpoint_000002"))
    cleaning.close()
    assert there(tmp_path) == {"0000": [1, 2], "0001": [1]} and "checkpoint_000002 of trial 0000 could not be deleted" in caplog.text
    assert cleaning.freed.to_json() == {"checkpoints": 1, "trials": 1, "bytes": 1000, "left": 3000}


def test_a_checkpoint_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = Path(save(tmp_path, 0, 1).path)
    monkeypatch.setattr(checkpoints.shutil, "rmtree", lambda *args, **how: None)  # as if the driver died before it came to it
    assert not remove(path) and not path.exists()
    monkeypatch.undo()
    left = path.with_name(path.name + ".gone")
    assert sizes(path.parent) == {left.name: 1000} and remove(left) and not list(path.parent.iterdir())
    assert remove(path), "somebody else was quicker"


def saves(going: SweepController, losses: list[float], end: bool = True) -> str:
    """A trial with a checkpoint of each of its steps."""
    name = going.begin()
    assert name is not None
    saved = [save(going.folder, int(name), step) for step in range(1, len(losses) + 1)]
    best = min(saved, key=lambda c: losses[c.step - 1])
    reports = tuple(Report(step, {"loss": loss}, float(step)) for step, loss in enumerate(losses, 1))
    going.hear(name, Progress(reports, saved[-1], best))
    if end:
        going.hear(name, Progress(state=State.COMPLETE, best=best))
    return name


@pytest.mark.parametrize(("per_trial", "left"), [(1, [2]), (2, [2, 6]), (3, [2, 5, 6]), (4, [2, 4, 5, 6])])
def test_a_trial_that_ended_keeps_its_best_checkpoint_and_its_latest(make_space, tmp_path, per_trial, left):
    """`per_trial: N` is the best and the N - 1 latest; the next driver of the sweep leaves them there."""
    space = make_space(BODY, scheduler=NONE, extra=f"checkpoints: {{per_trial: {per_trial}, top: 9}}")
    going = driver(space, tmp_path)
    saves(going, [0.5, 0.1, 0.4, 0.3, 0.35, 0.2])
    save(tmp_path, 0, 7)  # a rank died while it wrote this one
    going.close()
    assert there(tmp_path) == {"0000": left}
    save(tmp_path, 0, 7)
    remove_partial_files(tmp_path, StudyStore(tmp_path, space).checkpoints())
    assert there(tmp_path) == {"0000": left}


def test_gc_keeps_as_many_as_it_is_asked_for(make_space, tmp_path):
    space = make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 9}")
    save_space(tmp_path, space, 1.0)
    going = driver(space, tmp_path)
    saves(going, [0.5, 0.1, 0.4, 0.3, 0.35, 0.2])
    saves(going, [0.5, 0.4, 0.3, 0.25], end=False)  # a resume goes on with this one
    going.close()
    assert collect_garbage(tmp_path, RetentionPolicy(4)).checkpoints == 2
    assert there(tmp_path) == {"0000": [2, 4, 5, 6], "0001": [1, 2, 3, 4]}
    assert collect_garbage(tmp_path, RetentionPolicy(4)).checkpoints == 0
    assert collect_garbage(tmp_path, RetentionPolicy(1)).checkpoints == 3 and there(tmp_path)["0000"] == [2]


@pytest.mark.parametrize("extra", ["", "checkpoints:", "checkpoints: {per_trial: 2}"])
def test_the_default_keeps_all(make_space, extra):
    assert make_space(BODY, scheduler=NONE, extra=extra).checkpoints.all_stay
