"""A cluster of three nodes on this machine that changes under a sweep: one node is lost, and one
joins.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from sweeps.execution.pool_usage import Stage
from tests.commands import command
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.timeout(300)]

LOOP = """\
import json
import os
import tempfile
import time
from pathlib import Path

import ray
import ray.train


def train_func(config):
    context, here = ray.train.get_context(), Path(config["latch"])
    rank, node = context.get_world_rank(), ray.get_runtime_context().get_node_id()
    who = f"{context.get_trial_name().split('-')[-1]}-{rank}-{node}-{os.getpid()}"
    start = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            start = json.loads(Path(folder, "state.json").read_text())
    (here / f"from-{start}-{who}").touch()
    for step in range(start + 1, 5):
        (here / f"at-{who}").touch()
        while step == 3 and (here / "hold").exists() \
and not (here / f"pass-{who.split('-')[0]}").exists():
            time.sleep(0.02)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(step))
            ray.train.report({"loss": config["x"] / step}, \
checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)
    (here / f"at-{who}").unlink()
"""
SPACE = """\
name: nodes
trainer: {{loop: "nodes_loop:train_func", backend: none}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: {trials}, max_failures: 0}}
search: {{algorithm: random}}
space:
  scaling: {{num_workers: {{grid: {workers}}}{resources}}}
  params: {{x: {{uniform: [0.0, 1.0]}}, latch: {folder}}}
"""


@contextlib.contextmanager
def cluster_of(**head: int) -> Iterator[Cluster]:
    """A cluster whose first node has these resources."""
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **head})
    try:
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def three_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, list[Any]]]:
    """Three nodes of two CPUs. The first one is the head."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with cluster_of(num_cpus=2) as cluster:
        yield cluster, [cluster.add_node(num_cpus=2) for _ in range(2)]


def marks(folder: Path, kind: str) -> list[tuple[str, str, str, int]]:
    """Return trial, rank, node and process of each file that a rank has made."""
    parts = [file.name.split("-") for file in folder.glob(f"{kind}-*")]
    return [(part[-4], part[-3], part[-2], int(part[-1])) for part in parts]


def sweep(
    folder: Path,
    cluster: Cluster,
    trials: int,
    workers: str = "[1, 2]",
    resources: str = "",
    loop: str = LOOP,
) -> Any:
    """Start a sweep on a cluster."""
    (folder / "nodes_loop.py").write_text(loop)
    (folder / "space.yaml").write_text(
        SPACE.format(trials=trials, folder=folder, workers=workers, resources=resources)
    )
    return command(
        "run",
        folder / "space.yaml",
        "--dir",
        folder / "runs",
        "--address",
        cluster.address,
        "--json",
    )


def recorded(folder: str | Path) -> list[dict[str, Any]]:
    """Return the trials of a sweep, as `sweeps show --json` prints them."""
    trials: list[dict[str, Any]] = shown(folder)["all"]
    return trials


def shown(folder: str | Path) -> dict[str, Any]:
    out, err = command("show", folder, "--json").communicate(timeout=60)
    assert out, err
    sweep: dict[str, Any] = json.loads(out)
    return sweep


def workers_left() -> list[str]:
    return [
        " ".join(p.info["cmdline"])
        for p in psutil.process_iter(["cmdline"])
        if "ray::Worker" in " ".join(p.info["cmdline"] or ())
    ]


def not_the_drivers(nodes: list[Any]) -> Any:
    """Return a node to which the driver is not connected.

    On one machine, Ray connects the driver to any node, and the pool runs there.
    """
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    pools = (
        p
        for p in psutil.process_iter(["cmdline"])
        if "ray::_Pool" in " ".join(p.info["cmdline"] or ())
    )
    # Other tests may run pools of their own. The pool of this cluster may also run on the head,
    # which is not in `nodes`.
    used = {int(pool.environ()["RAY_RAYLET_PID"]) for pool in pools}
    return next(node for node, raylet in zip(nodes, raylets, strict=True) if raylet not in used)


