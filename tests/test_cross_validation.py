"""Cross-validation: `data.valid: {folds: K}`.

Each trial trains once for each fold, and the bundle averages the models of the winner's folds.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sweeps
from sweeps.bundle.manifest import FILE as MANIFEST
from sweeps.core.files.prediction_files import read_predictions
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LOOP = """
import json, pickle, tempfile
from pathlib import Path

import ray.train
from sklearn.linear_model import Ridge
from sweeps import trial


def train(config):
    cur = trial.current()
    train, valid = (ray.train.get_dataset_shard(name).materialize().to_pandas() \
for name in ("train", "valid"))
    x, y = train.drop(columns=cur.label), train[cur.label]
    if ray.train.get_context().get_world_rank() == 0:
        with open(config["log"], "a") as log:
            log.write(json.dumps([cur.trial, len(train), len(valid), \
float(abs(x.mean()).max()), cur.max_t]) + "\\n")
    if config["fails"] and cur.trial == "0000" and sum(1 for _ in open(config["log"])) == 3:
        raise ConnectionError("the third fold fails once")
    model = Ridge(alpha=config["alpha"]).fit(x, y)
    error = float(((model.predict(valid.drop(columns=cur.label)) - valid[cur.label]) ** 2).mean())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pkl").write_bytes(pickle.dumps(model))
        for value in (error + 1, error, error + 2):  # the second step is the best one
            ray.train.report({"mse": value}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def load(folder):
    return pickle.loads(Path(folder, "model.pkl").read_bytes())
"""
SPACE = """
name: folds
trainer: {{loop: "MODULE:train", load: "MODULE:load"}}
data: {{train: "sklearn:diabetes", label: target, valid: {valid}}}
objective: {{metric: mse, goal: minimize}}
search: {{algorithm: random, seed: 3}}
{more}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: {workers}}}
  params: {{alpha: {alpha}, log: "{log}", fails: {fails}}}
