"""A sweep of each trainer: run, refit, and predict in a process that cannot import Ray."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.space.sections.built_in_trainers import trainer_names
from tests.commands import REPO, invoke

pytestmark = [pytest.mark.timeout(600)]

SPACE = """\
trainer: {trainer}
data: {{train: rows.csv, label: label, valid: 0.25, test: 0.2}}
objective: {{metric: {metric}, goal: minimize}}
search: {{seed: 3}}
scheduler: {{name: asha, max_t: 6, grace_period: 2, reduction_factor: 2}}
limits: {{max_trials: 2, max_concurrent_trials: 1}}
space:
  preprocessor: [{steps}]
  scaling: {{num_workers: {{grid: {workers}}}, resources_per_worker: {{CPU: 1}}}}
  params: {params}
"""
NUMBERS = (
    "{OneHotEncoder: {columns: [town]}}, {SimpleImputer: {columns: [area]}}, "
    "{StandardScaler: {columns: [area, rooms]}}"
)
# For each trainer: its section, its parameters, and whether it trains on two workers.
TRAINERS = {
    "xgboost": ("xgboost", "{eta: {loguniform: [0.1, 0.5]}, subsample: 0.8}", True),
    "lightgbm": (
        "lightgbm",
        "{learning_rate: {loguniform: [0.1, 0.5]}, bagging_fraction: 0.8, bagging_freq: 1}",
        True,
    ),
    "catboost": ("catboost", "{learning_rate: {loguniform: [0.1, 0.5]}, rsm: 0.8}", False),
    "sklearn": (
        '{{estimator: "users:{estimator}"}}',
        "{degree: {choice: [1, 2]}, clf__alpha: {loguniform: [1e-5, 1e-2]}}",
        False,
    ),
    "torch_tabular": ("torch_tabular", "{lr: {loguniform: [0.02, 0.05]}, batch_size: 16}", True),
    "torch": (
        '{{name: torch, model: "networks:Net"}}',
        "{lr: {loguniform: [0.02, 0.05]}, batch_size: 16, epochs: 6}",
        True,
    ),
    "keras": (
        '{{name: keras, model: "keras_models:not_compiled"}}',
        "{learning_rate: {loguniform: [0.02, 0.05]}, batch_size: 16, epochs: 6}",
        True,
    ),
    "lightning": (
        '{{name: lightning, module: "user_modules:Net"}}',
        "{lr: {loguniform: [0.02, 0.05]}, batch_size: 16, max_epochs: 6}",
        True,
    ),
    "transformers": (
        '{{name: transformers, model: "user_models:bert", dataset: "user_models:bins"}}',
        (
            "{learning_rate: {loguniform: [0.01, 0.02]}, per_device_train_batch_size: 8, "
            "num_train_epochs: 6}"
        ),
        True,
    ),
    "command": (
        '{{command: [python, users.py, "{{params.alpha}}"], load: "users:load"}}',
        "{alpha: {loguniform: [1e-5, 1e-2]}}",
        False,
    ),
    "trainable": (
        '{{trainable: "user_trainable:Linear", load: "users:load"}}',
        "{alpha: {loguniform: [1e-5, 1e-2]}}",
        False,
    ),
}
METRICS = {"binary": "valid-logloss", "multiclass": "valid-mlogloss", "regression": "valid-rmse"}
MODULES = ("users", "user_trainable", "user_models", "user_modules", "keras_models")
# Predicts the rows in a file with a bundle, for each line with both on the standard input.
PREDICT = """
import json, sys
sys.modules["ray"] = None
import pandas as pd, sweeps
for line in sys.stdin:
    rows, bundle = json.loads(line)
    sweeps.load_bundle(bundle).predict(pd.read_csv(rows)).to_csv(bundle + ".csv")
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def without_ray() -> Iterator[subprocess.Popen[str]]:
    """Start a process that predicts and cannot import Ray. All tests of this file share it."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREDICT],
        cwd=REPO,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


def predictions(process: subprocess.Popen[str], rows: Path, bundle: str) -> pd.Series:
    """Predict rows with a bundle in a process of `without_ray`."""
    print(json.dumps([str(rows), bundle]), file=process.stdin, flush=True)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "done\n":  # Frameworks print, too.
        assert line, "the process has failed; see its traceback"
    return pd.read_csv(f"{bundle}.csv")["prediction"]


def call(*args: object) -> str:
    """Run a command of sweeps in this process, and return its output."""
    done = invoke(*args)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def houses(task: str) -> pd.DataFrame:
    """Return rows with numbers, missing values and text, and a label."""
    rng = np.random.default_rng(1)
    n = 600
    frame = pd.DataFrame(
        {
            "area": rng.lognormal(3, 0.5, n),
            "rooms": rng.integers(1, 9, n),
            "town": rng.choice(["Lyon", "Nice", "Pau"], n),
        }
    )
    extra = 3.0 * frame["rooms"] + (frame["town"] == "Nice") * 15 + rng.normal(0, 2, n)
    worth = frame["area"] + extra
    frame.loc[::9, "area"] = np.nan
    bounds = {"binary": [35], "multiclass": [28, 42], "regression": []}[task]
    classes = np.array(["low", "middle", "high"])[np.digitize(worth, bounds)]
    return frame.assign(label=worth if task == "regression" else classes)


def sweep(
    trainer: str,
    task: str,
    folder: Path,
    process: subprocess.Popen[str],
    more_trials: bool = False,
) -> None:
    """Run a sweep, refit the best trial, and predict with both bundles.

    With `more_trials`, the sweep is resumed with one more trial before the refit.
    """
    section, params, several = TRAINERS[trainer]
    frame = houses(task)
    frame.to_csv(folder / "rows.csv", index=False)
    for name in MODULES:
        shutil.copy(REPO / "tests" / "frameworks" / f"{name}.py", folder)
    shutil.copy(REPO / "tests" / "networks.py", folder)
    boosting = trainer in ("xgboost", "lightgbm", "catboost")
    text = SPACE.format(
        trainer=section.format(estimator="line" if task == "regression" else "polynomial"),
        metric="loss" if trainer in ("command", "trainable") else METRICS[task],
        steps="Categorizer" if boosting else NUMBERS,
        workers="[1, 2]" if several else "[1]",
        params=params,
    )
    (folder / "space.yaml").write_text(text)
    result = json.loads(call("run", folder / "space.yaml", "--dir", folder / "runs", "--json"))
    assert result["trials"]["failed"] == 0 and sum(result["trials"].values()) == 2
    if more_trials:
        result = json.loads(call("resume", result["dir"], "--add-trials", 1, "--json"))
        assert result["trials"]["failed"] == 0 and sum(result["trials"].values()) == 3
    call("export", result["dir"], "--refit", "-o", folder / "refitted")
    for bundle in (result["bundle"], str(folder / "refitted")):
        predicted = predictions(process, folder / "rows.csv", bundle)
        if task == "regression":
            error = np.sqrt(((predicted - frame["label"]) ** 2).mean())
            assert error < 0.9 * frame["label"].std()
        else:
            assert (predicted == frame["label"]).mean() > 0.6
        packages = Path(bundle, "requirements.txt").read_text()
        assert not packages.startswith("ray") and "\nray" not in packages


def skip_without(trainer: str) -> None:
    extras = ("lightgbm", "catboost", "keras", "lightning", "transformers")
    if trainer in extras and not find_spec(trainer):
        pytest.skip(f"needs {trainer}")


@pytest.mark.frameworks
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_sweep_from_run_to_predict(
    clean_ray: Any, checked_in_this_process: Any, without_ray: Any, tmp_path: Path, trainer: Any
) -> None:
    skip_without(trainer)
    sweep(trainer, "binary", tmp_path, without_ray)


@pytest.mark.frameworks_all
@pytest.mark.parametrize("task", ["multiclass", "regression"])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_sweep_of_another_task(
    clean_ray: Any,
    checked_in_this_process: Any,
    without_ray: Any,
    tmp_path: Path,
    trainer: Any,
    task: str,
) -> None:
    skip_without(trainer)
    if task == "multiclass" and trainer in ("command", "trainable"):
        pytest.skip("the user's model predicts two classes")
    sweep(trainer, task, tmp_path, without_ray, more_trials=True)


@pytest.mark.frameworks_all
@pytest.mark.parametrize("space", ["sklearn", "trainable"])
def test_the_spaces_of_the_repository_run(clean_ray: Any, tmp_path: Path, space: str) -> None:
    file = REPO / "search_spaces" / f"{space}.yaml"
    result = json.loads(call("run", file, "--dir", tmp_path, "--json"))
    assert result["trials"]["failed"] == 0


def test_each_trainer_has_a_sweep() -> None:
    assert set(TRAINERS) == set(trainer_names())