def test_a_node_is_lost_and_one_joins_and_no_trial_is_lost_or_run_twice(
    three_nodes: Any, tmp_path: Path
) -> None:
    cluster, others = three_nodes
    before = workers_left()
    (tmp_path / "hold").touch()
    process = sweep(tmp_path, cluster, 24)

    def ranks_held() -> int:
        return len(marks(tmp_path, "at"))

    wait_until(lambda: ranks_held() >= 5, 120, "three nodes to be busy")
    leaving = not_the_drivers(others)
    lost = leaving.node_id
    victims = {trial for trial, _, node, _ in marks(tmp_path, "at") if node == lost}
    assert victims, "the node that is removed runs a trial"
    cluster.remove_node(leaving, allow_graceful=False)
    started = set(marks(tmp_path, "from"))
    for trial, rank, node, pid in marks(tmp_path, "at"):
        if trial in victims:
            (tmp_path / f"at-{trial}-{rank}-{node}-{pid}").unlink()
    folder = next((tmp_path / "runs").glob("nodes-*"))

    def is_noticed() -> bool:
        nodes = cluster.global_state.node_table()
        return not any(node["Alive"] for node in nodes if node["NodeID"] == lost)

    def waiting() -> set[str]:
        stages = shown(folder)["stages"].items()
        return {trial for trial, stage in stages if stage == Stage.WAITING.value}

    # Until Ray notices that the node is lost, the trials may be placed there again.
    wait_until(is_noticed, 60, "Ray to notice")
    wait_until(lambda: victims <= waiting(), 60, "the lost trials to wait")
    for trial, *_ in marks(tmp_path, "at"):
        (tmp_path / f"pass-{trial}").touch()
    wait_until(
        lambda: victims <= {trial for trial, *_ in set(marks(tmp_path, "from")) - started},
        60,
        "the lost trials to run first",
    )
    cluster.add_node(num_cpus=4)
    wait_until(lambda: ranks_held() >= 7, 60, "the new node to be busy too")
    (tmp_path / "hold").unlink()
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 24, "pruned": 0, "failed": 0}
    trials = recorded(result["dir"])
    assert all([step for step, _ in one["curve"]] == [1, 2, 3, 4] for one in trials), (
        "no report is lost or doubled"
    )
    again = {one["trial"] for one in trials if one["attempts"] > 1}
    assert again == victims and all(one["attempts"] <= 2 for one in trials)
    log = (Path(result["dir"]) / "sweep.log").read_text()
    assert (
        "up to 5 trials run at the same time" in log
        and "up to 9 trials run at the same time" in log
    ), "one of them waits"
    wait_until(lambda: workers_left() == before, 20, "the workers to end")


def test_a_trial_that_no_longer_fits_waits_and_show_says_for_what(
    three_nodes: Any, tmp_path: Path
) -> None:
    cluster, _ = three_nodes
    large = cluster.add_node(num_cpus=1, resources={"tpu": 1})
    (tmp_path / "hold").touch()
    process = sweep(tmp_path, cluster, 2, "[1]", ", resources_per_worker: {tpu: 1}")
    wait_until(lambda: marks(tmp_path, "at"), 120, "the first trial to hold")
    cluster.remove_node(large, allow_graceful=False)
    folder = next((tmp_path / "runs").glob("nodes-*"))
    stages = wait_until(
        lambda: {k: v for k, v in shown(folder)["stages"].items() if "waiting since" in v},
        60,
        "the trial to wait",
    )
    assert all(
        "for nodes: 1 worker × 1 CPU, 1 tpu needs 1 tpu (there are 0)" in text
        for text in stages.values()
    )
    text, _ = command("show", folder).communicate(timeout=60)
    assert "trial 0000: waiting since " in text
    (tmp_path / "hold").unlink()
    cluster.add_node(num_cpus=1, resources={"tpu": 1})
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out)["trials"] == {"completed": 2, "pruned": 0, "failed": 0}


ELASTIC_LOOP = """\
import json
import tempfile
import time
from pathlib import Path

import ray.train
import ray.train.collective


def train_func(config):
    context, here = ray.train.get_context(), Path(config["latch"])
    rank, world, start = context.get_world_rank(), context.get_world_size(), 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            start = json.loads(Path(folder, "state.json").read_text())
    for step in range(start + 1, start + 5 if start and world == 6 else 3000):
        while step == 3 and (here / "hold").exists():
            (here / f"held-{rank}").touch()
            time.sleep(0.02)
        ray.train.collective.barrier()  # as a collective of real training: \
no rank runs ahead of a lost one
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(step))
            ray.train.report({"loss": config["x"] / step}, \
checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None)
"""


def test_elastic_gang_loses_node_and_grows_onto_new_node(three_nodes: Any, tmp_path: Path) -> None:
    cluster, others = three_nodes
    (tmp_path / "hold").touch()
    process = sweep(tmp_path, cluster, 1, "[{elastic: [1, 6]}]", loop=ELASTIC_LOOP)
    wait_until(
        lambda: len(list(tmp_path.glob("held-*"))) == 6, 120, "six ranks on three nodes to hold"
    )
    folder = next((tmp_path / "runs").glob("nodes-*"))
    wait_until(lambda: len(recorded(folder)[0]["curve"]) == 2, 60, "two steps to be recorded")
    cluster.remove_node(not_the_drivers(others), allow_graceful=False)
    (tmp_path / "hold").unlink()
    wait_until(
        lambda: [size["workers"] for size in recorded(folder)[0].get("sizes", ())] == [6, 4],
        90,
        "the gang to be smaller",
    )
    cluster.add_node(num_cpus=2)
    out, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    (trial,) = recorded(json.loads(out)["dir"])
    sizes = [(size["workers"], size["step"]) for size in trial["sizes"]]
    assert [workers for workers, _ in sizes[:2]] == [6, 4] and sizes[-1][0] == 6, sizes
    assert sizes[1][1] >= 2, "it continued from a checkpoint"
    steps = [step for step, _ in trial["curve"]]
    assert steps == list(range(1, sizes[-1][1] + 5)), "no report is lost or doubled"
