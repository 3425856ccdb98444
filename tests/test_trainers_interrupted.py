"""Several trainers in one sweep: killed and resumed, and on a cluster of two nodes with a limit of
GPU hours.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.study import record_reader
from tests.commands import command
from tests.faults.test_crash import ended, outcome, through, uri, written
from tests.ray_nodes import nodes

__all__ = ["uri"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SPACE = """\
name: crash
trainer:
  choice:
    - xgboost
    - {{as: trees, estimator: "sklearn.ensemble:ExtraTreesClassifier"}}
    - {{as: broken, loop: "tests.user_loops:broken"}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: valid-mlogloss, goal: minimize}}
search: {{algorithm: tpe, seed: 3}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  preprocessor: {{choice: [StandardScaler, none], when: {{trainer: trees}}}}
  params:
    xgboost: {{eta: {{uniform: [0.1, 0.4]}}, num_boost_round: 5}}
    trees: {{max_features: {{uniform: [0.2, 1.0]}}, n_estimators: 20}}
"""


def test_a_killed_sweep_of_several_trainers_ends_with_the_same_result(
    tmp_path: Path, uri: Any
) -> None:
    arguments = written(tmp_path / "whole", 8, SPACE)
    whole = json.loads(ended(command("run", *arguments, "--tracking-uri", uri, "--json")))
    folder = through(["journal", "end"], tmp_path, uri, 8, SPACE)
    assert outcome(folder) == outcome(Path(whole["dir"]))
    record = record_reader.read(folder)
    assert record is not None
    assert {trial.trial.trainer for trial in record.trials} == {"xgboost", "trees", "broken"}


LOOPS = """\
import time
import ray.train


def long(config):
    for step in range(1, 200):
        time.sleep(0.1)
        ray.train.report({"loss": config["x"] / step})


def short(config):
    ray.train.report({"loss": config["x"]})


def broken(config):
    raise RuntimeError("this loop is broken")
"""
ON_NODES = """\
name: nodes
trainer:
  grid:
    - {as: long, loop: "mine:long"}
    - {as: short, loop: "mine:short"}
    - {as: broken, loop: "mine:broken"}
objective: {metric: loss, goal: minimize}
search: {algorithm: random}
limits: {max_trials: 30, max_gpu_hours: 0.003}
trackers: [jsonl]
space:
  scaling: {use_gpu: true}
  params:
    long: {x: {uniform: [0.0, 1.0]}}
    short: {x: {uniform: [0.0, 1.0]}}
    broken: {x: {uniform: [0.0, 1.0]}}
"""


def test_trainers_share_two_nodes_until_the_gpu_hours_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(LOOPS)
    (tmp_path / "nodes.yaml").write_text(ON_NODES)
    with nodes() as started:
        started.head("--num-cpus=2", "--num-gpus=1", "--include-dashboard=false")
        started.start("--num-cpus=2", "--num-gpus=1", f"--address={started.address}")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(started.token))
        place = ("--dir", tmp_path / "runs", "--address", started.address)
        result = json.loads(ended(command("run", tmp_path / "nodes.yaml", *place, "--json")))
    assert result["reason"].startswith("limits.max_gpu_hours")
    record = record_reader.read(Path(result["dir"]))
    assert record is not None
    states = {(trial.trial.trainer, trial.result.state) for trial in record.trials}
    assert ("short", State.COMPLETE) in states and ("broken", State.FAIL) in states
    assert not any(trainer == "broken" and state is State.COMPLETE for trainer, state in states)
    times = [(trial.began, trial.end_time) for trial in record.trials if trial.end_time]
    overlaps = [a for a in times for b in times if a < b and b[0] < a[1]]
    assert overlaps, "each node has one GPU, so two trials at once are on two nodes"
    assert any("the trainer `broken` gave no model" in note for note in result["notes"])
