"""Conformance suite for trackers.

Subclass `TrackerTests` in a test file, and pytest runs the tests on your tracker.

from csv_tracker import CsvTracker
from sweeps.testing.pytest_trackers import TrackerTests

class TestCsvTracker(TrackerTests):
    def create_tracker(self, folder):
        return CsvTracker(file="results.csv")
"""

import math
import pickle
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.resources import Shape
from sweeps.core.result import SweepResult
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, Result, State, Trial
from sweeps.space import Space, load
from sweeps.study.events import (
    ArtifactSaved,
    AttemptFailed,
    AttemptStarted,
    Event,
    FailureCounts,
    Perturbation,
    SweepEnded,
    SweepStarted,
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from sweeps.tracking.tracker import Tracker

START = 1_700_000_000.0
SPACE = """\
name: sample
trainer: {loop: "sweeps.testing.pytest_trackers:train_func"}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 4}
space:
  params:
    lr: {loguniform: [1e-4, 1e-1]}
    optimizer: {choice: [sgd, adam, null]}
"""


def train_func(config: dict[str, Any]) -> None:
    """Training loop that the sample sweep's space file names. It is never called."""


@dataclass(frozen=True)
class LaterEvent(Event):
    """An event type that a later version of sweeps might add."""

    text: str = ""


def sample_space(folder: Path) -> Space:
    """Write a small space file into a folder and load it."""
    file = folder / "sample.yaml"
    file.write_text(SPACE)
    return load(file)


def sample_trial(number: int) -> Trial:
    """Return a trial of the sample sweep."""
    values = {"lr": 0.01 / (number + 1), "optimizer": ("sgd", "adam", None)[number % 3]}
    labels = {f"params.{name}": value for name, value in values.items()}
    shape = Shape(1, (("CPU", 1.0),))
    return Trial(number, values, preprocessor=(), shape=shape, seed=number, labels=labels)


def trial_events(number: int, state: State) -> list[TrialEvent]:
    """Return the events of one trial that reported two steps."""
    reports = tuple(
        Report(step, {"loss": 1 / step, "odd": math.nan}, START + step) for step in (1, 2)
    )
    error = "Traceback\nValueError: no\n" if state is State.FAIL else None
    final = {"auc": 0.75} if state is State.COMPLETE else {}
    value = None if state is State.FAIL else 0.5
    result = Result(state, value, best_step=2, steps=2, error=error, seconds=1.5, final=final)
    return [
        TrialStarted(START, number, sample_trial(number)),
        TrialReported(START + 1, number, reports[:1]),
        TrialReported(START + 2, number, reports[1:]),
        TrialEnded(START + 3, number, result),
    ]


def sample_history(skip: Container[int] = ()) -> Iterator[TrialEvent]:
    """Yield the events that an earlier driver recorded: those of trial 0, unless 0 is in `skip`."""
    if 0 not in skip:
        yield from trial_events(0, State.COMPLETE)


def sample_events(folder: Path, resumed: bool = False) -> list[Event]:
    """Return the events of a sweep with complete, pruned, failed and interrupted trials.

    Args:
        folder: An existing folder. The sweep's folder is created inside this folder.
        resumed: True if an earlier driver completed trial 0. The events of trial 0 are then only in
            `SweepStarted.history`.
    """
    sweep = folder / "sample-20231114-221320"
    sweep.mkdir(exist_ok=True)
    history = sample_history if resumed else None
    started = SweepStarted(
        START,
        sample_space(folder),
        sweep,
        fingerprint="0" * 64,
        git_commit="c0ffee",
        git_dirty="no",
        history=history,
    )
    events: list[Event] = [started, ArtifactSaved(START, "environment.json", "[]\n")]
    for number, state in enumerate((State.COMPLETE, State.PRUNED, State.FAIL, State.RUNNING)):
        if number > 0 or not resumed:
            events += trial_events(number, state)
    perturbation = Perturbation(
        step=1,
        donor="0001",
        donor_step=1,
        keys={"params.lr": 0.2},
        params={"lr": 0.2},
        labels={"params.lr": 0.2},
        time=START + 5,
        checkpoint=Checkpoint("checkpoint_000001_of_0001", 1, 1),
    )
    events += [
        TrialStarted(START + 4, 4, sample_trial(4)),
        AttemptStarted(START + 4, 4, 1),
        AttemptFailed(START + 4, 4, "lost", FailureCounts(1)),
        TrialDecided(START + 5, 4, rung=1, perturbation=perturbation, lineage=str(perturbation)),
        TrialResized(START + 6, 4, GangSizePeriod(step=1, workers=2, reported=1, time=START + 6)),
        TrialPaused(START + 6, 4, 1),
        TrialEnded(START + 7, 4, Result(State.COMPLETE, 0.25, best_step=1, steps=1)),
    ]
    best = {"trial": "0004", "value": 0.25, "test": None, "params": sample_trial(4).params}
    trials = {"completed": 2, "pruned": 1, "failed": 1, "interrupted": 1}
    result = SweepResult(
        sweep.name,
        sweep,
        trials,
        best=best,
        bundle=None,
        checkpoint=None,
        mlflow={},
        fits=1,
        seconds=8.0,
    )
    return [*events, SweepEnded(START + 8, result, sample_trial(4), "# sample\n")]


class TrackerTests:
    """Tests that every tracker must pass. A subclass overrides `create_tracker`."""

    def create_tracker(self, folder: Path) -> Tracker:
        """Return a new tracker. `folder` is a folder for the tracker's files.

        All trackers of one test get the same folder.
        """
        raise NotImplementedError("override `create_tracker`")

    def ended_trials(self, sweep_folder: Path) -> list[int]:
        """Return the numbers of the trials whose end the tracker has recorded, in any order.

        If an end was recorded twice, return the number twice.

        Overriding this method is optional. Without it, the suite does not check what the tracker
        wrote.
        """
        raise NotImplementedError("`ended_trials` is not overridden")

    def play(self, folder: Path, events: Sequence[Event]) -> None:
        """Hand events to a new tracker, and close the tracker."""
        tracker = self.create_tracker(folder)
        for event in events:
            tracker.handle(event)
        tracker.close()

    def test_has_the_methods_of_the_port(self, tmp_path: Path) -> None:
        """A tracker has `handle` and `close`."""
        tracker = self.create_tracker(tmp_path)
        assert isinstance(tracker, Tracker)
        tracker.close()

    def test_handles_every_event(self, tmp_path: Path) -> None:
        """A tracker accepts each event of a sweep."""
        self.play(tmp_path, sample_events(tmp_path))

    def test_handles_events_from_another_process(self, tmp_path: Path) -> None:
        """A tracker accepts copies of events, so it must not compare objects by identity."""
        self.play(
            tmp_path, [pickle.loads(pickle.dumps(event)) for event in sample_events(tmp_path)]
        )

    def test_ignores_event_types_of_later_versions(self, tmp_path: Path) -> None:
        """A tracker ignores an unknown event type at any position among the events."""
        events = sample_events(tmp_path)
        self.play(tmp_path, [events[0], LaterEvent(START, "new"), *events[1:]])

    def test_handles_a_resumed_sweep(self, tmp_path: Path) -> None:
        """A tracker accepts the events of a second driver of the same sweep."""
        events = sample_events(tmp_path)
        self.play(tmp_path, events[: len(events) // 2])  # The first driver was killed.
        self.play(tmp_path, sample_events(tmp_path, resumed=True))

    def test_writes_the_end_of_each_trial_once(self, tmp_path: Path) -> None:
        """After a resume, the tracker's output contains each ended trial exactly once.

        An interrupted trial has not ended.
        """
        if type(self).ended_trials is TrackerTests.ended_trials:
            pytest.skip("`ended_trials` is not overridden")
        events = sample_events(tmp_path)
        ended = [i for i, event in enumerate(events) if isinstance(event, TrialEnded)]
        # The first driver was killed after the end of trial 0.
        self.play(tmp_path, events[: ended[0] + 1])
        resumed = sample_events(tmp_path, resumed=True)
        self.play(tmp_path, resumed)
        started = resumed[0]
        assert isinstance(started, SweepStarted)
        assert sorted(self.ended_trials(started.folder)) == [0, 1, 2, 4], (
            "trials 0, 1, 2 and 4 end once, and trial 3 is interrupted"
        )

    def test_handles_a_sweep_that_fails_before_it_starts(self, tmp_path: Path) -> None:
        """A tracker accepts SweepEnded as its only event."""
        self.play(tmp_path, [SweepEnded(START, None)])

    def test_handles_a_sweep_without_a_result(self, tmp_path: Path) -> None:
        """A tracker accepts the end of a driver that failed."""
        self.play(tmp_path, [*sample_events(tmp_path)[:-1], SweepEnded(START + 8, None)])

    def test_closes_without_events(self, tmp_path: Path) -> None:
        """A tracker can be closed before it has received an event."""
        self.play(tmp_path, [])

    def test_closes_twice(self, tmp_path: Path) -> None:
        """A tracker can be closed twice."""
        tracker = self.create_tracker(tmp_path)
        for event in sample_events(tmp_path):
            tracker.handle(event)
        tracker.close()
        tracker.close()
