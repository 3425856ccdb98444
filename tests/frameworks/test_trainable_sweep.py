"""The trainer `trainable` from the space file to the bundle, which predicts in a process that
cannot import Ray.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.study import record
from sweeps.testing.fake_session import small_table
from tests.commands import REPO, command

pytestmark = [pytest.mark.timeout(240)]

CLASS = """
import os
from pathlib import Path

import numpy as np
import ray.train
from own_model import logloss
from ray import tune


class Logistic(tune.Trainable):
    def setup(self, config):
        self.log("setup")
        self.frames = [ray.train.get_dataset_shard(name).materialize().to_pandas() for name in ("train", "valid")]
        self.lr, self.weights = config["lr"], np.zeros(5)

    def log(self, method):
        with open(os.environ["CALLS"], "a") as calls:
            print(os.getpid(), method, file=calls)

    def step(self):
        x, y = self.frames[0].drop(columns="y").to_numpy(), self.frames[0]["y"].to_numpy()
        self.weights = self.weights + self.lr * x.T @ (y - 1 / (1 + np.exp(-x @ self.weights))) / len(x)
        return {"valid-logloss": logloss(self.weights, self.frames[1])}

    def save_checkpoint(self, checkpoint_dir):
        return {"weights": self.weights}

    def load_checkpoint(self, checkpoint):
        self.weights = checkpoint["weights"]
"""
MODEL = """
import pickle
from pathlib import Path

import numpy as np


def logloss(weights, frame):
    p = Model(weights).predict(frame.drop(columns="y"))
    return float(-np.log(np.where(frame["y"] == 1, p, 1 - p)).mean())


class Model:
    def __init__(self, weights):
        self.weights = weights

    def predict(self, frame):
        return 1 / (1 + np.exp(-frame.to_numpy() @ self.weights))


def load(folder):
    return Model(pickle.loads(Path(folder, "_dict_checkpoint.pkl").read_bytes())["weights"])
"""
SPACE = """
name: own
trainer: {trainable: "own_class:Logistic", load: "own_model:load"}
data: {train: rows.csv, label: y, valid: 0.25, test: 0.1}
objective: {metric: valid-logloss, goal: minimize}
scheduler: {name: asha, max_t: 9, grace_period: 3, reduction_factor: 3}
limits: {max_trials: 4, max_concurrent_trials: 1}
runtime_env: {env_vars: {CALLS: CALLS_FILE}}
space:
  preprocessor: [StandardScaler]
  params: {lr: {grid: [1.0, 0.1, 0.01, 2.0]}}
"""
PREDICT = """
import sys
sys.modules["ray"] = None  # importing Ray fails
import mlflow.pyfunc, pandas as pd
predicted = mlflow.pyfunc.load_model(sys.argv[1]).predict(pd.read_parquet(sys.argv[1] + "/data/sweep/check.parquet"))
predicted.to_parquet(sys.argv[2])
"""


def finished(*args: object) -> str:
    """Run a command to its end, and return what it prints."""
    process = command(*args)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


@pytest.mark.frameworks
def test_a_class_is_swept_refitted_and_predicts_without_ray(tmp_path):
    calls = tmp_path / "calls"
    (tmp_path / "own_class.py").write_text(CLASS)
    (tmp_path / "own_model.py").write_text(MODEL)
    pd.concat([shard.frame for shard in small_table("binary", rows=400)[1].values()]).to_csv(
        tmp_path / "rows.csv", index=False
    )
    (tmp_path / "own.yaml").write_text(SPACE.replace("CALLS_FILE", str(calls)))
    result = json.loads(
        finished("run", tmp_path / "own.yaml", "--dir", tmp_path / "runs", "--json")
    )
    assert result["trials"]["failed"] == 0 and result["trials"]["pruned"] >= 1
    assert result["best"]["params"] == {"lr": 2.0} and result["best"]["test"] < 0.6
    assert len(calls.read_text().splitlines()) == 4, "each trial has an instance"

    folder = Path(result["dir"])
    refitted = finished(
        "export", folder, "--refit", "--output", tmp_path / "refitted"
    ).splitlines()[0]
    assert sweeps.load_bundle(refitted).manifest.training["refit"]["steps"] == 9

    bundle = Path(result["bundle"])
    assert not [
        *bundle.rglob("*.mac"),
        *bundle.rglob("sweeps_trainable.json"),
        *bundle.rglob("own_class.py"),
    ]
    assert not [
        each for each in sweeps.load_bundle(bundle).manifest.requirements if each.startswith("ray")
    ]
    for file in tmp_path.glob("own_*.py"):
        file.unlink()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    file = tmp_path / "predicted.parquet"
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, bundle, file],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found = pd.read_parquet(file)["probability_1"]
    assert len(found) == 32 and np.isfinite(found).all()


@pytest.mark.frameworks_all
def test_the_space_of_the_repository_runs(tmp_path):
    result = json.loads(
        finished("run", REPO / "search_spaces" / "trainable.yaml", "--dir", tmp_path, "--json")
    )
    assert result["trials"]["failed"] == 0 and result["best"]["value"] < 0.3
    assert any(trial.lineage for trial in record.read(Path(result["dir"])).trials), (
        "a trial continued from another trial"
    )
