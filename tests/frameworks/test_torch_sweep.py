"""Sweeps with the trainer `torch` on two workers: run, resume, refit, and predict in processes that
cannot import Ray.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.commands import REPO, command
from tests.networks import digits

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(240)]

IMAGES = """\
name: images
trainer: {name: torch, model: "nets:Attention", loss: "torch.nn:CrossEntropyLoss"}
data: {train: "nets:digits", label: digit, valid: 0.25}
objective: {metric: valid-balanced_accuracy, goal: maximize}
search: {seed: 3}
limits: {max_trials: 2}
space:
  scaling: {num_workers: 2, resources_per_worker: {CPU: 1}}
  params:
    width: {choice: [8, 16]}
    lr: {loguniform: [1e-3, 1e-2]}
    schedule: torch.optim.lr_scheduler:OneCycleLR
    schedule_every: step
    strategy: {choice: [ddp, fsdp]}
    batch_size: 16
    epochs: 5
"""
WITHOUT_RAY = "import sys; sys.modules['ray'] = None; from sweeps.cli import main; main()"


def ended(*args: object) -> str:
    process = command(*args)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-3000:]
    return out


def predicted(bundle: Path, rows: Path) -> pd.DataFrame:
    env = os.environ | {"PYTHONPATH": str(REPO)}
    output = rows.with_name("predicted.csv")
    arguments = ["predict", str(bundle), str(rows), "-o", str(output)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, *arguments], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return pd.read_csv(output)


def test_images_on_two_workers(tmp_path):
    (tmp_path / "space.yaml").write_text(IMAGES)
    shutil.copy(REPO / "tests" / "networks.py", tmp_path / "nets.py")
    result = json.loads(ended("run", tmp_path / "space.yaml", "--dir", tmp_path / "runs", "--json"))
    assert result["trials"]["completed"] == 2 and result["best"]["value"] > 0.8
    folder = Path(result["bundle"]).parent
    again = json.loads(ended("resume", folder, "--add-trials", "1", "--json"))
    assert again["trials"]["completed"] == 3
    ended("export", folder, "--refit", "-o", tmp_path / "refitted")
    frame = digits()
    frame["image"] = [image.tolist() for image in frame["image"]]
    frame.drop(columns="digit").to_parquet(tmp_path / "rows.parquet")
    for bundle in (again["bundle"], tmp_path / "refitted"):
        assert (
            predicted(bundle, tmp_path / "rows.parquet")["prediction"] == frame["digit"]
        ).mean() > 0.85
        packages = {
            line.split("==")[0] for line in (Path(bundle) / "requirements.txt").read_text().split()
        }
        assert "torch" in packages and not {"ray", "xgboost"} & packages
