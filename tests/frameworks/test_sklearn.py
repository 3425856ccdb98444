"""The trainer `sklearn` from the space file to the bundle, which predicts in a process that cannot
import Ray.
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
from sweeps.testing.fake_session import small_table
from tests.commands import REPO, command

pytestmark = [pytest.mark.timeout(240)]

MODULE = """
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import PolynomialFeatures


def linear(degree=1):
    return Pipeline([("poly", PolynomialFeatures(degree)), ("clf", SGDClassifier(loss="log_loss"))])


def line():
    return Pipeline([("poly", PolynomialFeatures(2)), ("clf", SGDRegressor())])


class Own(LogisticRegression):
    pass
"""
SPACE = """
trainer: {trainer}
data: {{train: rows.csv, label: y, valid: 0.25, test: 0.1}}
objective: {{metric: {metric}, goal: maximize}}
scheduler: {{name: {scheduler}}}
limits: {{max_trials: {trials}}}
space:
  preprocessor: [StandardScaler]
  params: {params}
"""
PREDICT = """
import sys
sys.modules["ray"] = None  # importing Ray fails
import mlflow.pyfunc, pandas as pd
predicted = mlflow.pyfunc.load_model(sys.argv[1]).predict(pd.read_parquet(sys.argv[1] + "/data/sweep/check.parquet"))
predicted.to_parquet(sys.argv[2])
"""


def swept(
    folder: Path,
    task: str,
    trainer: str,
    metric: str,
    params: str,
    scheduler: str = "none",
    trials: int = 3,
) -> dict:
    """Run a sweep on a small table, and return its result."""
    (folder / "own_estimators.py").write_text(MODULE)
    _, shards = small_table(task, rows=400)
    pd.concat([shard.frame for shard in shards.values()]).to_csv(folder / "rows.csv", index=False)
    text = SPACE.format(
        trainer=trainer, metric=metric, params=params, scheduler=scheduler, trials=trials
    )
    (folder / "space.yaml").write_text(text)
    return json.loads(finished("run", folder / "space.yaml", "--dir", folder / "runs", "--json"))


def finished(*args: object) -> str:
    """Run a command to its end, and return what it prints."""
    process = command(*args)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


def refitted(folder: Path) -> dict:
    """Train the winner again on train and valid, and return what the new bundle says about it."""
    (sweep,) = (folder / "runs").glob("space-*")
    bundle = finished("export", sweep, "--refit", "--output", folder / "refitted").splitlines()[0]
    return sweeps.load_bundle(bundle).manifest.training["refit"]


def predicted_without_ray(bundle: str, folder: Path) -> pd.DataFrame:
    """Predict the check rows of a bundle in a process that has neither Ray nor the user's module
    nor this checkout of sweeps.
    """
    (folder / "own_estimators.py").unlink(missing_ok=True)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    file = folder / "predicted.parquet"
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, bundle, file],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return pd.read_parquet(file)


@pytest.mark.frameworks
def test_an_own_pipeline_grows_under_asha_is_refitted_and_predicts_without_ray(tmp_path):
    estimator, params = (
        '{estimator: "own_estimators:linear"}',
        "{degree: {choice: [1, 2]}, clf__alpha: {loguniform: [1e-5, 1e-1]}}",
    )
    result = swept(
        tmp_path,
        "binary",
        estimator,
        "valid-balanced_accuracy",
        params,
        "asha, max_t: 9, grace_period: 1",
        trials=6,
    )
    assert result["trials"]["failed"] == 0 and result["trials"]["completed"] >= 1
    assert result["best"]["value"] > 0.7 and result["best"]["test"] > 0.5
    more = json.loads(
        finished("resume", Path(result["bundle"]).parent, "--add-trials", 2, "--json")
    )
    assert more["trials"]["failed"] == 0 and sum(more["trials"].values()) == 8
    assert refitted(tmp_path)["rows"] > 300
    bundle = Path(more["bundle"])
    assert not list(bundle.rglob("*.mac")), "signatures belong to the sweep's folder"
    found = predicted_without_ray(str(bundle), tmp_path)
    np.testing.assert_array_equal(
        found["probability_1"], np.load(bundle / "data" / "sweep" / "check.npy")
    )


GRID = [
    (
        "binary",
        '"sklearn.ensemble:RandomForestClassifier"',
        "valid-neg_log_loss",
        "{n_estimators: 20, max_depth: {randint: [1, 6]}}",
    ),
    (
        "multiclass",
        '"sklearn.ensemble:HistGradientBoostingClassifier"',
        "valid-roc_auc_ovr",
        "{max_iter: {randint: [2, 9]}}",
    ),
    (
        "multiclass",
        '{estimator: "own_estimators:Own"}',
        "valid-f1_macro",
        "{C: {loguniform: [0.01, 10]}}",
    ),
    ("binary", '"sklearn.svm:LinearSVC"', "valid-roc_auc", "{C: {loguniform: [0.01, 10]}}"),
    ("regression", '"sklearn.linear_model:Ridge"', "valid-r2", "{alpha: {loguniform: [0.01, 10]}}"),
    (
        "regression",
        '{estimator: "own_estimators:line", steps: 3}',
        "valid-r2",
        "{clf__alpha: {loguniform: [1e-5, 0.1]}}",
    ),
]


@pytest.mark.frameworks_all
@pytest.mark.parametrize(("task", "trainer", "metric", "params"), GRID)
def test_each_kind_of_estimator_is_swept_refitted_and_predicts_without_ray(
    tmp_path, task, trainer, metric, params
):
    result = swept(tmp_path, task, trainer, metric, params)
    assert result["trials"] == {"completed": 3, "pruned": 0, "failed": 0}
    assert result["best"]["test"] is not None, "also the score of a decision function"
    assert refitted(tmp_path)["rows"] > 300
    found = predicted_without_ray(result["bundle"], tmp_path)
    assert len(found) == 32 and found["prediction"].notna().all()


@pytest.mark.frameworks_all
def test_the_space_of_the_repository_runs(tmp_path):
    result = json.loads(
        finished("run", REPO / "search_spaces" / "sklearn.yaml", "--dir", tmp_path, "--json")
    )
    assert result["best"]["value"] > 0.9 and result["trials"]["failed"] == 0
