"""Sweeps with the trainers `lightning` and `transformers`: run, resume, refit, and predict without
Ray.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("lightning")
pytest.importorskip("transformers")

from tests.frameworks.sweep_commands import call, predicted_without_ray

pytestmark = [pytest.mark.timeout(400)]

SPACE = """\
trainer: {{name: {trainer}, {options}}}
data: {{train: rows.csv, label: label, valid: 0.25, test: 0.2}}
objective: {{metric: {metric}, goal: {goal}}}
search: {{algorithm: random, seed: 3}}
scheduler: {{name: asha, max_t: 6, grace_period: 2, reduction_factor: 2}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  scaling: {{num_workers: {{grid: [1, 2]}}, resources_per_worker: {{CPU: 1}}}}
  params: {params}
"""
OPTIONS = {
    "lightning": (
        "user_modules",
        'module: "my_models:Net"',
        "{lr: {loguniform: [0.02, 0.05]}, batch_size: 32, max_epochs: 6}",
    ),
    "transformers": (
        "user_models",
        'model: "my_models:bert", dataset: "my_models:bins"',
        (
            "{learning_rate: {loguniform: [0.005, 0.02]}, per_device_train_batch_size: 16, "
            "num_train_epochs: 6}"
        ),
    ),
}
METRICS = {
    "binary": ("valid-logloss", "minimize"),
    "multiclass": ("valid-f1_macro", "maximize"),
    "regression": ("valid-rmse", "minimize"),
}


def rows(task: str) -> pd.DataFrame:
    """Return rows of five numbers."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 5))
    signal = x[:, 0] - 2 * x[:, 1] + rng.normal(0, 0.2, 600)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(5)])
    bounds = {"binary": [0.0], "multiclass": [-1.0, 1.0], "regression": []}[task]
    return frame.assign(
        label=1000 + 50 * signal
        if task == "regression"
        else np.array(["a", "b", "c"])[np.digitize(signal, bounds)]
    )


def sweep(trainer: str, task: str, tmp_path: Path) -> None:
    """Run a sweep, add a trial, refit the best trial, and predict with both bundles."""
    frame = rows(task)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    module, options, params = OPTIONS[trainer]
    shutil.copy(Path(__file__).with_name(f"{module}.py"), tmp_path / "my_models.py")
    metric, goal = METRICS[task]
    file = tmp_path / "space.yaml"
    file.write_text(
        SPACE.format(
            trainer=trainer, options=options, metric=metric, goal=goal, trials=2, params=params
        )
    )
    result = json.loads(call("run", file, "--dir", tmp_path / "runs", "--json"))
    states = result["trials"]
    assert (
        states["failed"] == 0
        and states["completed"] >= 1
        and states["completed"] + states["pruned"] == 2
    )
    assert result["best"]["test"] is not None
    more = json.loads(call("resume", result["dir"], "--add-trials", 1, "--json"))
    assert sum(more["trials"].values()) == 3 and more["trials"]["failed"] == 0
    call("export", more["dir"], "--refit", "-o", tmp_path / "refitted")
    for bundle in (Path(more["bundle"]), tmp_path / "refitted"):
        out = predicted_without_ray(bundle, tmp_path)
        if task == "regression":
            assert (
                np.sqrt(((out["prediction"] - frame["label"]) ** 2).mean())
                < 0.9 * frame["label"].std()
            )
        else:
            assert (out["prediction"] == frame["label"]).mean() > 0.6


@pytest.mark.frameworks
@pytest.mark.parametrize("trainer", OPTIONS)
def test_a_sweep_from_run_to_predict(tmp_path, trainer):
    sweep(trainer, "binary", tmp_path)


@pytest.mark.frameworks_all
@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("trainer", OPTIONS)
def test_a_sweep_of_another_task(tmp_path, trainer, task):
    sweep(trainer, task, tmp_path)
