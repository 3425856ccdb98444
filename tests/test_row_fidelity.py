"""Rows as fidelity: with `scheduler: {resource: data.rows}`, a trial trains on a part of the train
rows first, and again on more rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.bundle.manifest import FILE as MANIFEST
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

LOOP = """
import json, pickle, tempfile
from pathlib import Path

import numpy as np
import ray.train
from sklearn.neighbors import KNeighborsClassifier
from sweeps import trial


def train(config):
    cur = trial.current()
    train, valid = (ray.train.get_dataset_shard(name).materialize().to_pandas() \
for name in ("train", "valid"))
    x, y = train.drop(columns=cur.label), train[cur.label]
    ranks = ray.train.get_context().get_world_size()
    with open(config["log"], "a") as log:
        ids = sorted(round(v, 6) for v in x["number"])
        log.write(json.dumps([cur.trial, ids, len(valid), cur.train_share, \
cur.max_t, int(y.nunique()), ranks]) + "\\n")
    if config["fails"] and cur.trial == "0000" and sum(1 for _ in open(config["log"])) == 2:
        raise ConnectionError("the second run fails once")
    model = KNeighborsClassifier(min(config["k"], len(x))).fit(x.to_numpy(), y)
    accuracy = float((model.predict(valid.drop(columns=cur.label).to_numpy()) \
== valid[cur.label]).mean())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pkl").write_bytes(pickle.dumps(model))
        cur.note_checkpoint(folder, 2)
        for value in (accuracy - 1, accuracy, accuracy - 2):  # the second step is the best one
            ray.train.report({"accuracy": value}, \
checkpoint=ray.train.Checkpoint.from_directory(folder))


class Model:
    def __init__(self, neighbors):
        self.neighbors = neighbors

    def predict(self, frame):
        return self.neighbors.predict(frame.to_numpy())


def load(folder):
    return Model(pickle.loads(Path(folder, "model.pkl").read_bytes()))
"""
SPACE = """
name: rows
trainer: {{loop: "MODULE:train", load: "MODULE:load"}}
data: {{train: {table}, label: kind, valid: 0.2}}
objective: {{metric: accuracy, goal: maximize}}
search: {{algorithm: random, seed: 3}}
scheduler: {{name: asha, resource: data.rows, max_t: 9}}
limits: {{max_trials: 4, max_concurrent_trials: 1, max_failures: 1, retry_on: [ConnectionError]}}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: {workers}}}
  params: {{k: {{grid: [1, 100, 200, 3]}}, log: "{log}", fails: {fails}}}
