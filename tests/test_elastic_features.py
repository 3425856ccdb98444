"""Elastic gangs together with a population, with pauses, with `--refit`, and with fractions of a
GPU. No worker dies here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import ray

import sweeps
from sweeps.bundle.integrity import MANIFEST
from sweeps.controller import exports
from sweeps.core.trial import State
from sweeps.study.record import TrialRecord, read

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(240)]

SPACE = """\
name: elastic
trainer: {trainer}
data: {{train: "sklearn:wine", label: target, valid: 0.25}}
objective: {{metric: valid-mlogloss, goal: minimize}}
scheduler: {scheduler}
search: {{algorithm: random, seed: 1}}
limits: {{max_trials: 4}}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: {{elastic: [1, 2]}}, resources_per_worker: {resources}}}
  params: {params}
"""
NETWORK = (
    "{CPU: 1}",
    "torch_tabular",
    "{epochs: 6, depth: 1, width: 8, lr: {loguniform: [1e-3, 1e-1]}}",
)
TREES = (
    "{CPU: 0.5, GPU: 0.5}",
    "xgboost",
    "{num_boost_round: 6, device: cpu, eta: {uniform: [0.1, 0.5]}}",
)
POPULATION = "{name: pbt, max_t: 6, perturbation_interval: 2, quantile_fraction: 0.5}"
PAUSES = '{name: "tests.search.test_pausing:PauseAll"}'


def trials_of(folder: Path) -> tuple[TrialRecord, ...]:
    """Return the trials of a sweep, after a check that no report is lost or doubled and that every
    gang has an allowed size.
    """
    study = read(folder)
    assert study is not None
    for trial in study.trials:
        assert [step for step, _ in trial.curve] == list(range(1, trial.result.steps + 1))
        assert trial.sizes and {size.workers for size in trial.sizes} <= {1, 2}
    return study.trials


def run(
    folder: Path, scheduler: str, resources: str, trainer: str, params: str
) -> sweeps.SweepResult:
    file = folder / "elastic.yaml"
    file.write_text(
        SPACE.format(scheduler=scheduler, resources=resources, trainer=trainer, params=params)
    )
    return sweeps.run(file, dir=folder / "runs")


@pytest.mark.long
def test_members_of_a_population_exploit_each_other(clean_ray, tmp_path):
    result = run(tmp_path, POPULATION, *NETWORK)
    assert result.trials == {"completed": 4, "pruned": 0, "failed": 0}
    trials = trials_of(result.dir)
    assert any(trial.lineage for trial in trials) and {trial.result.steps for trial in trials} == {
        6
    }


@pytest.mark.long
def test_paused_trials_wait_and_the_best_one_continues(clean_ray, tmp_path):
    result = run(tmp_path, PAUSES, *NETWORK)
    trials = trials_of(result.dir)
    best = min(trials, key=lambda trial: dict(trial.curve)[3])
    assert [trial.result.steps for trial in trials] == [
        6 if trial is best else 3 for trial in trials
    ]
    assert [trial.result.state for trial in trials] == [
        State.COMPLETE if trial is best else State.PRUNED for trial in trials
    ]


def test_each_worker_holds_its_fraction_of_a_gpu_and_the_winner_is_refitted(tmp_path):
    ray.shutdown()
    ray.init(
        "local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False
    )  # Ray only counts this GPU.
    try:
        result = run(tmp_path, "{name: none}", *TREES)
        (written,) = exports.export(result.dir, output=tmp_path / "again", refit=True)
    finally:
        ray.shutdown()
    assert result.trials == {"completed": 4, "pruned": 0, "failed": 0}
    for trial in trials_of(result.dir):
        metrics = trial.result.metrics
        assert metrics["gpu_seconds"] == pytest.approx(metrics["cpu_seconds"]), (
            "a worker has half of a CPU and half of a GPU"
        )
    refit = json.loads((written.path / MANIFEST).read_text())["training"]["refit"]
    assert refit["on"] == ["train", "valid"] and refit["rows"] == 178
