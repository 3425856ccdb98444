"""Sweeps of boosters with `params.patience`: gangs, rungs, cross-validation, refits and reruns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from sklearn.datasets import make_classification

import sweeps
from sweeps.bundle.manifest import FILE as MANIFEST
from sweeps.trainers._rounds import reported_rounds
from sweeps.trainers.xgboost import FEW
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

SPACE = """
name: patience
trainer: xgboost
data: {{train: "sklearn:breast_cancer", label: target, valid: {valid}}}
objective: {{metric: valid-logloss, goal: minimize}}
search: {{algorithm: random, seed: 1}}
scheduler: {scheduler}
limits: {{max_trials: 2, max_concurrent_trials: 1}}
bundle: {{train_on: {train_on}}}
space:
  scaling: {{num_workers: {workers}}}
  params: {{eta: {{grid: [0.1, 0.3]}}, patience: 15, subsample: 0.7}}
"""


def swept(folder: Path, overrides: tuple[str, ...] = (), **given: object) -> Any:
    about = {"valid": 0.2, "scheduler": "{name: none}", "workers": 1, "train_on": "train"} | given
    (folder / "patience.yaml").write_text(SPACE.format(**about))
    return sweeps.run(folder / "patience.yaml", dir=folder / "runs", overrides=overrides)


def shown(result: Any, trial: str) -> dict[str, Any]:
    printed = invoke("show", result.dir, "--trial", trial, "--json").stdout
    facts: dict[str, Any] = json.loads(printed)
    return facts


def training_of(bundle: str | Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((Path(bundle) / MANIFEST).read_text())["training"]
    return facts


def test_a_gang_ends_together_and_the_bundle_holds_the_best_round(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    rungs = "{name: asha, max_t: 900, grace_period: 65, reduction_factor: 12}"
    result = swept(tmp_path, scheduler=rungs, workers=2, train_on="all")
    assert result.trials["failed"] == 0, result.notes
    trials = [shown(result, f"{number:04d}") for number in range(2)]
    assert trials[0]["state"] == "COMPLETE" and 65 not in reported_rounds(900)
    for trial in trials:
        assert trial["steps"] == 65 or trial["steps"] - trial["best_step"] >= 15
        assert trial["steps"] < 780, "the second rung"
    best = shown(result, result.best["trial"])
    assert best["best_step"] < best["steps"]
    training = training_of(result.bundle)
    assert training["best_step"] == training["refit"]["steps"] == best["best_step"]


def test_the_model_of_a_gang_predicts_many_rows(clean_ray: Any, tmp_path: Path) -> None:
    """XGBoost makes a matrix of many rows, and connected processes make one together."""
    x, y = make_classification(2 * FEW + 2000, random_state=0)
    pd.DataFrame(x).add_prefix("x").assign(target=y).to_csv(tmp_path / "rows.csv", index=False)
    data = {"train": str(tmp_path / "rows.csv"), "label": "target", "valid": 0.5}
    changes = (
        f"data={json.dumps(data)}",
        "limits={max_trials: 2, trial_timeout: 60}",
        "space.params={num_boost_round: 10, booster: {grid: [gbtree, dart]}}",
    )
    result = swept(tmp_path, workers=2, overrides=changes)
    assert result.trials["completed"] == 2 and "value" in result.best["new_rows"], result.notes


@pytest.mark.extended
def test_a_rerun_of_a_gang_gives_the_numbers_of_the_trial(clean_ray: Any, tmp_path: Path) -> None:
    result = swept(tmp_path, workers=2)
    rerun = invoke("rerun", result.dir, "0")
    assert rerun.exit_code == 0, rerun.stdout + rerun.stderr


@pytest.mark.extended
def test_refit_after_cross_validation_trains_mean_of_best_rounds(
    clean_ray: Any, tmp_path: Path
) -> None:
    asha = "{name: asha, max_t: 3}"
    result = swept(tmp_path, valid="{folds: 3}", scheduler=asha, train_on="all")
    assert result.trials["failed"] == 0, result.notes
    metrics = shown(result, result.best["trial"])
    assert metrics["steps"] == 3
    assert training_of(result.bundle)["refit"]["steps"] > 3, "rounds, not folds"
