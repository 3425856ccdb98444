"""An ensemble of a real sweep: rows of a CSV file, gradient boosting, and an MLflow run of the
sweep.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import sweeps
from sweeps.bundle.manifest import Manifest, weights_of
from sweeps.bundle.selection import Gain
from sweeps.data.load_data import load_splits
from sweeps.space import load
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SPACE = """
name: flowers
trainer: xgboost
data: {train: rows.csv, label: kind, valid: 0.3, test: 0.2}
objective: {metric: valid-mlogloss, goal: minimize}
search: {algorithm: random}
limits: {max_trials: 4}
space:
  preprocessor: {grid: [[], [{StandardScaler: {columns: [a, b]}}]]}
  params: {eta: {uniform: [0.05, 0.4]}, max_depth: {randint: [1, 4]}, \
colsample_bytree: {uniform: [0.3, 1.0]}, num_boost_round: 10}
"""


@pytest.mark.extended
def test_an_ensemble_of_a_sweep_is_scored_exported_registered_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_ray: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    values, kinds = load_iris(return_X_y=True)
    rows = pd.DataFrame(values, columns=list("abcd")).assign(kind=np.array(["x", "y", "z"])[kinds])
    rows.to_csv("rows.csv", index=False)
    (tmp_path / "space.yaml").write_text(SPACE)
    result = sweeps.run("space.yaml", dir="runs")
    done = invoke("export", result.dir, "--ensemble", 4, "--register", "flowers")
    assert done.exit_code == 0, done.output
    bundle = result.dir / "exports" / "ensemble-4"
    assert (
        done.stdout == f"{bundle}\n"
        and "registered this bundle as flowers version 1" in done.stderr
    )
    facts = Manifest.read(bundle).training
    assert result.best is not None
    assert facts["ensemble"]["single"]["trial"] == result.best["trial"]
    assert facts["ensemble"]["single"]["value"] == pytest.approx(result.best["value"], abs=1e-6), (
        "as the trainer has reported it"
    )
    assert facts["ensemble"]["single"]["test"] == pytest.approx(result.best["test"])
    assert (
        facts["value"] <= facts["ensemble"]["single"]["value"]
        and len(facts["ensemble"]["candidates"]) == 4
    )
    splits = load_splits(load("space.yaml", ()).data, 0)
    for name, value in (("valid", facts["value"]), ("test", facts["test"])):
        part = getattr(splits, name).to_pandas()
        predicted = sweeps.load_bundle(bundle).predict(part.drop(columns="kind"))
        assert -np.log(
            predicted.to_numpy()[range(len(part)), 1 + part["kind"]].astype("float64")
        ).mean() == pytest.approx(value, abs=1e-9)
    assert invoke("predict", bundle, "rows.csv").stdout.count("\n") == 151
    again = invoke("export", result.dir, "--ensemble", 4, "--register", "flowers")
    assert (
        again.exit_code == 0
        and "this bundle is already registered as flowers version 1" in again.stderr
    ), again.output
    assert "## Ensembles" in (result.dir / "report.md").read_text()
    assert [
        e["path"] for e in json.loads(invoke("show", result.dir, "--json").output)["ensembles"]
    ] == [str(bundle)]
    again = invoke("export", result.dir, "--ensemble", 2, "--refit")
    assert again.exit_code == 0, again.output
    refitted = Manifest.read(result.dir / "exports" / "ensemble-2-refit")
    assert {member.training["refit"]["rows"] for member in refitted.members} == {120}
    rows.assign(a=0).to_csv("rows.csv", index=False)
    changed = invoke("export", result.dir, "--ensemble", 3, "--refit")
    assert changed.exit_code == 2 and "the data has changed since the sweep began" in changed.stderr


WAVES = """
name: waves
trainer: {{choice: [xgboost, {{as: trees, estimator: "sklearn.ensemble:ExtraTreesRegressor"}}]}}
data: {{train: rows.csv, label: y, {splits}}}
objective: {{metric: valid-rmse, goal: minimize, choose: confirmed}}
search: {{algorithm: random, seed: 1}}
limits: {{max_trials: 8}}
bundle: {{ensemble: 4{train_on}}}
space:
  params:
    xgboost:
      num_boost_round: 40
      eta: {{loguniform: [0.05, 0.3]}}
      max_depth: {{randint: [4, 7]}}
      subsample: 0.4
    trees:
      n_estimators: 6
      max_features: {{uniform: [0.3, 1]}}
