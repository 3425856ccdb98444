"""`sweeps.report` outside of a sweep, on other ranks, and after the trial was stopped.
tests/trainers has its use in a trial.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sweeps
from sweeps.core.loop_context import Current, set_current
from sweeps.core.plugins.script_report import SOCKET


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", SOCKET):
        monkeypatch.delenv(name, raising=False)


def test_outside_of_a_sweep_the_metrics_are_printed_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sweeps.report({"loss": np.float32(0.5), "valid": {"auc": 1}}, epoch=3, checkpoint=tmp_path)
    assert json.loads(capsys.readouterr().out) == {"loss": 0.5, "valid": {"auc": 1.0}, "epoch": 3.0}


def test_other_ranks_and_a_stopped_trial_report_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "1")
    sweeps.report(loss=1)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(SOCKET, str(tmp_path / "gone"))
    sweeps.report(loss=1)
    assert capsys.readouterr().out == ""


def test_in_a_training_loop_the_call_is_an_error() -> None:
    set_current(Current("0000", 1, None, None, None, "loss", "minimize", None, 1, None))
    try:
        with pytest.raises(RuntimeError, match=r"in a training loop, call ray\.train\.report"):
            sweeps.report(loss=1)
    finally:
        set_current(None)


def test_a_metric_must_be_a_number_and_a_checkpoint_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"the metric `valid\.x` must be a number, got object"):
        sweeps.report({"valid": {"x": object()}})
    with pytest.raises(NotADirectoryError, match=r"must be an existing folder, got '.*gone'"):
        sweeps.report(loss=1, checkpoint=tmp_path / "gone")
