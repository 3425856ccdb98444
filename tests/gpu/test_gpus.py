"""Sweeps on real GPUs. `make test-gpu` runs these tests; without a GPU, they are skipped."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sweeps
from sweeps.bundle.manifest import GPU_TOLERANCE
from sweeps.core.trial import State
from sweeps.study.record_reader import read
from sweeps.study.states import TrialState
from tests.commands import REPO
from tests.gpu import loops

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not GPUS, reason="torch finds no GPU on this machine"),
]
two_gpus = pytest.mark.skipif(GPUS < 2, reason="torch finds fewer than two GPUs on this machine")
OWN_LOOP = """\
name: gpu
trainer: {{loop: "tests.gpu.loops:{loop}", backend: torch}}
data: {{train: "sklearn:wine", label: target, valid: 0.25}}
objective: {{metric: loss, goal: minimize}}
search: {{algorithm: random, seed: 1}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1, max_failures: {trials}}}
space:
  scaling: {{num_workers: {workers}, resources_per_worker: {{CPU: 0.5, GPU: {gpus}}}}}
  params: {{file: {file}, {params}}}
"""


@pytest.fixture
def gpu_ray() -> Iterator[Any]:
    """Yield `ray`, connected to a local Ray with two CPUs and all GPUs of this machine."""
    import ray

    ray.shutdown()
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield ray
    ray.shutdown()


def run_loop(
    folder: Path, loop: str, trials: int, workers: int, gpus: float, params: str
) -> tuple[tuple[TrialState, ...], list[Any]]:
    """Run a sweep of a loop in `loops`. Return its trials, and what they wrote down."""
    file = folder / "facts.jsonl"
    _, result = run(
        folder,
        OWN_LOOP.format(
            loop=loop, trials=trials, workers=workers, gpus=gpus, params=params, file=file
        ),
    )
    return result, [json.loads(line) for line in file.read_text().splitlines()]


def run(folder: Path, text: str) -> tuple[sweeps.SweepResult, tuple[TrialState, ...]]:
    file = folder / "gpu.yaml"
    file.write_text(text)
    result = sweeps.run(file, dir=folder / "runs")
    study = read(result.dir)
    assert study is not None
    return result, study.trials


def run_space(folder: Path, name: str, *changes: str) -> sweeps.SweepResult:
    """Run a space of `search_spaces/` on one worker that has the GPU, with changes of the form
    KEY=VALUE.
    """
    scaling = "space.scaling={num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}"
    return sweeps.run(
        REPO / "search_spaces" / name, dir=folder / "runs", overrides=(scaling, *changes)
    )


@pytest.mark.parametrize(
    "workers, gpus, nccl",
    [(1, 1, True), (1, 0.5, True), (2, 0.5, False), pytest.param(2, 1, True, marks=two_gpus)],
)
def test_ranks_exchange_tensors_on_their_gpus(
    gpu_ray: Any, tmp_path: Path, workers: int, gpus: float, nccl: bool
) -> None:
    trials, facts = run_loop(tmp_path, "sums", 2, workers, gpus, "x: {uniform: [0, 1]}")
    assert [trial.result.value for trial in trials] == [sum(range(1, workers + 1))] * 2
    assert len(facts) == 2 * workers and {fact["nccl"] for fact in facts} == {nccl}


@pytest.mark.parametrize("workers, gpus", [(2, 0.5), pytest.param(2, 1, marks=two_gpus)])
def test_the_network_is_trained_on_two_ranks_as_on_one(
    gpu_ray: Any, tmp_path: Path, workers: int, gpus: float
) -> None:
    text = (
        "name: gpu\ntrainer: torch_tabular\n"
        'data: {train: "sklearn:digits", label: target, valid: 0.25}\n'
        "objective: {metric: valid-mlogloss, goal: minimize}\n"
        "search: {algorithm: random, seed: 1}\nlimits: {max_trials: 2, max_concurrent_trials: 1}\n"
        "space:\n  preprocessor: [StandardScaler]\n"
        f"  scaling:\n    grid:\n      - {{num_workers: 1, resources_per_worker: {{CPU: 0.5, GPU: "
        f"{gpus}}}}}\n"
        f"      - {{num_workers: {workers}, resources_per_worker: {{CPU: 0.5, GPU: {gpus}}}}}\n"
        "  params: {epochs: 10, depth: 1, width: 32, lr: 0.01, batch_size: 128}\n"
    )
    result, trials = run(tmp_path, text)
    assert result.trials["completed"] == 2
    alone, together = (trial.result.value for trial in trials)
    assert alone is not None and together is not None
    assert max(alone, together) < 0.3


@pytest.mark.parametrize(
    "params",
    [
        {"precision": "bf16", "compile": "true"},
        {"precision": "fp16", "accumulate": "2", "clip_norm": "1.0"},
    ],
)
def test_the_options_of_torch_train_a_network_on_a_gpu(
    gpu_ray: Any, tmp_path: Path, params: Any
) -> None:
    changes = [f"space.params.{name}={value}" for name, value in {"lr": "0.01", **params}.items()]
    result = run_space(tmp_path, "torch.yaml", "limits.max_trials=2", *changes)
    assert result.trials["failed"] == 0 and result.best is not None and result.best["value"] < 0.5


@pytest.mark.parametrize(
    "name, package",
    [("keras_digits", "keras"), ("lightning", "lightning"), ("transformers", "transformers")],
)
def test_other_frameworks_train_on_a_gpu(
    gpu_ray: Any, tmp_path: Path, name: str, package: str
) -> None:
    if (
        importlib.util.find_spec(package) is None
    ):  # Keras must not be imported here, because it would look for TensorFlow.
        pytest.skip(f"{package} is not installed")
    result = run_space(tmp_path, f"{name}.yaml", "limits.max_trials=2")
    assert result.trials["failed"] == 0


def test_mlflow_has_the_utilization_of_the_gpu(
    gpu_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pynvml")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.5")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLES_BEFORE_LOGGING", "1")
    mlflow = run_space(tmp_path, "torch.yaml", "limits.max_trials=4").mlflow
    client = MlflowClient(mlflow["tracking_uri"])
    history = client.get_metric_history(mlflow["parent_run"], "system/gpu_0_utilization_percentage")
    assert history and max(point.value for point in history) > 0, client.get_run(
        mlflow["parent_run"]
    ).data.metrics


def test_a_vision_transformer_with_mixed_precision_is_stopped_and_exported(
    gpu_ray: Any, tmp_path: Path
) -> None:
    """Tutorial 5 on half a GPU for each trial."""
    result = sweeps.run(
        REPO / "search_spaces" / "tutorials" / "vit.yaml",
        dir=tmp_path / "runs",
        overrides=(
            "space.scaling={num_workers: 1, resources_per_worker: {CPU: 0.5, GPU: 0.5}}",
            "space.params.precision=bfloat16",
            "limits.max_trials=6",
        ),
    )
    assert (
        result.trials["failed"] == 0 and result.trials["completed"] + result.trials["pruned"] == 6
    )
    assert result.bundle is not None


@pytest.mark.parametrize("trainer", ["xgboost", "torch_tabular"])
def test_a_bundle_of_a_gpu_answers_the_same_on_a_cpu(
    gpu_ray: Any, tmp_path: Path, trainer: str
) -> None:
    params = {
        "xgboost": "{num_boost_round: 20}",
        "torch_tabular": "{epochs: 5, depth: 1, width: 32, lr: 0.01}",
    }[trainer]
    result, _ = run(
        tmp_path,
        f'name: gpu\ntrainer: {trainer}\ndata: {{train: "sklearn:breast_cancer", label: target, '
        f"valid: 0.25}}\n"
        "objective: {metric: valid-logloss, goal: minimize}\nlimits: {max_trials: 1}\n"
        "space:\n  preprocessor: [StandardScaler]\n"
        "  scaling: {num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}\n"
        f"  params: {params}\n",
    )
    assert result.bundle is not None
    manifest = json.loads((Path(result.bundle) / "manifest.json").read_text())
    assert manifest["tolerance"] == GPU_TOLERANCE and manifest["checked"]
    bundle = sweeps.load_bundle(result.bundle)
    from sklearn.datasets import load_breast_cancer

    rows = load_breast_cancer(as_frame=True).data
    probabilities = bundle.predict(rows).filter(like="probability_").to_numpy()
    assert np.isfinite(probabilities).all()


def test_full_gpu_fails_trial_with_reason_and_worker_continues(
    gpu_ray: Any, tmp_path: Path
) -> None:
    trials, facts = run_loop(
        tmp_path, "fills", 3, 1, 1, f"bytes: {{grid: [1024, {loops.HUGE}, 2048]}}"
    )
    assert [trial.result.state for trial in trials] == [State.COMPLETE, State.FAIL, State.COMPLETE]
    error = trials[1].result.error
    assert (
        error is not None
        and "OutOfMemoryError" in error
        and "the memory of the GPU is full" in error
    )
    assert len(facts) == 2 and facts[0]["pid"] == facts[1]["pid"]


def test_the_memory_of_the_gpu_is_returned_between_the_trials_of_a_worker(
    gpu_ray: Any, tmp_path: Path
) -> None:
    trials, facts = run_loop(tmp_path, "remembers", 20, 1, 1, "width: {randint: [512, 8192]}")
    assert len(trials) == len(facts) == 20 and len({fact["pid"] for fact in facts}) == 1
    # The first trial begins before CUDA is initialized in the process. CUDA hands out pages of 2
    # MiB.
    assert max(fact["used"] for fact in facts[2:]) - facts[1]["used"] <= 2**21
