"""TensorBoard reads what its tracker writes: a run for each trial, curves and hyperparameters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import (
    SESSION_END_INFO_TAG,
    SESSION_START_INFO_TAG,
)
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data as parse_start

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.testing.pytest_trackers import SPACE, sample_events
from sweeps.tracking.create import create_trackers
from sweeps.tracking.tensorboard import TensorBoardTracker

pytestmark = pytest.mark.timeout(120)


def play(events: Any) -> None:
    tracker = TensorBoardTracker()
    for event in events:
        tracker.handle(event)
    tracker.close()


def run_of(folder: Path, trial: str) -> EventAccumulator:
    (run,) = folder.glob(f"*/tensorboard/{trial}")
    read = EventAccumulator(str(run))
    read.Reload()
    return read


def curve(run: EventAccumulator, name: str) -> Any:
    return [(point.step, point.wall_time, point.value) for point in run.Scalars(name)]


def test_each_trial_is_a_run_with_its_curves(tmp_path: Path) -> None:
    play(sample_events(tmp_path))
    assert sorted(run.name for run in tmp_path.glob("*/tensorboard/*")) == [
        "0000",
        "0001",
        "0002",
        "0003",
        "0004",
    ]
    run = run_of(tmp_path, "0000")
    assert curve(run, "loss") == [(1, 1_700_000_001.0, 1.0), (2, 1_700_000_002.0, 0.5)]
    assert [value for _, _, value in curve(run, "objective")] == [0.5] and [
        value for _, _, value in curve(run, "final/auc")
    ] == [0.75]
    assert [
        (step, round(value, 6))
        for step, _, value in curve(run_of(tmp_path, "0004"), "pbt.params.lr")
    ] == [(1, 0.2)]


def test_each_trial_that_ended_has_its_hyperparameters(tmp_path: Path) -> None:
    play(sample_events(tmp_path))
    for trial in ("0000", "0001", "0002", "0004"):
        content = run_of(tmp_path, trial).summary_metadata
        start = parse_start(content[SESSION_START_INFO_TAG].plugin_data.content)
        assert set(start.hparams) == {"params.lr", "params.optimizer"}
        assert start.hparams["params.lr"].number_value == 0.01 / (int(trial) + 1)
        assert (
            start.hparams["params.optimizer"].string_value
            == ("sgd", "adam", "None")[int(trial) % 3]
        )
    assert SESSION_END_INFO_TAG not in run_of(tmp_path, "0003").summary_metadata, (
        "it was interrupted"
    )


def test_a_resume_writes_each_point_once(tmp_path: Path) -> None:
    play(sample_events(tmp_path)[:4])  # killed after the first report of trial 0
    play(sample_events(tmp_path, resumed=True))
    complete = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/tensorboard/0000/*")}
    play(sample_events(tmp_path, resumed=True)[:2])
    assert {
        file: file.stat().st_mtime_ns for file in tmp_path.glob("*/tensorboard/0000/*")
    } == complete
    assert [point[0] for point in curve(run_of(tmp_path, "0000"), "loss")] == [1, 2]


def test_without_the_package_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    file = tmp_path / "s.yaml"
    file.write_text(SPACE + "trackers: [tensorboard]\n")
    with pytest.raises(InputError, match=r"trackers\.0: .*pip install 'sweeps-ray\[tensorboard\]'"):
        create_trackers(load(file))
