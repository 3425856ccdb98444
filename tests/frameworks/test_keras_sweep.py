"""A sweep with the trainer `keras` on two workers: run, resume, refit, and predict in processes that cannot import Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from tests.commands import REPO, command

pytestmark = pytest.mark.timeout(240)

SPACE = """\
name: keras-two
trainer: {{name: keras, model: "nets:compiled", framework: {framework}}}
data: {{train: "sklearn:breast_cancer", label: target, valid: 0.25}}
objective: {{metric: valid-AUC, goal: maximize}}
search: {{seed: 3}}
limits: {{max_trials: 2}}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: 2, resources_per_worker: {{CPU: 1}}}}
  params: {{units: {{choice: [8, 16]}}, learning_rate: {{loguniform: [1e-3, 1e-1]}}, epochs: 3, batch_size: 64}}
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
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, "predict", str(bundle), str(rows), "-o", str(output)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return pd.read_csv(output)


@pytest.mark.parametrize(
    "framework",
    [pytest.param("torch", marks=pytest.mark.frameworks), pytest.param("tensorflow", marks=pytest.mark.frameworks_all)],
)
def test_a_sweep_on_two_workers(tmp_path, framework):
    if not find_spec("keras") or not find_spec(framework):
        pytest.skip(f"needs keras and {framework}")
    from sklearn.datasets import load_breast_cancer

    (tmp_path / "space.yaml").write_text(SPACE.format(framework=framework))
    shutil.copy(REPO / "tests" / "frameworks" / "keras_models.py", tmp_path / "nets.py")
    runs = ("--dir", tmp_path / "runs")
    result = json.loads(ended("run", tmp_path / "space.yaml", *runs, "--json"))
    assert result["trials"]["completed"] == 2 and result["best"]["value"] > 0.9
    again = json.loads(ended("resume", "latest", *runs, "--add-trials", "1", "--json"))
    assert again["trials"]["completed"] == 3
    ended("export", "latest", *runs, "--refit", "-o", tmp_path / "refitted")
    data = load_breast_cancer(as_frame=True)
    rows = tmp_path / "rows.csv"
    data.data.to_csv(rows, index=False)
    for bundle in (again["bundle"], tmp_path / "refitted"):
        assert (predicted(bundle, rows)["prediction"] == data.target).mean() > 0.85
        packages = {line.split("==")[0].replace("_", "-") for line in (Path(bundle) / "requirements.txt").read_text().split()}
        assert packages & {"torch", "tensorflow-cpu", "tensorflow"} == {"torch"} if framework == "torch" else "torch" not in packages
        assert "keras" in packages and "ray" not in packages
