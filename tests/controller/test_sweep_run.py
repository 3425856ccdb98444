"""The process of a sweep prepares the export while trials run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.controller.status import SweepStatus, TrialRow
from sweeps.core.resources import Shape
from sweeps.runs import sweep_run
from sweeps.runs.sweep_run import SweepRun
from sweeps.space import load

BODY = """
name: prepared
trainer: xgboost
data: {train: "sklearn:wine", label: target, valid: 0.25}
objective: {metric: valid-mlogloss, goal: minimize}
limits: {max_trials: 4}
space: {params: {eta: {uniform: [0.1, 0.3]}}}
"""


def test_the_export_is_prepared_once_when_the_first_trial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(BODY)
    prepared: list[int] = []
    shown: list[SweepStatus] = []
    monkeypatch.setattr(sweep_run, "prepare_export", lambda *_: prepared.append(len(shown)))
    run = SweepRun(load(file), tmp_path / "sweep")
    run._publish_status = shown.append
    row = TrialRow("0001", "training", 0, 5, None, None, Shape(1, (("CPU", 1.0),)), 0.0, 1, ())
    for rows in ((), (), (row,), (row,), ()):
        run._show(SweepStatus(rows=rows))
    assert (prepared, len(shown)) == ([2], 5)
