"""The hub hands events to all trackers, and a tracker that fails harms nobody else."""

from __future__ import annotations

import queue
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.core.trial import Result, State
from sweeps.study.events import ArtifactSaved, Event, SweepEnded, TrialEnded
from sweeps.tracking import MlflowTracker, TrackerHub


class Recorder:
    """Keeps the events that it gets."""

    def __init__(self, fail_at: Any = None, error: Any = None) -> None:
        self.events: list[Event] = []
        self.closed = 0
        self._fail_at = fail_at
        self._error = error or ValueError("no room")

    def handle(self, event: Event) -> None:
        if type(event) is self._fail_at:
            raise self._error
        self.events.append(event)

    def close(self) -> None:
        self.closed += 1


EVENTS = [
    ArtifactSaved(1.0, "a", "a"),
    TrialEnded(2.0, 7, Result(State.COMPLETE, 0.5)),
    SweepEnded(3.0, None),
]


def test_every_tracker_gets_every_event_in_order() -> None:
    trackers = [Recorder(), Recorder()]
    hub = TrackerHub([("one", trackers[0]), ("two", trackers[1])])
    for event in EVENTS:
        hub.publish(event)
    assert hub.close(10.0) == () and hub.mlflow_complete
    assert [t.events for t in trackers] == [EVENTS, EVENTS] and [t.closed for t in trackers] == [
        1,
        1,
    ]


@pytest.mark.parametrize(
    "error", [ValueError("see http://me:secret@host/x\nand more"), SystemExit(3)]
)
def test_a_tracker_that_raises_is_dropped_and_noted_and_the_others_go_on(error: Any) -> None:
    broken, sound = Recorder(TrialEnded, error), Recorder()
    hub = TrackerHub([("my_mod:Broken", broken), ("sound", sound)])
    for event in EVENTS:
        hub.publish(event)
    (note,) = hub.close(10.0)
    assert note.startswith(
        "tracker `my_mod:Broken` failed at TrialEnded of trial 0007 and gets no more events: "
        f"{type(error).__name__}: "
    )
    assert (
        note.endswith("(the traceback is in sweep.log)")
        and "secret" not in note
        and "\n" not in note
    )
    assert broken.events == EVENTS[:1] and broken.closed == 1
    assert sound.events == EVENTS


def test_a_tracker_that_fails_as_it_is_closed_is_noted() -> None:
    class Broken(Recorder):
        def close(self) -> None:
            raise OSError("disk full")

    hub = TrackerHub([("b", Broken())])
    assert hub.close(10.0) == (
        "tracker `b` failed when it was closed: OSError: disk full (the traceback is in sweep.log)",
    )


def test_hanging_tracker_costs_bounded_time() -> None:
    released = threading.Event()

    class Slow(Recorder):
        def handle(self, event: Any) -> None:
            released.wait(20)

    hub = TrackerHub([("slow", Slow())])
    start = time.monotonic()
    for event in EVENTS:
        hub.publish(event)
    assert time.monotonic() - start < 1
    (note,) = hub.close(0.2)
    released.set()
    assert (
        note == "tracker `slow` did not finish in time: it had not handled 2 events"
        and time.monotonic() - start < 5
    )


def test_a_tracker_that_cannot_keep_up_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.tracking.hub.MAX_WAITING", 2)
    released = threading.Event()

    class Slow(Recorder):
        def handle(self, event: Any) -> None:
            released.wait(20)

    hub = TrackerHub([("slow", Slow())])
    for _ in range(10):
        hub.publish(EVENTS[0])
    released.set()
    (note,) = hub.close(10.0)
    assert (
        note == "tracker `slow` gets no more events, because it is too slow: 2 events were waiting"
    )


def test_a_deadline_ends_the_wait_for_an_mlflow_server_that_answers() -> None:
    release = threading.Event()

    class Slow(MlflowTracker):
        def __init__(self) -> None:
            self._messages = queue.SimpleQueue()
            self._stopped = threading.Event()
            self.writer: Any = SimpleNamespace(left=3)
            self.error = None
            self._thread = threading.Thread(target=release.wait, daemon=True)
            self._thread.start()

    hub = TrackerHub((), Slow())

    def answer(text: str) -> None:
        assert "3 left" in text and hub.mlflow is not None
        hub.mlflow._last_answer = time.monotonic()

    hub.close(60.0, answer, until=time.monotonic() + 0.3)
    assert not hub.mlflow_complete and hub.mlflow is not None
    assert hub.mlflow.error == "the time of --minutes was over"
    release.set()
