"""Sweeps with trainers of tables: run, resume, refit, and predict without Ray."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("catboost")

from tests.commands import command
from tests.frameworks.sweep_commands import call, houses, predicted_without_ray

pytestmark = [pytest.mark.timeout(240)]

SPACE = """\
trainer: {trainer}
data: {{train: rows.csv, label: label, valid: 0.25, test: 0.2}}
objective: {{metric: valid-{metric}, goal: minimize}}
search: {{algorithm: random, seed: 3}}
scheduler: {{name: asha, max_t: 12, grace_period: 2, reduction_factor: 2}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
{space}
"""
LIGHTGBM = """\
  preprocessor: [Categorizer]
  scaling: {num_workers: {grid: [1, 2]}, resources_per_worker: {CPU: 1}}
  params: {learning_rate: {loguniform: [0.03, 0.5]}, bagging_fraction: 0.8, bagging_freq: 1, feature_fraction: {uniform: [0.5, 1.0]}}
"""
XGBOOST = """\
  preprocessor: [Categorizer]
  scaling: {num_workers: {grid: [1, 2]}, resources_per_worker: {CPU: 1}}
  params: {eta: {loguniform: [0.03, 0.5]}, max_depth: 3, subsample: {uniform: [0.5, 1.0]}}
"""
TORCH_TABULAR = """\
  preprocessor: [{OneHotEncoder: {columns: [town]}}, {SimpleImputer: {columns: [area]}}, {StandardScaler: {columns: [area, rooms]}}]
  scaling: {num_workers: {grid: [1, 2]}, resources_per_worker: {CPU: 1}}
  params: {lr: {loguniform: [0.01, 0.05]}, width: 16, depth: {choice: [1, 2]}, batch_size: 32}
"""
CATBOOST = """\
  params: {learning_rate: {loguniform: [0.03, 0.5]}, depth: {randint: [2, 5]}, rsm: {uniform: [0.5, 1.0]}}
"""
SPACES = {
    "xgboost": XGBOOST,
    "lightgbm": LIGHTGBM,
    "catboost": CATBOOST,
    "torch_tabular": TORCH_TABULAR,
}
METRICS = {"binary": "logloss", "multiclass": "mlogloss", "regression": "rmse"}


def sweep(trainer: str, task: str, trials: int, tmp_path: Path) -> None:
    """Run a sweep, add a trial, refit the best trial, and predict with both bundles."""
    frame = houses(task)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    file = tmp_path / "space.yaml"
    file.write_text(
        SPACE.format(trainer=trainer, metric=METRICS[task], trials=trials, space=SPACES[trainer])
    )
    result = json.loads(call("run", file, "--dir", tmp_path / "runs", "--json"))
    states = result["trials"]
    assert (
        states["failed"] == 0
        and states["completed"] >= 1
        and states["completed"] + states["pruned"] == trials
    )
    more = json.loads(call("resume", result["dir"], "--add-trials", 1, "--json"))
    assert sum(more["trials"].values()) == trials + 1 and more["trials"]["failed"] == 0
    call("export", more["dir"], "--refit", "-o", tmp_path / "refitted")
    for bundle in (Path(more["bundle"]), tmp_path / "refitted"):
        out = predicted_without_ray(bundle, tmp_path)
        if task == "regression":
            assert (
                np.sqrt(((out["prediction"] - frame["label"]) ** 2).mean())
                < 0.7 * frame["label"].std()
            )
        else:
            assert (out["prediction"] == frame["label"]).mean() > 0.75


@pytest.mark.frameworks
@pytest.mark.parametrize("trainer", SPACES)
def test_a_sweep_from_run_to_predict(tmp_path, trainer):
    sweep(trainer, "binary", 4, tmp_path)


@pytest.mark.frameworks_all
@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("trainer", SPACES)
def test_a_sweep_of_another_task(tmp_path, trainer, task):
    sweep(trainer, task, 4, tmp_path)


@pytest.mark.frameworks
def test_catboost_refuses_several_workers(tmp_path):
    houses("binary").to_csv(tmp_path / "rows.csv", index=False)
    space = "  scaling: {num_workers: 2}\n  params: {depth: 3}\n"
    (tmp_path / "space.yaml").write_text(
        SPACE.format(trainer="catboost", metric="logloss", trials=1, space=space)
    )
    process = command("validate", tmp_path / "space.yaml")
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0 and "num_workers" in out + err and "catboost" in out + err
