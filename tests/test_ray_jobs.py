"""Sweeps that are submitted to Ray's Jobs API, on a cluster of one node on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ports import free_port
from tests.processes import titles
from tests.ray_nodes import Nodes, nodes, write_project
from tests.waiting import wait_until


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_project(tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    dashboard, agent = free_port(), free_port()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with nodes(PATH=path, RAY_API_SERVER_ADDRESS=f"http://127.0.0.1:{dashboard}") as started:
        started.head(
            "--num-cpus=4",
            "--include-dashboard=true",
            f"--dashboard-port={dashboard}",
            f"--dashboard-agent-listen-port={agent}",
        )
        yield started


def ray_job(cluster: Nodes, *args: object) -> tuple[int, str]:
    """Run `ray job ARGS`; return its exit code and its output."""
    full = [str(Path(sys.executable).with_name("ray")), "job", *map(str, args)]
    done = subprocess.run(
        full,
        env=cluster.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout


def submit(
    cluster: Nodes, name: str, *command: object, options: tuple[object, ...] = ()
) -> tuple[int, str]:
    """Submit `sweeps COMMAND` as a job, and wait for its end.

    Return the exit code of `ray job submit` and the log of the job.
    """
    code, _ = ray_job(
        cluster, "submit", f"--submission-id={name}", *options, "--", "sweeps", *command
    )
    return code, ray_job(cluster, "logs", name)[1].partition(f"Running entrypoint for job {name}")[
        2
    ]


def details(cluster: Nodes, name: str) -> tuple[str, int | None]:
    """Return the status of a job and the exit code of its command."""
    url = f"{cluster.env['RAY_API_SERVER_ADDRESS']}/api/jobs/{name}"
    request = urllib.request.Request(
        url, headers={"Authorization": f"Bearer {cluster.token.read_text()}"}
    )
    with urllib.request.urlopen(request) as reply:
        job = json.load(reply)
    return job["status"], job["driver_exit_code"]


def sweep_of(log: str) -> Path:
    folder = re.search(r"^folder +(.*)$", log, re.M)
    assert folder is not None, log
    return Path(folder[1])


def wait_until_ended(cluster: Nodes) -> None:
    """Wait until no process of a sweep is left on the cluster."""

    def left() -> list[str]:
        running = []
        for member in cluster.members():
            with contextlib.suppress(psutil.Error):
                title = " ".join(member.cmdline())
                if title.startswith(tuple(titles().values())) or re.search(
                    r"\bsweeps( |\.\w)", title
                ):
                    running.append(title)
        return running

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), 30, "the processes of the sweep to end")
    assert left() == []


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_stopped_job_loses_nothing_and_another_job_resumes_its_sweep(
    cluster: Any, project: Any, tmp_path: Path
) -> None:
    """The first stop kills the driver after Ray's 3 s at the latest.

    The second one leaves it a minute, as the documentation shows.
    """
    patience = ("--runtime-env-json", json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}))

    def stop(name: str, *command: object, options: tuple[object, ...] = ()) -> str:
        for file in tmp_path.glob("*.waits"):
            file.unlink()
        ray_job(
            cluster,
            "submit",
            "--no-wait",
            f"--submission-id={name}",
            *options,
            "--",
            "sweeps",
            *command,
        )
        wait_until(
            lambda: len(list(tmp_path.glob("*.waits"))) == 2,
            100,
            f"two trials to wait\n{ray_job(cluster, 'logs', name)[1]}",
        )
        ray_job(cluster, "stop", name)
        assert details(cluster, name) == ("STOPPED", None)
        wait_until_ended(cluster)
        return ray_job(cluster, "logs", name)[1]

    stop("killed", "run", project / "space.yaml", "--address", "auto", "--dir", tmp_path / "runs")
    (folder,) = (tmp_path / "runs").glob("job-*")
    log = stop("ended", "resume", folder, options=patience)
    assert "stopping: " in log and "Traceback" not in log
    assert json.loads((folder / "result.json").read_text())["reason"] == "interrupted"
    (tmp_path / "go").touch()
    code, log = submit(cluster, "resumed", "resume", folder)
    assert code == 0, log
    result = json.loads((folder / "result.json").read_text())
    assert result["trials"] == {"completed": 4, "pruned": 0, "failed": 0}, result
