"""A sweep that learns from an earlier one, from the space file to MLflow and the report, and
resumes after the earlier one is deleted.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import save_space
from sweeps.study import record_reader
from sweeps.study.events import TrialReported
from tests.commands import invoke, space_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]


def recorded(space_file: Path, root: Path) -> Path:
    """Write the folder of a sweep in which the loss of each of the four trials is its `x`."""
    folder = root / "own-20260102-120000"
    folder.mkdir(parents=True)
    space = sweeps.load(space_file)
    save_space(folder, space, 1000.0)
    loop = SearchLoop.open(folder, space)
    while (trial := loop.ask()) is not None:
        reports = (Report(1, {"loss": trial.params["x"]}, 1.0),)
        loop.store.append(TrialReported(1.0, trial.number, reports, seconds=1.0))
        loop.store.end(trial.number, State.COMPLETE)
    return folder


def test_a_sweep_learns_from_an_earlier_one_and_resumes_without_it(
    clean_ray: Any, tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    root = tmp_path / "runs"
    earlier_folder = recorded(space_of(tmp_path, "plain", data=False), root)
    file = space_of(
        tmp_path,
        "plain",
        limits="max_trials: 2, max_concurrent_trials: 1",
        x="{uniform: [0.0, 2.0]}",
        data=False,
    )
    messages: list[str] = []
    result = sweeps.run(
        file,
        dir=root,
        overrides=("search.from=[latest]",),
        on_progress=lambda s: messages.extend(s.messages),
    )
    text = f"learns from 4 of 4 configurations of {earlier_folder.name}"
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
    earlier, study = record_reader.read(earlier_folder), record_reader.read(result.dir)
    assert earlier is not None and earlier.best is not None and study is not None
    assert study.trials[1].keys == earlier.best.keys, (
        "after the first trial, the sweep tries the best configuration"
    )

    shutil.rmtree(earlier_folder)
    again = sweeps.resume(result.dir, add_trials=1)
    assert again.trials["completed"] == 3 and text in again.notes
