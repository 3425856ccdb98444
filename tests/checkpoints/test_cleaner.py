"""The cleaner of a running sweep: which checkpoints are on disk after each trial, and that no trial
waits for it.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.checkpoints import cleaner
from sweeps.controller.controller import SweepController
from sweeps.core.files.checkpoint_files import delete_checkpoint
from sweeps.core.host.crash_cleanup import remove_partial_files
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.search.search_loop import SearchLoop
from tests.search.deaths import Deaf
from tests.trial_updates import trial_update

NONE = "{name: none}"
BODY = "params: {eta: {uniform: [0, 1]}}"


def save(folder: Path, number: int, step: int, size: int = 1000) -> Checkpoint:
    path = folder / "trials" / f"{number:04d}" / f"checkpoint_{step:06d}"
    (path / "deep").mkdir(parents=True)
    (path / "deep" / "state").write_bytes(b"x" * size)
    return Checkpoint(path.name, step, step)


def driver(space: Any, folder: Path) -> SweepController:
    deaf = Deaf()
    loop = SearchLoop.open(folder, space)
    pool: Any = deaf
    tracker: Any = deaf
    return SweepController(
        loop, pool, tracker, time.monotonic(), lambda: False, lambda s: None, lambda: None
    )


def train(controller: SweepController, loss: float, end: bool = True) -> str:
    """Run a trial of two steps whose first is the best, with a checkpoint at each."""
    name = controller.start_trial()
    assert name is not None
    best, latest = save(controller.folder, int(name), 1), save(controller.folder, int(name), 2)
    reports = (Report(1, {"loss": loss}, 1.0), Report(2, {"loss": loss + 1}, 2.0))
    controller.on_update(trial_update(name, reports, latest, best))
    if end:
        controller.on_update(trial_update(name, state=State.COMPLETE, best=best))
    return name


def checkpoints_in(folder: Path) -> dict[str, list[int]]:
    steps_of_trial = {
        t.name: [int(p.name.removeprefix("checkpoint_")) for p in sorted(t.iterdir())]
        for t in sorted((folder / "trials").iterdir())
    }
    return {name: steps for name, steps in steps_of_trial.items() if steps}


def test_running_trials_and_the_best_keep_checkpoints_also_after_a_resume(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 1, top: 1}")
    controller = driver(space, tmp_path)
    for loss in (0.5, 0.3, 0.4):
        train(controller, loss)
    train(controller, 0.1, end=False)
    controller.close()
    assert checkpoints_in(tmp_path) == {"0001": [1], "0003": [1, 2]}, (
        "the last trial was interrupted and can be resumed"
    )
    assert controller.trials.cleaner is not None
    assert dataclasses.asdict(controller.trials.cleaner.freed) == {
        "checkpoints": 5,
        "trials": 3,
        "bytes": 5000,
        "left": 3000,
    }
    again = driver(space, tmp_path)
    checkpoint = again.search.store.states[3].checkpoint
    assert checkpoint is not None and checkpoint.step == 2
    name = again.start_trial()
    assert name == "0003"
    again.on_update(trial_update(name, state=State.COMPLETE))
    again.close()
    assert checkpoints_in(tmp_path) == {"0003": [1]} and again.search.store.winner() == 3
    assert again.trials.cleaner is not None and dataclasses.asdict(again.trials.cleaner.freed) == {
        "checkpoints": 2,
        "trials": 2,
        "bytes": 2000,
        "left": 1000,
    }


def test_the_controller_does_not_wait_for_a_slow_disk(
    make_space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, threads = threading.Event(), []

    def slow(path: Path) -> bool:
        threads.append(threading.current_thread())
        assert held.wait(20)
        return delete_checkpoint(path)

    monkeypatch.setattr(cleaner, "delete_checkpoint", slow)
    controller = driver(
        make_space(BODY, scheduler=NONE, extra="checkpoints: {per_trial: 1}"), tmp_path
    )
    train(controller, 0.5)
    train(controller, 0.4)
    assert checkpoints_in(tmp_path) == {"0000": [1, 2], "0001": [1, 2]}, (
        "the controller has continued meanwhile"
    )
    held.set()
    controller.close()
    assert (
        checkpoints_in(tmp_path) == {"0000": [1], "0001": [1]}
        and threading.main_thread() not in threads
    )


def saves(controller: SweepController, losses: list[float], end: bool = True) -> str:
    """Run a trial with a checkpoint at each step."""
    name = controller.start_trial()
    assert name is not None
    saved = [save(controller.folder, int(name), step) for step in range(1, len(losses) + 1)]
    best = min(saved, key=lambda c: losses[c.step - 1])
    reports = tuple(
        Report(step, {"loss": loss}, float(step)) for step, loss in enumerate(losses, 1)
    )
    controller.on_update(trial_update(name, reports, saved[-1], best))
    if end:
        controller.on_update(trial_update(name, state=State.COMPLETE, best=best))
    return name


@pytest.mark.parametrize(
    ("per_trial", "left"), [(1, [2]), (2, [2, 6]), (3, [2, 5, 6]), (4, [2, 4, 5, 6])]
)
def test_an_ended_trial_keeps_its_best_and_latest_checkpoints(
    make_space: Any, tmp_path: Path, per_trial: int, left: Any
) -> None:
    """`per_trial: N` keeps the best and the N - 1 latest checkpoints. A resume keeps them too."""
    space = make_space(
        BODY, scheduler=NONE, extra=f"checkpoints: {{per_trial: {per_trial}, top: 9}}"
    )
    controller = driver(space, tmp_path)
    saves(controller, [0.5, 0.1, 0.4, 0.3, 0.35, 0.2])
    save(tmp_path, 0, 7)  # a rank died while it wrote this one
    controller.close()
    assert checkpoints_in(tmp_path) == {"0000": left}
    save(tmp_path, 0, 7)
    remove_partial_files(tmp_path, SearchLoop.open(tmp_path, space).store.checkpoints())
    assert checkpoints_in(tmp_path) == {"0000": left}