"""


def swept(
    folder: Path,
    module: str,
    valid: str = "{folds: 4}",
    more: str = "",
    workers: int = 1,
    fails: str = "false",
    name: str = "a",
    alpha: str = "{grid: [0.1, 10.0]}",
) -> Any:
    (folder / f"{module}.py").write_text(LOOP)
    about = {"valid": valid, "more": more, "workers": workers, "fails": fails, "alpha": alpha}
    text = SPACE.format(**about, log=folder / f"{name}.jsonl").replace("MODULE", module)
    (folder / f"{name}.yaml").write_text(text)
    result = sweeps.run(folder / f"{name}.yaml", dir=folder / "runs")
    return result, [
        json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()
    ]


@pytest.mark.slow
def test_value_is_fold_mean_and_bundle_averages_the_folds(clean_ray: Any, tmp_path: Path) -> None:
    result, log = swept(tmp_path, "folds_mean")
    x, y = load_diabetes(return_X_y=True)
    folds = KFold(4, shuffle=True, random_state=3)
    for trial in (0, 1):
        model = make_pipeline(StandardScaler(), Ridge(alpha=[0.1, 10.0][trial]))
        expected = -cross_val_score(model, x, y, cv=folds, scoring="neg_mean_squared_error").mean()
        shown = json.loads(invoke("show", result.dir, "--trial", str(trial), "--json").stdout)
        assert shown["value"] == pytest.approx(expected, rel=1e-6)
        assert shown["steps"] == 4 and shown["best_step"] == 4
    assert len(log) == 8 and all(train + valid == len(x) for _, train, valid, *_ in log)
    assert all(mean < 1e-6 and max_t is None for *_, mean, max_t in log), (
        "the scaler is fitted on the train rows of each fold"
    )
    best = make_pipeline(StandardScaler(), Ridge(alpha=[0.1, 10.0][int(result.best["trial"])]))
    averaged = np.mean([best.fit(x[i], y[i]).predict(x) for i, _ in folds.split(x)], axis=0)
    rows = pd.DataFrame(x, columns=load_diabetes().feature_names)
    bundle = sweeps.load_bundle(result.bundle)
    np.testing.assert_allclose(bundle.predict(rows)["prediction"], averaged, rtol=1e-6)
    assert bundle.manifest.training["trial"] == result.best["trial"]
    assert "(average of the models of 4 folds; " in invoke("show", result.dir).stdout
    card = (result.bundle / "README.md").read_text()
    assert "the average of the models of 4 folds" in card and "rows a second" in card
    kept = read_predictions(str(result.dir / "trials" / result.best["trial"]))
    assert kept is not None
    for (i, j), predictions in zip(folds.split(x), kept.folds, strict=True):
        np.testing.assert_allclose(predictions, best.fit(x[i], y[i]).predict(x[j]), rtol=1e-6)
    refused = invoke("export", result.dir, "--latest")
    assert (
        refused.exit_code == 2
        and "--latest: does not work with a cross-validation" in refused.stderr
    )
    exported = invoke("export", result.dir, "--trial", "0", "--refit", "-o", tmp_path / "other")
    assert exported.exit_code == 0, exported.stderr
    facts = json.loads((tmp_path / "other" / MANIFEST).read_text())["training"]
    assert facts["refit"]["rows"] == len(x) and facts["refit"]["steps"] == 2
    model = make_pipeline(StandardScaler(), Ridge(alpha=0.1)).fit(x, y)
    refitted = sweeps.load_bundle(tmp_path / "other").predict(rows)["prediction"]
    np.testing.assert_allclose(refitted, model.predict(x), rtol=1e-6)


def test_rolling_folds_train_the_winner_on_all_rows(clean_ray: Any, tmp_path: Path) -> None:
    result, log = swept(tmp_path, "folds_rolling", valid="{rolling: age, folds: 3}")
    assert len(log) == 2 * 3 + 1 and log[-1][1] == 442
    assert result.best["refit"]["rows"] == 442


@pytest.mark.extended
def test_a_trial_that_is_tried_again_keeps_the_folds_that_it_has(
    clean_ray: Any, tmp_path: Path
) -> None:
    more = (
        "limits: {max_failures: 1, retry_on: [ConnectionError], max_concurrent_trials: 1, "
        "max_trials: 2}"
    )
    result, log = swept(tmp_path, "folds_again", more=more, fails="true")
    assert result.trials["completed"] == 2
    assert [entry[0] for entry in log] == ["0000"] * 5 + ["0001"] * 4, (
        "only the third fold ran twice"
    )
    assert [entry[1:4] for entry in log[:5]] == [
        *(entry[1:4] for entry in log[5:7]),
        *[log[7][1:4]] * 2,
        log[8][1:4],
    ]


@pytest.mark.long
@pytest.mark.extended
def test_two_workers_and_a_scheduler_that_stops_after_two_folds(
    clean_ray: Any, tmp_path: Path
) -> None:
    more = (
        "scheduler: {name: asha, max_t: 4, grace_period: 2, reduction_factor: 2}\n"
        "limits: {max_concurrent_trials: 1, max_trials: 8}"
    )
    alpha = "{loguniform: [0.1, 10]}"
    result, log = swept(tmp_path, "folds_two", more=more, workers=2, alpha=alpha)
    assert result.trials["completed"] + result.trials["pruned"] == 8, result.notes
    assert result.trials["pruned"] >= 1
    counts = [sum(entry[0] == f"{trial:04d}" for entry in log) for trial in range(8)]
    assert set(counts) <= {2, 4} and counts.count(2) == result.trials["pruned"]
    assert all(abs(entry[1] * 2 + entry[2] - 442) <= 1 for entry in log if entry[4] is None)


@pytest.mark.slow
def test_a_trial_that_was_stopped_has_the_models_of_its_folds(
    clean_ray: Any, tmp_path: Path
) -> None:
    more = (
        "scheduler: {name: asha, max_t: 4, grace_period: 1, reduction_factor: 2}\n"
        "limits: {max_concurrent_trials: 1, max_trials: 4}"
    )
    result, log = swept(tmp_path, "folds_stopped", more=more)
    folds = Counter(entry[0] for entry in log)
    stopped, count = next(pair for pair in folds.items() if pair[1] < 4)
    exported = invoke("export", result.dir, "--trial", stopped, "-o", tmp_path / "part")
    assert exported.exit_code == 0, exported.stderr
    members = sweeps.load_bundle(tmp_path / "part").manifest.members
    assert [member.fold for member in members] == [*range(1, count + 1)]
