"""A sweep of a script that reads prepared rows and reports by lines: run, resume, refit, and
predict without Ray.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.sweep_commands import call, houses, predicted_without_ray

pytestmark = [pytest.mark.timeout(240)]

SCRIPT = """
import json, os, pickle, sys
from pathlib import Path
import pandas as pd
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, mean_squared_error

kind, alpha = sys.argv[1], float(sys.argv[2])
data, file = Path(os.environ["SWEEPS_DATA_DIR"]), Path(os.environ["SWEEPS_CHECKPOINT_DIR"], "model.pkl")
train, valid = (pd.read_parquet(data / f"{split}.parquet") for split in ("train", "valid"))
step, model = 0, SGDRegressor(alpha=alpha) if kind == "regression" else SGDClassifier(loss="log_loss", alpha=alpha)
if file.exists():
    step, model = pickle.loads(file.read_bytes())
while step < 12:
    step += 1
    more = {} if kind == "regression" else {"classes": sorted(train["label"].unique())}
    model.partial_fit(train.drop(columns="label"), train["label"], **more)
    file.write_bytes(pickle.dumps((step, model)))
    x, y = valid.drop(columns="label"), valid["label"]
    loss = mean_squared_error(y, model.predict(x)) if kind == "regression" else log_loss(y, model.predict_proba(x)[:, 1])
    print(json.dumps({"loss": loss}))
"""
LOAD = """
import pickle
from pathlib import Path


class Model:
    def __init__(self, model):
        self.model = model

    def predict(self, frame):
        return self.model.predict_proba(frame)[:, 1] if hasattr(self.model, "predict_proba") else self.model.predict(frame)


def load(folder):
    return Model(pickle.loads(Path(folder, "model.pkl").read_bytes())[1])
"""
SPACE = """\
trainer: {{command: [python, fit.py, {task}, "{{params.alpha}}"], load: "loads:load"}}
data: {{train: rows.csv, label: label, valid: 0.25, test: 0.2, drop: [town]}}
objective: {{metric: loss, goal: minimize}}
search: {{algorithm: random, seed: 3}}
scheduler: {{name: asha, max_t: 12, grace_period: 3, reduction_factor: 2}}
limits: {{max_trials: 3, max_concurrent_trials: 1}}
space:
  preprocessor: [{{SimpleImputer: {{columns: [area]}}}}, {{StandardScaler: {{columns: [area, rooms]}}}}]
  params: {{alpha: {{loguniform: [1e-5, 1e-2]}}}}
"""


@pytest.mark.parametrize(
    "task",
    [
        pytest.param("binary", marks=pytest.mark.frameworks),
        pytest.param("regression", marks=pytest.mark.frameworks_all),
    ],
)
def test_a_script_from_run_to_predict(tmp_path, task):
    frame = houses(task)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "fit.py").write_text(SCRIPT)
    (tmp_path / "loads.py").write_text(LOAD)
    (tmp_path / "space.yaml").write_text(SPACE.format(task=task))
    result = json.loads(call("run", tmp_path / "space.yaml", "--dir", tmp_path / "runs", "--json"))
    states = result["trials"]
    assert (
        states["failed"] == 0
        and states["completed"] >= 1
        and states["completed"] + states["pruned"] == 3
    )
    more = json.loads(call("resume", result["dir"], "--add-trials", 1, "--json"))
    assert sum(more["trials"].values()) == 4 and more["trials"]["failed"] == 0
    call("export", more["dir"], "--refit", "-o", tmp_path / "refitted")
    for bundle in (Path(more["bundle"]), tmp_path / "refitted"):
        out = predicted_without_ray(bundle, tmp_path)
        if task == "regression":
            assert (
                np.sqrt(((out["prediction"] - frame["label"]) ** 2).mean())
                < 0.8 * frame["label"].std()
            )
        else:
            assert (out["prediction"] == frame["label"]).mean() > 0.75
