"""Sweeps with weights of rows: `data.weight` and `data.class_weight`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_sample_weight

import sweeps
from sweeps.bundle.bundle_model import load_bundle

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(240)]

LOOP = """
import json
import tempfile

import ray.train
from sweeps import trial


def train(config):
    cur = trial.current()
    frames = {name: ray.train.get_dataset_shard(name).materialize().to_pandas() \
for name in ("train", "valid")}
    train, rank = frames["train"], ray.train.get_context().get_world_rank()
    facts = {
        "trial": cur.trial,
        "weight": cur.weight,
        "columns": [list(frame.columns) for frame in (train, frames["valid"], cur.check)],
        "rows": train[["a", "y", cur.weight] if cur.weight else ["a", "y"]].values.tolist(),
    }
    with open(f"{config['log']}-{cur.trial}-{rank}", "a") as log:
        log.write(json.dumps(facts) + "\\n")
    with tempfile.TemporaryDirectory() as folder:
        ray.train.report({"loss": 1.0}, checkpoint=ray.train.Checkpoint.from_directory(folder))
"""
SPACE = """
name: own
trainer: {{loop: "weighted_loop:train"}}
data: {{train: rows.csv, label: y, valid: {valid}, weight: {{grid: [w, null]}}, \
class_weight: {{grid: [balanced, null]}}}}
objective: {{metric: loss, goal: minimize}}
space: {{scaling: {{num_workers: 2}}, params: {{log: "{log}"}}}}
"""
BOOSTED = """
name: boosted
trainer: xgboost
data: {train: rows.csv, label: y, valid: 0.25, test: 0.2, weight: w, class_weight: balanced}
objective: {metric: valid-auc, goal: maximize}
limits: {max_trials: 2}
space: {preprocessor: [StandardScaler], params: {eta: {uniform: [0.1, 0.5]}, num_boost_round: 5}}
"""


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Rows of two classes, in the file `rows.csv` of the working directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a = rng.permutation(200) / 8
    rows = pd.DataFrame(
        {
            "a": a,
            "b": rng.normal(size=200),
            "w": rng.integers(0, 5, 200) / 4,
            "y": np.where(a > 20, "yes", "no"),
        }
    )
    rows.to_csv("rows.csv", index=False)
    (tmp_path / "weighted_loop.py").write_text(LOOP)
    return rows


@pytest.mark.parametrize("valid", ["0.25", pytest.param("{folds: 2}", marks=pytest.mark.long)])
def test_each_rank_gets_the_weights_of_its_rows(
    clean_ray: Any, frame: Any, tmp_path: Path, valid: str
) -> None:
    (tmp_path / "own.yaml").write_text(SPACE.format(valid=valid, log=tmp_path / "log"))
    sweeps.run("own.yaml", dir=tmp_path / "runs")
    of_row = frame.set_index("a")
    seen = []
    for trial in range(4):
        logs = [
            [
                json.loads(line)
                for line in (tmp_path / f"log-{trial:04d}-{rank}").read_text().splitlines()
            ]
            for rank in (0, 1)
        ]
        for ranks in zip(*logs, strict=True):  # one pair for each fold
            rows = pd.DataFrame([row for rank in ranks for row in rank["rows"]])
            weight = ranks[0]["weight"]
            assert ranks[0]["columns"] == [
                ["a", "b", "y", *([weight] if weight else [])],
                ["a", "b", "y"],
                ["a", "b"],
            ]
            codes, own = rows[1].astype(int), of_row.loc[rows[0], "w"].to_numpy()
            balance = compute_sample_weight("balanced", codes)
            expected = {"w": own, "balanced": balance, "both": own * balance, "none": None}
            weights = [
                name
                for name, each in expected.items()
                if (each is None) == (weight is None)
                and (each is None or np.allclose(rows[2], each, rtol=0.02))
            ]
            assert len(weights) == 1
            seen.append(weights[0])
    assert sorted(set(seen)) == ["balanced", "both", "none", "w"] and len(seen) == (
        8 if "folds" in valid else 4
    )


def test_a_bundle_predicts_without_the_column_of_weights(
    clean_ray: Any, frame: Any, tmp_path: Path
) -> None:
    (tmp_path / "boosted.yaml").write_text(BOOSTED)
    result = sweeps.run("boosted.yaml", dir=tmp_path / "runs")
    assert result.bundle is not None
    bundle = load_bundle(result.bundle)
    assert [column.name for column in bundle.manifest.columns] == ["a", "b"]
    without = bundle.predict(frame[["a", "b"]])
    pd.testing.assert_frame_equal(bundle.predict(frame.assign(w="heavy")), without)
