"""Sweeps with several label columns, from the space file to the predictions of the bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.bundle.bundle_model import load_bundle

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(240)]

LOOP = """
import json
import tempfile
from pathlib import Path

import numpy as np
import ray.train
from sweeps import trial


def train(config):
    cur = trial.current()
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    x, y = frame.drop(columns=cur.label).to_numpy(), frame[cur.label].to_numpy()
    weights = np.linalg.lstsq(x, y, rcond=None)[0]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.json").write_text(json.dumps(weights.tolist()))
        cur.note_checkpoint(folder, 1, Model(folder).predict(cur.check))
        facts = {"loss": float(((x @ weights - y) ** 2).mean()), "columns": len(cur.label), \
"task": float(cur.task == "multioutput")}
        ray.train.report(facts, checkpoint=ray.train.Checkpoint.from_directory(folder))


class Model:
    def __init__(self, folder):
        self.weights = np.array(json.loads(Path(folder, "model.json").read_text()))

    def predict(self, frame):
        return (frame.to_numpy()[:, :, None] * self.weights).sum(axis=1)
"""
SPACE = """
name: several
trainer: {trainer}
data: {{train: rows.csv, label: {label}, valid: 0.25, test: 0.2}}
objective: {{metric: {metric}, goal: minimize}}
limits: {{max_trials: 2}}
space: {{preprocessor: [StandardScaler], params: {params}}}
"""
RUNS = {
    "xgboost": (
        "xgboost",
        "[u, v]",
        "valid-rmse",
        "{eta: {uniform: [0.1, 0.5]}, num_boost_round: 5}",
    ),
    "sklearn": (
        '{estimator: "sklearn.ensemble:RandomForestClassifier"}',
        "[p, q]",
        "valid-logloss",
        "{max_depth: {randint: [2, 6]}, n_estimators: 5}",
    ),
    "torch": (
        '{name: torch, model: "torch.nn:Linear"}',
        "[p, q]",
        "valid-logloss",
        "{lr: {loguniform: [0.01, 0.1]}, epochs: 3}",
    ),
    "own": (
        '{loop: "several_loop:train", load: "several_loop:Model"}',
        "[u, v]",
        "loss",
        "{unused: {uniform: [0, 1]}}",
    ),
}


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Rows with two label columns of numbers and two of 0 and 1, in the file `rows.csv` of the
    working directory.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    rows = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "u": x[:, 0] - x[:, 1], "v": 3 * x[:, 1]})
    rows = rows.assign(p=(rows["u"] > 0).astype(int), q=rows["v"] > 1)
    (tmp_path / "several_loop.py").write_text(LOOP)
    return rows


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.long] * (n in ("sklearn", "torch"))) for n in RUNS],
)
def test_a_sweep_predicts_each_label(clean_ray: Any, frame: Any, tmp_path: Path, name: Any) -> None:
    trainer, label, metric, params = RUNS[name]
    names = label.strip("[]").split(", ")
    frame[["a", "b", *names]].to_csv("rows.csv", index=False)
    (tmp_path / "several.yaml").write_text(
        SPACE.format(trainer=trainer, label=label, metric=metric, params=params)
    )
    result = sweeps.run("several.yaml", dir=tmp_path / "runs")
    assert result.best is not None and result.bundle is not None
    bundle = load_bundle(result.bundle)
    several = "u" in names
    assert bundle.manifest.checked and bundle.manifest.label == names
    assert bundle.manifest.task == ("multioutput" if several else "multilabel")
    predicted = bundle.predict(frame)
    expected = [f"prediction_{each}" for each in names] + (
        [] if several else [f"probability_{each}" for each in names]
    )
    assert list(predicted) == expected and len(bundle.predict(frame.head(0))) == 0
    if several:
        assert all(
            np.corrcoef(predicted[f"prediction_{each}"], frame[each])[0, 1] > 0.8 for each in names
        )
    else:
        assert all(
            (predicted[f"prediction_{each}"] == frame[each].astype(int)).mean() > 0.6
            for each in names
        )
    if name != "own":
        assert result.best["test"] is not None
    facts = json.loads((result.dir / "prepared" / "facts.json").read_text())
    assert facts["label"] == names and facts["features"] == ["a", "b"]