"""


def table(folder: Path) -> Path:
    """Write a table of 450 rows with the classes a, b and c, in the shares 8 : 1 : 1."""
    rng = np.random.default_rng(0)
    kind = rng.permutation(np.repeat(["a", "b", "c"], [360, 45, 45]))
    x = rng.normal(size=450) + 3 * (kind == "b") - 3 * (kind == "c")
    pd.DataFrame({"number": np.arange(450) / 1e3, "x": x, "kind": kind}).to_csv(
        folder / "table.csv", index=False
    )
    return folder / "table.csv"


def swept(folder: Path, module: str, workers: int = 1, fails: str = "false") -> Any:
    (folder / f"{module}.py").write_text(LOOP)
    text = SPACE.format(
        table=table(folder), workers=workers, fails=fails, log=folder / "runs.jsonl"
    ).replace("MODULE", module)
    (folder / "space.yaml").write_text(text)
    result = sweeps.run(folder / "space.yaml", dir=folder / "runs")
    return result, [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_trials_train_again_on_more_rows_and_the_winner_has_all_of_them(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    result, log = swept(tmp_path, "rows_own", fails="true")
    assert result.trials == {"completed": 2, "pruned": 2, "failed": 0}, result.notes
    assert result.fits == 1, "the preprocessor is fitted once"
    first = [entry for entry in log if entry[0] == "0000"]
    assert [(len(ids), round(share, 3)) for _, ids, _, share, *_ in first] == [
        (40, 0.111),
        (120, 0.333),
        (120, 0.333),
        (360, 1.0),
    ]
    assert set(first[0][1]) < set(first[1][1]) < set(first[3][1]) and first[1][1] == first[2][1], (
        "only the second run is made again"
    )
    assert abs(np.mean(first[3][1])) < 1e-6 < abs(np.mean(first[0][1])), (
        "the scaler is fitted on all train rows"
    )
    assert all((valid, max_t, classes) == (90, None, 3) for *_, valid, _, max_t, classes, _ in log)
    assert {len(entry[1]) for entry in log if entry[0] in ("0001", "0002")} == {40}, (
        "the others are stopped at the first rung"
    )
    shown = json.loads(invoke("show", result.dir, "--trial", result.best["trial"], "--json").stdout)
    assert shown["steps"] == shown["best_step"] == 9
    assert json.loads((result.bundle / MANIFEST).read_text())["training"]["best_step"] == 9
    rows = pd.read_csv(tmp_path / "table.csv").drop(columns="kind")
    assert len(sweeps.load_bundle(result.bundle).predict(rows)) == 450
    rerun = invoke("rerun", result.dir, "0001")
    assert rerun.exit_code == 0, rerun.output
    for _ in range(2):  # the second time, the same bundle is registered again
        exported = invoke("export", result.dir, "--refit", "--register", "rows")
        assert exported.exit_code == 0, exported.stderr
    last = json.loads((tmp_path / "runs.jsonl").read_text().splitlines()[-1])
    assert (len(last[1]), last[3], last[4]) == (450, 1.0, 2), (
        "a refit trains once on all rows, to the loop's best step"
    )


@pytest.mark.long
@pytest.mark.extended
def test_each_rank_has_its_part_of_the_rows_of_a_step(clean_ray: Any, tmp_path: Path) -> None:
    result, log = swept(tmp_path, "rows_two", workers=2)
    assert result.trials["failed"] == 0 and result.trials["completed"] >= 1, result.notes
    first = [entry for entry in log if entry[0] == "0000"]
    assert sorted(len(ids) for _, ids, *_ in first) == [20, 20, 60, 60, 180, 180]
    assert all(ranks == 2 for *_, ranks in log)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trainer", "metric", "params"),
    [
        (
            "xgboost",
            "valid-mlogloss",
            "{num_boost_round: 5, eta: {loguniform: [0.01, 1]}}",
        ),
        (
            '{estimator: "sklearn.tree:DecisionTreeClassifier"}',
            "valid-mlogloss",
            "{max_depth: {randint: [1, 9]}}",
        ),
    ],
)
def test_built_in_trainers_train_again(
    clean_ray: Any, tmp_path: Path, trainer: str, metric: str, params: str
) -> None:
    (tmp_path / "space.yaml").write_text(
        f"name: s\ntrainer: {trainer}\ndata: {{train: {table(tmp_path)}, label: kind, valid: "
        f"0.2}}\n"
        f"objective: {{metric: {metric}, goal: minimize}}\n"
        f"limits: {{max_trials: 5, max_concurrent_trials: 1}}\n"
        f"scheduler: {{name: hyperband, resource: data.rows, max_t: 9}}\n"
        f"space: {{params: {params}}}\n"
    )
    result = sweeps.run(tmp_path / "space.yaml", dir=tmp_path / "runs")
    assert result.trials["failed"] == 0 and result.trials["completed"] >= 1, result.notes
    assert result.bundle is not None, result.notes
    rows = pd.read_csv(tmp_path / "table.csv").drop(columns="kind")
    assert len(sweeps.load_bundle(result.bundle).predict(rows)) == 450


def test_a_first_part_that_is_too_small_is_refused_before_the_first_trial(
    clean_ray: Any, tmp_path: Path
) -> None:
    (tmp_path / "space.yaml").write_text(
        f"name: s\ntrainer: xgboost\ndata: {{train: {table(tmp_path)}, label: kind, valid: 0.2}}\n"
        "objective: {metric: valid-mlogloss, goal: minimize}\nlimits: {max_trials: 5}\n"
        "scheduler: {name: asha, resource: data.rows, max_t: 243}\n"
        "space: {params: {num_boost_round: 5, eta: {loguniform: [0.01, 1]}}}\n"
    )
    refused = invoke("run", tmp_path / "space.yaml", "--dir", tmp_path / "runs")
    assert refused.exit_code == 2
    assert (
        "space.yaml:6:1: scheduler.grace_period: step 1 of 243 has only 2 of the 360 train rows, "
        "but needs at least 3" in refused.stderr
    )
