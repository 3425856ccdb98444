"""An ensemble of a real sweep: rows of a CSV file, gradient boosting, and an MLflow run of the
sweep.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import sweeps
from sweeps.bundle.manifest import Manifest
from sweeps.data.load_data import load_splits
from sweeps.space import load
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(240)]

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
    rows.assign(a=0).to_csv("rows.csv", index=False)
    changed = invoke("export", result.dir, "--ensemble", 2)
    assert changed.exit_code == 2 and "the data has changed since the sweep began" in changed.stderr
