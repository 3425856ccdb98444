"""A sweep that learns from an earlier one, from the space file to MLflow and the report, and
resumes after the earlier one is deleted.
"""

from __future__ import annotations

import json
import shutil

import pytest

import sweeps
from sweeps.study import record
from tests.commands import invoke, space_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_a_sweep_learns_from_an_earlier_one_and_resumes_without_it(clean_ray, tmp_path):
    from mlflow.tracking import MlflowClient

    root = tmp_path / "runs"
    first = sweeps.run(
        space_of(tmp_path, "plain", limits="max_trials: 4, max_concurrent_trials: 1"), dir=root
    )
    file = space_of(
        tmp_path,
        "plain",
        limits="max_trials: 3, max_concurrent_trials: 1",
        x="{uniform: [0.0, 2.0]}",
    )
    messages = []
    result = sweeps.run(
        file,
        dir=root,
        overrides=("search.from=[latest]",),
        on_progress=lambda s: messages.extend(s.messages),
    )
    name = first.dir.name
    text = f"learns from 4 of 4 configurations of {name}"
    assert text in messages and text in result.notes
    assert f"note: {text}\n" in invoke("show", result.dir).stdout
    assert (
        text in (result.dir / "report.md").read_text()
        and text in (result.dir / "report.html").read_text()
    )
    assert json.loads((result.dir / "origin.json").read_text())["learned_from"] == [
        text.removeprefix("learns from ")
    ]
    run = MlflowClient(result.mlflow["tracking_uri"]).get_run(result.mlflow["parent_run"])
    assert run.data.tags["sweeps.learned_from"] == text.removeprefix("learns from ")
    earlier, study = record.read(first.dir), record.read(result.dir)
    assert study.trials[1].keys == earlier.best.keys, (
        "after the first trial, the sweep tries the best configuration"
    )

    shutil.rmtree(first.dir)
    again = sweeps.resume(result.dir, add_trials=2)
    assert again.trials["completed"] == 5 and text in again.notes
