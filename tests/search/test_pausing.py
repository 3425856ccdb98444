"""A scheduler that pauses trials: the pause is recorded, and the scheduler picks who continues."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sweeps.controller.controller import SweepController
from sweeps.core.trial import Action, Checkpoint, Report, State, Trial
from sweeps.execution.messages import Progress, ResumeState
from sweeps.search.schedulers import Decision, Scheduler
from sweeps.search.search_loop import SearchLoop
from tests.search.deaths import Deaf

BODY = "params: {x: {uniform: [0.0, 1.0]}}"
TRIALS, RUNG, MAX_T = 4, 3, 6


@dataclass(frozen=True)
class PauseAll(Scheduler):
    """Pauses every trial at its rung, and continues the best one when four are paused."""

    pauses: ClassVar[bool] = True
    needs_checkpoint: ClassVar[bool] = True
    max_t: int | None = MAX_T

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        return (RUNG,)

    def decide(self, view, trial, rung) -> Decision:
        return Decision(Action.PAUSE)

    def next_paused(self, view) -> int | None:
        if len(view.paused) < TRIALS:
            return None
        return min(view.paused, key=lambda number: view.trials[number].values[RUNG])


class Pool(Deaf):
    """Starts trials one after the other, and notes from where."""

    def __init__(self) -> None:
        self.started: list[tuple[Trial, ResumeState | None]] = []
        self.start = self

    def remote(
        self, trial: Trial, folder: str, resume_from: ResumeState | None = None, *_: Any
    ) -> None:
        self.started.append((trial, resume_from))


def controller(space: Any, folder: Path) -> SweepController:
    loop = SearchLoop.open(folder, space)
    return SweepController(
        loop, Pool(), Deaf(), time.monotonic(), lambda: False, lambda s: None, lambda: None
    )


def train(going: SweepController, first: int, last: int) -> Action:
    """Report the steps of the trial that was started last, with a checkpoint at each."""
    trial, action = going.pool.started[-1][0], Action.CONTINUE
    for step in range(first, last + 1):
        path = going.folder / "trials" / trial.id / f"checkpoint_{step:06d}"
        path.mkdir(exist_ok=True)
        saved = Checkpoint(str(path), step, step)
        report = (Report(step, {"loss": trial.params["x"] + 1 / step}, 1.0),)
        action = going.on_trial_progress(
            trial.id, Progress(report, saved, saved, step if step == RUNG else None, attempts=1)
        )
        if action is Action.STOP:
            break
    return action


@pytest.fixture
def space(make_space):
    return make_space(
        BODY, TRIALS, "random", scheduler='{name: "tests.search.test_pausing:PauseAll"}'
    )


@pytest.mark.parametrize("restart", [False, True], ids=["one driver", "a driver that dies"])
def test_a_paused_trial_continues_from_its_checkpoint(space, tmp_path, restart):
    going = controller(space, tmp_path)
    for _ in range(TRIALS):
        going.start_trial()
        assert train(going, 1, MAX_T) is Action.STOP and not going.running
    if restart:
        going = controller(space, tmp_path)
    assert (
        going.search.view.paused == dict.fromkeys(range(TRIALS), RUNG)
        and not going.search.interrupted
    )
    assert going.search.to_run == TRIALS
    values = {number: trial.values[RUNG] for number, trial in going.search.view.trials.items()}
    best = min(values, key=values.__getitem__)
    assert going.start_trial() == f"{best:04d}"
    trial, resume_from = going.pool.started[-1]
    assert (
        trial.number == best
        and resume_from is not None
        and resume_from.checkpoint is not None
        and resume_from.checkpoint.step == RUNG
    )
    assert train(going, RUNG + 1, MAX_T) is Action.CONTINUE
    going.on_trial_progress(trial.id, Progress(state=State.COMPLETE, attempts=1))
    with pytest.raises(StopIteration):
        going.start_trial()
    states = {number: result.state for number, result in going.study_store.results().items()}
    assert states == {
        number: State.COMPLETE if number == best else State.PRUNED for number in range(TRIALS)
    }


def test_a_trial_that_continued_is_interrupted_and_not_paused_after_a_crash(space, tmp_path):
    going = controller(space, tmp_path)
    for _ in range(TRIALS):
        going.start_trial()
        train(going, 1, MAX_T)
    name = going.start_trial()
    again = SearchLoop.open(tmp_path, space)
    assert [f"{number:04d}" for number in again.interrupted] == [name] and len(
        again.view.paused
    ) == TRIALS - 1