"""
IN_A_NEW_PROCESS = """
import sys
sys.modules["ray"] = None
{before}
import mlflow.pyfunc
import pandas as pd
model = mlflow.pyfunc.load_model(sys.argv[1])
print(model.predict(pd.read_csv("rows.csv").drop(columns="y"))["prediction"].tolist())
"""


def waves(folder: Path, splits: str, train_on: str) -> sweeps.SweepResult:
    """Run a sweep over two trainers, whose average is better than each model alone."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.uniform(-3, 3, (400, 4)), columns=list("abcd"))
    noise = rng.normal(size=len(rows))
    label = np.sin(rows["a"]) * 3 + rows["b"] * rows["c"] + 3 * noise
    rows.assign(y=label).to_csv(folder / "rows.csv", index=False)
    (folder / "space.yaml").write_text(WAVES.format(splits=splits, train_on=train_on))
    return sweeps.run(folder / "space.yaml", dir=folder / "runs")


def predicted_by_new_process(bundle: Path, folder: Path, before: str = "") -> Any:
    """Load a bundle and predict the rows in a process without Ray."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS.format(before=before), str(bundle)],
        cwd=folder,
        env=env | {"MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("splits", "train_on", "models"),
    [("valid: 0.3, test: 0.2", ", train_on: all", 1), ("valid: {folds: 3}, test: 0.2", "", 3)],
    ids=["holdout", "folds"],
)
def test_bundle_of_a_sweep_averages_several_trainers(
    splits: str, train_on: str, models: int, tmp_path: Path, clean_ray: Any
) -> None:
    result = waves(tmp_path, splits, train_on)
    assert result.best is not None and result.bundle is not None
    ensemble = result.best["ensemble"]
    manifest = Manifest.read(result.bundle)
    assert weights_of(manifest.members) == ensemble["members"]
    assert len(manifest.members) == models * len(ensemble["members"]) > models
    assert ensemble["gain"] > ensemble["noise"] > 0
    assert "choice" not in result.best, "no trial is confirmed if an average is exported"
    assert ensemble["refitted"] == (len(ensemble["members"]) if train_on else 0)
    assert all(("refit" in member.training) == bool(train_on) for member in manifest.members)
    # The rows of test belong to no model if the models are not trained again.
    frame = pd.read_csv(tmp_path / "rows.csv")
    predicted = sweeps.load_bundle(result.bundle).predict(frame.drop(columns="y"))
    if not train_on:
        test = load_splits(load(tmp_path / "space.yaml").data, 1).test
        assert test is not None
        part = test.to_pandas()
        own = sweeps.load_bundle(result.bundle).predict(part.drop(columns="y"))["prediction"]
        error = float(np.sqrt(((own - part["y"]) ** 2).mean()))
        assert ensemble["test"] == pytest.approx(error) and result.best["test"] is None
    done = predicted_by_new_process(result.bundle, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == predicted["prediction"].tolist()
    shown = invoke("show", result.dir).output
    assert f"average of {len(ensemble['members'])} trials" in shown
    report = (result.dir / "report.md").read_text()
    assert f"averages {len(ensemble['members'])} trials: " in report
    card = (result.bundle / "README.md").read_text()
    assert "rows a second" in card and all(trial in card for trial in ensemble["members"])
    if models == 1:
        missing = "sys.modules['xgboost'] = None\nsys.modules['sklearn'] = None"
        done = predicted_by_new_process(result.bundle, tmp_path, before=missing)
        assert done.returncode != 0
        assert "the bundle was made with" in done.stderr and "xgboost==" in done.stderr


@pytest.mark.slow
def test_an_average_that_is_not_clearly_better_is_not_taken(
    tmp_path: Path, clean_ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.bundle import ensemble

    monkeypatch.setattr(ensemble, "measure_gain", lambda *_, **__: Gain(0.01, 0.02, 0.0))
    result = waves(tmp_path, "valid: 0.3", ", train_on: all")
    assert result.best is not None and "ensemble" not in result.best
    note = "the model is no average: none is clearly better than the best trial"
    assert f"{note} (gain 0.01, noise 0.02)" in result.notes
    assert result.best["choice"]["rule"] == "confirmed"
    assert result.best["refit"]["rows"] == 400
