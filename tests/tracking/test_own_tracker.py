"""The tracker of docs/how-to/own-tracker.md works as it stands there, and a sweep has several
trackers at once.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sweeps
from tests.commands import space_of

REPO = Path(__file__).parents[2]
PAGE = REPO / "docs" / "how-to" / "own-tracker.md"


def blocks() -> dict[str, str]:
    """The code blocks of the page whose first line names a file, by that name."""
    return dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", PAGE.read_text(), re.S))


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A folder with the files of the page, from which its module can be imported."""
    folder = tmp_path / "example"
    folder.mkdir()
    for title, code in blocks().items():
        (folder / title).write_text(code)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    yield folder
    sys.modules.pop("csv_tracker", None)


def rows_in(file: Path) -> dict[str, dict[str, str]]:
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len({row["trial"] for row in rows}), "a trial has one row"
    return {row["trial"]: row for row in rows}


@pytest.mark.timeout(120)
def test_the_example_passes_the_suite(example: Any) -> None:
    env = {**os.environ, "PYTHONPATH": f"{REPO}{os.pathsep}{example}"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_csv_tracker.py",
    ]
    done = subprocess.run(command, cwd=example, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "10 passed" in done.stdout, done.stdout + done.stderr


BROKEN = """\
class Broken:
    def handle(self, event):
        if type(event).__name__ == "TrialEnded":
            raise RuntimeError("no such table")
    def close(self): pass
"""


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_a_sweep_has_several_trackers_and_one_that_fails_harms_none(
    clean_ray: Any, example: Any, tmp_path: Path
) -> None:
    file = space_of(tmp_path, "plain", limits="max_trials: 2", data=False)
    (tmp_path / "broken_tracker.py").write_text(BROKEN)
    (tmp_path / "csv_tracker.py").write_text((example / "csv_tracker.py").read_text())
    own = blocks()["space.yaml"].partition("[mlflow, ")[2].rstrip("]\n")
    text = file.read_text() + f'trackers: [jsonl, tensorboard, "broken_tracker:Broken", {own}]\n'
    file.write_text(text)
    result = sweeps.run(file, dir=tmp_path / "runs")
    assert result.mlflow == {} and sweeps.resume(result.dir).mlflow == {}
    (broken,) = [note for note in result.notes if "broken_tracker:Broken" in note]
    assert "failed at TrialEnded of trial 000" in broken and "RuntimeError: no such table" in broken
    assert any(note.startswith("MLflow has no runs of this sweep") for note in result.notes)
    assert json.loads((result.dir / "result.json").read_text())["notes"] == list(result.notes)
    lines = [json.loads(line) for line in (result.dir / "events.jsonl").read_text().splitlines()]
    ended = {line["trial"]: line["value"] for line in lines if line["type"] == "TrialEnded"}
    assert (
        len(ended) == 2 and lines[0]["type"] == "SweepStarted" and lines[-1]["type"] == "SweepEnded"
    )
    rows = rows_in(result.dir / "results.csv")
    assert {trial: float(row["value"]) for trial, row in rows.items()} == ended
    assert sorted(run.name for run in (result.dir / "tensorboard").iterdir()) == sorted(ended)
    assert not (tmp_path / "runs" / "mlflow.db").exists() and not list(
        result.dir.glob("trials/*/mlflow.json")
    )
