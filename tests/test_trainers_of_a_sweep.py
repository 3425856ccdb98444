"""A whole sweep with several trainers, one of which always fails."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.bundle.manifest import Manifest
from sweeps.core.trial import State
from sweeps.execution.worker import trial_logs
from sweeps.study import record_reader
from tests.commands import invoke

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SPACE = """
name: several
trainer:
  grid:
    - xgboost
    - {as: trees, estimator: "sklearn.ensemble:ExtraTreesClassifier"}
    - {as: broken, loop: "tests.user_loops:broken"}
data: {train: rows.csv, label: kind, valid: 0.3}
objective: {metric: valid-logloss, goal: minimize}
search: {algorithm: random}
limits: {max_trials: 6, max_concurrent_trials: 2}
trackers: [mlflow, jsonl]
space:
  preprocessor:
    - {choice: [Categorizer], when: {trainer: xgboost}}
    - {choice: [OneHotEncoder], when: {trainer: [trees, broken]}}
  params:
    xgboost: {eta: {uniform: [0.1, 0.4]}, num_boost_round: 8}
    trees: {max_features: {uniform: [0.3, 1.0]}, n_estimators: 20}
    broken: {x: {uniform: [0, 1]}}
"""


@pytest.fixture(scope="module")
def swept(local_ray: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("several")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, 3))
    rows = pd.DataFrame(values, columns=list("abc")).assign(color=rng.choice(["r", "g"], 300))
    rows["kind"] = np.where(values[:, 0] + (rows.color == "r") > 0.5, "yes", "no")
    rows.to_csv(folder / "rows.csv", index=False)
    (folder / "space.yaml").write_text(SPACE)
    return sweeps.run(folder / "space.yaml", dir=folder / "runs")


@pytest.fixture(scope="module")
def record(swept: Any) -> Any:
    record = record_reader.read(swept.dir)
    assert record is not None
    return record


def test_a_trainer_that_fails_stops_no_other(swept: Any, record: Any) -> None:
    states = {(trial.trial.trainer, trial.result.state) for trial in record.trials}
    assert states == {
        ("xgboost", State.COMPLETE),
        ("trees", State.COMPLETE),
        ("broken", State.FAIL),
    }
    assert swept.trials["failed"] == 2
    assert "the trainer `broken` gave no model: 2 trials, all failed" in swept.notes
    assert swept.best["trainer"] in ("xgboost", "trees")


def test_a_worker_is_used_for_several_trainers(swept: Any, record: Any) -> None:
    workers = set()
    for trial in record.trials:
        log = trial_logs.log_of(str(swept.dir / "trials" / trial.id), 0).read_text()
        workers.add(log.split("\n", 1)[0].rpartition(" on ")[2])
    assert len(workers) <= 3, workers  # one more than at once, after a failed trial


def test_a_chain_is_prepared_for_its_trainers(swept: Any, record: Any) -> None:
    chains = {(trial.trial.trainer, trial.trial.chain) for trial in record.trials}
    assert {chain for trainer, chain in chains if trainer == "xgboost"} == {"Categorizer"}
    assert swept.fits == 2


def test_everything_that_records_a_trial_names_its_trainer(swept: Any) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(swept.mlflow["tracking_uri"])
    experiment = client.get_experiment_by_name("several")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    params = [run.data.params for run in runs if "trainer" in run.data.params]
    assert Counter(each["trainer"] for each in params) == {"broken": 2, "trees": 2, "xgboost": 2}
    for each in params:
        own = {name for name in each if name.startswith("params.")}
        assert all(name.startswith(f"params.{each['trainer']}.") for name in own)
    shown = json.loads(invoke("show", swept.dir, "--json").output)
    assert {trial["trainer"] for trial in shown["all"]} == {"xgboost", "trees", "broken"}
    assert "trainer" in invoke("show", swept.dir).output
    assert "trainer" in (swept.dir / "report.md").read_text()
    lines = (swept.dir / "events.jsonl").read_text().splitlines()
    labels = {event.get("trainer") for event in map(json.loads, lines)}
    assert labels == {"xgboost", "trees", "broken", None}


@pytest.mark.parametrize("trainer", ["xgboost", "trees"])
def test_each_trainer_has_a_bundle(swept: Any, record: Any, trainer: str, tmp_path: Path) -> None:
    trial = next(each for each in record.trials if each.trial.trainer == trainer)
    done = invoke("export", swept.dir, "--trial", trial.id, "-o", tmp_path / trainer)
    assert done.exit_code == 0, done.output
    bundle = Path(done.stdout.strip())
    manifest = Manifest.read(bundle)
    assert manifest.training["trainer"] == trainer
    assert manifest.load.startswith("sweeps.trainers.")
    rows = pd.read_csv(swept.dir.parent.parent / "rows.csv")
    predicted = sweeps.load_bundle(bundle).predict(rows.drop(columns="kind"))
    assert (predicted["prediction"] == rows.kind).mean() > 0.8


def test_an_ensemble_has_members_of_several_trainers(swept: Any) -> None:
    done = invoke("export", swept.dir, "--ensemble", 8)
    assert done.exit_code == 0, done.output
    bundle = swept.dir / "exports" / "ensemble-8"
    manifest = Manifest.read(bundle)
    loads = {member.load or manifest.load for member in manifest.members}
    trainers = {member.training["trainer"] for member in manifest.members}
    assert len(loads) == len(trainers)
    rows = pd.read_csv(swept.dir.parent.parent / "rows.csv")
    predicted = sweeps.load_bundle(bundle).predict(rows.drop(columns="kind"))
    assert (predicted["prediction"] == rows.kind).mean() > 0.8


def test_a_trial_is_run_again(swept: Any, record: Any) -> None:
    trial = next(each for each in record.trials if each.trial.trainer == "trees")
    assert invoke("rerun", swept.dir, trial.id).exit_code == 0


def test_a_sweep_of_one_trainer_learns_from_it(swept: Any) -> None:
    text = (swept.dir.parent.parent / "space.yaml").read_text()
    file = swept.dir.parent.parent / "one.yaml"
    start, end = text.index("trainer:"), text.index("data:")
    one = text[:start] + "trainer: xgboost\n" + text[end : text.index("space:")]
    one += "space: {params: {eta: {uniform: [0.1, 0.4]}, num_boost_round: 8}}\n"
    file.write_text(one.replace("name: several", "name: one"))
    done = invoke("plan", file, "--set", f"search.from=[{swept.dir}]", "--json")
    assert done.exit_code == 0, done.output
    (learned,) = json.loads(done.output)["learns_from"]
    assert learned["taken"] == 2, learned
    assert "of another trainer" in str(learned)
