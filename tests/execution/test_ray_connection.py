"""Connect a session to Ray, with the right number of CPUs, the settings, and the user's code."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.host.machine_share import Share
from sweeps.core.resources import parked_cpus, stream_cpus
from sweeps.execution.cluster import ray_cluster
from sweeps.space import load

SPACE = """\
trainer: {loop: "json:load"}
data: {train: d.csv, label: y, valid: 0.2, ingest: INGEST}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 2}
runtime_env: {env_vars: {A: b}}
space: {params: {x: {uniform: [0, 1]}}}
"""
MEMORY = 64 * 2**30
SETTINGS = (
    "RAY_num_workers_soft_limit",
    "RAY_worker_niceness",
    "RAY_enable_metrics_collection",
    ray_cluster.MONITOR,
)


class Connecting(Exception):
    """Raised where Ray would start, or where the driver would connect."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record the calls that begin a connection, on a machine with four CPUs."""
    recorded: list[tuple[Any, ...]] = []

    def record(name: str, fails: bool) -> Any:
        def call(*arguments: Any) -> None:
            recorded.append((name, *arguments))
            if fails:
                raise Connecting

        return call

    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")
        os.environ.pop(name)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("sweeps.core.host.host_resources.detect", lambda: {"CPU": 4.0})
    monkeypatch.setattr("sweeps.core.host.host_resources.memory", lambda: MEMORY)
    monkeypatch.setattr(ray_cluster, "environment", lambda *arguments: arguments[:2])
    monkeypatch.setattr(ray_cluster, "start", record("start", fails=True))
    monkeypatch.setattr(ray_cluster, "join", record("join", fails=True))
    monkeypatch.setattr(ray_cluster, "check_reachable", record("check", fails=False))
    monkeypatch.setattr(ray_cluster, "forget_authentication", record("forget", fails=False))
    return recorded


@contextmanager
def connecting(folder: Path, ingest: str = "memory", **options: Any) -> Any:
    """Load a space, and expect that the connection begins in the block."""
    (folder / "space.yaml").write_text(SPACE.replace("INGEST", ingest))
    space = load(folder / "space.yaml")
    yield space
    address = options.pop("address", None)
    with (
        pytest.raises(Connecting),
        ray_cluster.ray_connection(space, folder, (folder,), address, **options),
    ):
        pass


@pytest.mark.parametrize("cpus", [None, 2])
@pytest.mark.parametrize("ingest", ["memory", "stream"])
def test_ray_counts_spare_parked_and_stream_cpus(
    calls: list[Any], tmp_path: Path, cpus: int | None, ingest: str
) -> None:
    with connecting(tmp_path, ingest, share=Share(cpus=cpus)):
        pass
    used = cpus or 4
    parked = parked_cpus(used, MEMORY * used / 4)
    added = stream_cpus(used) if ingest == "stream" else 0
    assert parked > 0
    assert calls == [
        ("forget",),
        ("start", tmp_path, used + 1 + parked + added, {"env_vars": {"A": "b"}}),
    ]
    settings = [os.environ.get(name) for name in SETTINGS]
    assert settings == [str(used + parked + 8), "0", "0", "0"]


def test_a_cluster_gets_the_code_and_keeps_its_settings(calls: list[Any], tmp_path: Path) -> None:
    with connecting(tmp_path, address="10.0.0.1:6379") as space:
        pass
    assert calls == [("check", "10.0.0.1:6379"), ("join", "10.0.0.1:6379", (space, (tmp_path,)))]
    assert not any(name in os.environ for name in SETTINGS)


def test_a_connected_process_cannot_set_up_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "space.yaml").write_text(SPACE.replace("INGEST", "memory"))
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    with (
        pytest.raises(InputError, match=r"5:\d+: runtime_env: this process is already connected"),
        ray_cluster.ray_connection(load(tmp_path / "space.yaml"), tmp_path, (tmp_path,), None),
    ):
        pass
