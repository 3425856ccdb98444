"""Events are frozen and can be pickled."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from sweeps.study import events
from sweeps.testing.pytest_trackers import sample_events
from sweeps.tracking.earlier_events import TrialHistory


def test_every_event_can_be_pickled_and_not_changed(tmp_path: Path) -> None:
    sample = [*sample_events(tmp_path), sample_events(tmp_path, resumed=True)[0]]
    assert {type(event) for event in sample} == {
        event
        for event in vars(events).values()
        if isinstance(event, type)
        and issubclass(event, events.Event)
        and event not in (events.Event, events.TrialEvent)
    }
    for event in sample:
        assert repr(pickle.loads(pickle.dumps(event))) == repr(event)
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.time = 0.0  # type: ignore[misc]


def test_a_history_can_be_pickled_and_shows_no_password(tmp_path: Path) -> None:
    history = TrialHistory(tmp_path, "postgresql://me:secret@host/db")
    copy = pickle.loads(pickle.dumps(history))
    assert copy.url == history.url and "secret" not in repr(copy)
