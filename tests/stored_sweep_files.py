"""Spaces, machines and files of the tests of sweeps in a store."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
from sklearn import datasets

from sweeps.study.record_reader import read
from tests.commands import space_of
from tests.s3 import KEY, SECRET


def machine(tmp_path: Path, name: str, monkeypatch: Any) -> Path:
    """Let the next commands run in a working directory and a home folder of their own, as on
    another machine.
    """
    here = tmp_path / name
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/mlflow.db")
    return here


def space_with_stored_data(tmp_path: Path, bucket: Any, loop: str, **how: Any) -> Path:
    frame = datasets.load_iris(as_frame=True).frame
    frame.to_parquet(tmp_path / "iris.parquet")
    bucket.put("rows/iris.parquet", tmp_path / "iris.parquet")
    file = space_of(tmp_path, loop, **how)
    file.write_text(file.read_text().replace('"sklearn:iris"', '"s3://bucket/rows/iris.parquet"'))
    (tmp_path / "iris.parquet").unlink()
    return file


def leaks(*places: Path) -> list[str]:
    """Return the files that contain a credential."""
    places_of_secrets = []
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        content = path.read_bytes()
        places_of_secrets += [str(path) for secret in (KEY, SECRET) if secret.encode() in content]
    return places_of_secrets


def end(process: Any, folder: Path) -> None:
    """Kill a driver and its Ray, as the loss of its machine does."""
    rays = json.loads((folder / "ray.json").read_text())["pids"]
    process.kill()
    process.wait(30)
    killed = []
    for pid in map(int, rays):
        with contextlib.suppress(psutil.NoSuchProcess):
            ray = psutil.Process(pid)
            killed += [ray, *ray.children(recursive=True)]
    for one in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(killed, 20)


def checkpoints(bucket: Any, name: str) -> dict[str, set[str]]:
    """Return the names of the checkpoints of each trial in the bucket."""
    names_of_trial: dict[str, set[str]] = {}
    for key in bucket.files():
        if key.startswith(f"sweeps/{name}/trials/") and "/checkpoint_" in key:
            trial, checkpoint = key.split("/")[3:5]
            names_of_trial.setdefault(trial, set()).add(checkpoint)
    return names_of_trial


LOOP = """\
import os
import tempfile
from pathlib import Path

import ray.train


def train_func(config):
    rank, parts = ray.train.get_context().get_world_rank(), {}
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            parts = {path.name: path.read_text() for path in Path(folder).glob("rank-*")}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, f"rank-{rank}").write_text("sees it" \
if list(Path(config["driver"]).iterdir()) else "does not see it")
        now = {"loss": config["x"], "parts": len(parts), \
"blind": int("does not see it" in parts.values())}
        ray.train.report(now, checkpoint=ray.train.Checkpoint.from_directory(folder))
    if not parts and rank == 1:
        ray.train.report(now)
        os._exit(1)
    ray.train.report(now)
"""


CLUSTER = """\
name: spread
trainer: {{loop: "mine:train_func", backend: none}}
data: {{train: "s3://bucket/rows/iris.parquet", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 1, max_failures: 2}}
space:
  scaling: {{num_workers: 2}}
  params: {{x: 0.5, driver: "{driver}"}}
"""


def reports(folder: Path) -> list[dict[str, float]]:
    record = read(folder)
    assert record is not None
    return [report.metrics for report in record.trials[0].own_reports]


FOREST = """\
name: forest
trainer: "sklearn.ensemble:RandomForestClassifier"
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: valid-logloss, goal: minimize}
checkpoints: {per_trial: 2}
limits: {max_trials: 2, max_concurrent_trials: 1}
space:
  preprocessor: ["sklearn.preprocessing:StandardScaler"]
  params: {n_estimators: 4, max_depth: {grid: [1, 3]}}
"""


def latest_checkpoint(folder: Path) -> str | None:
    """Return the name of the latest checkpoint that the study has for the first trial."""
    study = read(folder)
    saved = study.trials[0].checkpoint if study is not None and study.trials else None
    return None if saved is None else saved.name
