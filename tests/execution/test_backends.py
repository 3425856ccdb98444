"""Ray Train's backends by name, and backends of the user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train.backend import BackendConfig
from ray.train.torch import TorchConfig
from ray.train.v2.jax import JaxConfig

import sweeps
from sweeps.core.errors import InputError
from sweeps.execution.isolation import process_reset
from sweeps.execution.worker import backends

# A backend that gives each worker the process ids of all workers, and a loop that reports how many
# ids it was given.
RING = """
import os

import ray
import ray.train
from ray.train.backend import Backend, BackendConfig


class _Ring(Backend):
    def on_start(self, workers, config):
        pids = workers.execute(os.getpid)
        ray.get([workers.execute_single_async(rank, _join, f"{rank} of {pids}") \
for rank in range(len(workers))])


def _join(ring):
    os.environ["RING"] = ring


class Config(BackendConfig):
    @property
    def backend_cls(self):
        return _Ring


instance = Config()
number = 3


class Needs(Config):
    def __init__(self, size):
        self.size = size


def train(config):
    rank, _, pids = os.environ["RING"].partition(" of ")
    assert int(rank) == ray.train.get_context().get_world_rank()
    pids = eval(pids)
    assert pids[int(rank)] == os.getpid()
    ray.train.report({"peers": len(set(pids))})
"""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "ring.py").write_text(RING)
    (tmp_path / "broken.py").write_text(
        "class Config:\n    pass\n\n\nraise OSError('no network')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("ring", None)


@pytest.mark.parametrize("gpus, backend", [(0, None), (0.5, "gloo"), (1, None), (2, None)])
def test_torch_workers_that_may_share_a_gpu_use_gloo(gpus: float, backend: str | None) -> None:
    config = backends.config_of("torch", {"CPU": 1, "GPU": gpus})
    assert isinstance(config, TorchConfig) and config.backend == backend


@pytest.mark.parametrize("name", ["ring:Config", "ring:instance"])
def test_own_backend_is_subclass_or_instance_of_backend_config(ring: Any, name: str) -> None:
    assert backends.find_backend_problem(name) is None
    assert isinstance(backends.config_of(name), BackendConfig)


@pytest.mark.parametrize(
    "name, text",
    [
        (
            "ring:number",
            (
                "`ring:number` must be a subclass or an instance of "
                "ray.train.backend.BackendConfig, "
                "got 3"
            ),
        ),
        (
            "ring:train",
            (
                "`ring:train` must be a subclass or an instance of "
                "ray.train.backend.BackendConfig, "
                "got <function train at "
            ),
        ),
        ("ring:Needs", "`ring:Needs` cannot be created without arguments: "),
        ("ring:Confg", "`ring:Confg`: `ring` has no `Confg`; the module defines: "),
        ("no_ring:Config", "`no_ring:Config`: no module `no_ring`"),
        ("broken:Config", "`broken:Config` cannot be imported: OSError: no network"),
    ],
)
def test_another_object_is_refused_in_one_line(ring: Any, name: str, text: str) -> None:
    problem = backends.find_backend_problem(name)
    assert problem is not None and problem.startswith(text) and "\n" not in problem


def test_jax_is_configured_for_the_hardware_of_the_workers() -> None:
    assert backends.config_of("jax", {"CPU": 1.0, "GPU": 1.0}) == JaxConfig(use_gpu=True)
    assert backends.config_of("jax", {"CPU": 1.0, "TPU": 4.0}) == JaxConfig(use_tpu=True)
    assert backends.config_of("jax", {"CPU": 1.0}) == JaxConfig()
    assert backends.WorkerGroup((), {"CPU": 0.5, "GPU": 2.0}).get_resources_per_worker() == {
        "CPU": 0.5,
        "GPU": 2,
    }
    gpus = backends.WorkerGroup((), {"GPU": 2.0}).get_resources_per_worker()["GPU"]
    assert isinstance(gpus, int), "Ray's backend for JAX counts GPUs this way"
    assert len(range(gpus)) == 2


def test_a_process_in_a_cluster_of_jax_runs_no_other_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    with process_reset.isolate_trial() as reset:
        monkeypatch.setitem(
            sys.modules,
            "jax._src.distributed",
            SimpleNamespace(global_state=SimpleNamespace(client=None)),
        )
    assert reset.broken is None
    with process_reset.isolate_trial() as reset:
        monkeypatch.setitem(
            sys.modules,
            "jax._src.distributed",
            SimpleNamespace(global_state=SimpleNamespace(client=object())),
        )
    assert reset.broken is not None and "joined a cluster of TensorFlow or JAX" in reset.broken


def space_of(folder: Path, backend: str, workers: int) -> Path:
    """Write the space file of a sweep of one trial."""
    file = folder / "space.yaml"
    file.write_text(
        f"""name: ring
trainer: {{loop: "ring:train", backend: "{backend}"}}
objective: {{metric: peers, goal: maximize}}
limits: {{max_trials: 1}}
trackers: []
space: {{scaling: {{num_workers: {workers}}}, params: {{a: 1}}}}
"""
    )
    return file


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_a_users_backend_connects_two_workers_of_a_sweep(clean_ray: Any, ring: Any) -> None:
    result = sweeps.run(space_of(ring, "ring:Config", workers=2), dir=ring / "runs")
    assert result.best is not None and result.best["value"] == 2
    assert result.trials["completed"] == 1


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(240)
def test_run_refuses_an_object_that_is_no_backend(clean_ray: Any, ring: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"space.yaml:2:40: trainer.backend: `ring:number` must be a subclass .*, got 3$",
    ):
        sweeps.run(space_of(ring, "ring:number", workers=1), dir=ring / "runs")
    assert not (ring / "runs").exists()
