"""Requests for nodes to Ray's autoscaler: what is asked, without Ray; and a sweep on a cluster
whose autoscaler starts nodes here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

from sweeps.core.resources import Shape
from sweeps.execution.gangs import autoscaling
from sweeps.execution.gangs.autoscaling import (
    ASK_AGAIN_AFTER,
    NodeRequests,
    select_within_limit,
)
from sweeps.execution.gangs.placement import Request
from tests.commands import command
from tests.ray_nodes import Nodes, nodes, write_project
from tests.waiting import wait_until

TWO = Shape(2, (("CPU", 1.0), ("GPU", 0.5)))


def trial(number: int) -> Request:
    return Request(number, TWO.total, TWO)


class FakeRay:
    """Placement groups, and what the autoscaler says about them.

    Attributes:
        groups: State of each group that was not removed, by its number.
        managed: True if the nodes have instance ids, which an autoscaler needs.
        bundles: Bundles of each group that was made.
    """

    def __init__(self) -> None:
        self.groups: dict[int, str] = {}
        self.managed = True
        self.bundles: list[list[dict[str, float]]] = []

    def make(self, bundles: list[dict[str, float]]) -> Any:
        self.bundles.append(bundles)
        self.groups[len(self.bundles)] = "PENDING"
        number = len(self.bundles)
        return SimpleNamespace(number=number, id=SimpleNamespace(hex=lambda: f"id-{number}"))

    def table(self) -> dict[str, dict[str, str]]:
        return {f"id-{number}": {"state": state} for number, state in self.groups.items()}

    def status(self, address: str) -> Any:
        nodes = [SimpleNamespace(instance_id="head" if self.managed else "")]
        return SimpleNamespace(active_nodes=nodes, idle_nodes=[])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake_ray = FakeRay()
    monkeypatch.setattr(autoscaling, "placement_group", fake_ray.make)
    monkeypatch.setattr(autoscaling, "placement_group_table", fake_ray.table)
    monkeypatch.setattr(
        autoscaling, "remove_placement_group", lambda group: fake_ray.groups.pop(group.number)
    )
    monkeypatch.setattr(autoscaling, "get_cluster_status", fake_ray.status)
    context = SimpleNamespace(gcs_address="here")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    return fake_ray


def test_each_waiting_request_has_a_group_until_it_is_served(fake: Any) -> None:
    asked = NodeRequests()
    asked.update([trial(1), Request(2, {"CPU": 2.0})], now=0)
    assert (
        fake.bundles == [[{"CPU": 1.0, "GPU": 0.5}] * 2, [{"CPU": 2.0}]] and len(fake.groups) == 2
    )
    asked.update([trial(1), Request(2, {"CPU": 2.0})], now=1)
    assert len(fake.bundles) == 2
    asked.update([trial(1)], now=2)
    assert fake.groups == {1: "PENDING"}
    asked.update([], now=3)
    assert fake.groups == {}


def test_no_node_is_asked_for_beyond_a_limit() -> None:
    waiting = [trial(1), Request(2, {"CPU": 2.0}), Request(3, {"CPU": 1.0})]
    assert [request.id for request in select_within_limit(waiting, {"CPU": 3.0})] == [1, 3]
    assert (
        select_within_limit(waiting, {}) == waiting
        and select_within_limit(waiting, {"CPU": 0.0}) == []
    )


def test_a_placed_group_is_removed_so_that_workers_can_use_its_resources(fake: Any) -> None:
    asked = NodeRequests()
    asked.update([trial(1)], now=0)
    fake.groups[1] = "CREATED"
    asked.update([trial(1)], now=1)
    assert fake.groups == {}
    asked.update([trial(1)], now=ASK_AGAIN_AFTER)
    assert fake.groups == {}
    asked.update([trial(1)], now=1 + ASK_AGAIN_AFTER)
    assert fake.groups == {2: "PENDING"}, "the request still waits"


def test_no_node_group_for_empty_request_or_fixed_cluster(fake: Any) -> None:
    NodeRequests().update([Request(1, {"CPU": 0.0})], now=0)
    fake.managed = False
    NodeRequests().update([trial(1)], now=0)
    assert fake.bundles == []


# ---- a cluster with an autoscaler on this machine

COMMANDS = [
    f"{kind}_commands"
    for kind in (
        "initialization",
        "setup",
        "head_setup",
        "worker_setup",
        "head_start_ray",
        "worker_start_ray",
    )
]
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"


def config(address: str) -> dict[str, Any]:
    """Return the configuration of a cluster of a head without CPUs and of up to two nodes with two
    CPUs each.
    """
    return {
        "cluster_name": "fake",
        "max_workers": 2,
        "idle_timeout_minutes": 0.25,
        "provider": {
            "type": "external",
            "module": PROVIDER,
            "head_node_id": FAKE_HEAD_NODE_ID,
            "launch_multiple": True,
            "gcs_address": address,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "small": {
                "resources": {"CPU": 2},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        "head_node_type": "ray.head.default",
        **{key: {} for key in ("auth", "docker", "file_mounts")},
        **{key: [] for key in (*COMMANDS, "cluster_synced_files", "rsync_exclude", "rsync_filter")},
        "file_mounts_sync_continuously": False,
    }


@pytest.fixture(scope="module")
def growing() -> Iterator[Nodes]:
    ids = {
        "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
    }
    with nodes(
        AUTOSCALER_UPDATE_INTERVAL_S="1", RAY_FAKE_CLUSTER="1", RAY_enable_autoscaler_v2="1", **ids
    ) as started:
        file = started.home / "autoscaling.json"
        file.write_text(json.dumps(config(f"{ray.util.get_node_ip_address()}:{started.port}")))
        started.head("--num-cpus=0", "--include-dashboard=false", f"--autoscaling-config={file}")
        yield started


def raylets(cluster: Nodes) -> int:
    """Return the number of nodes that are running."""
    count = 0
    for member in cluster.members():
        with contextlib.suppress(psutil.Error, IndexError):  # It has just ended.
            count += member.cmdline()[0].endswith("/raylet")
    return count


@pytest.mark.long
@pytest.mark.timeout(400)
def test_nodes_are_started_for_the_trials_of_a_sweep_and_end_after_it(
    growing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in growing.credentials.items():
        monkeypatch.setenv(name, value)
    space = write_project(tmp_path) / "space.yaml"
    more = ("--set", "limits.max_concurrent_trials=4")
    process = command(
        "run", space, "--dir", tmp_path / "runs", "--address", growing.address, "--json", *more
    )
    wait_until(
        lambda: len(list(tmp_path.glob("*.waits"))) == 3 or process.poll() is not None,
        150,
        "three trials to run at once",
    )
    assert process.poll() is None, process.communicate()
    assert raylets(growing) == 3
    Path(tmp_path, "go").touch()
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert json.loads(out)["trials"] == {"completed": 4, "pruned": 0, "failed": 0}
    wait_until(lambda: raylets(growing) == 1, 60, "idle nodes to end")
