"""The start of Ray by this process, and the token of a cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError, SweepsError
from sweeps.execution.cluster import (
    local_ray,
    ray_authentication,
    ray_cluster,
)
from sweeps.space import load
from tests.commands import REPO

WAIT = "RAY_gcs_server_port_wait_time_s"


LATE = "The current node timed out during startup."


@pytest.mark.parametrize(
    "error, named, tries",
    [(LATE, "CPU or memory", 2), ("no space left on device", "no space left on device", 1)],
)
def test_a_ray_that_does_not_start_is_reported_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, named: str, tries: int
) -> None:
    monkeypatch.delenv(WAIT, raising=False)
    limits = []

    def init(**_: Any) -> None:
        limits.append(os.environ[WAIT])
        raise Exception(error)

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    shutil.copy(REPO / "search_spaces" / "quickstart.yaml", tmp_path / "space.yaml")
    space = load(tmp_path / "space.yaml")
    with (
        pytest.raises(SweepsError) as caught,
        ray_cluster.ray_connection(space, tmp_path, (tmp_path,), None),
    ):
        pass
    said = str(caught.value)
    assert said.startswith("Ray did not start: ") and "\n" not in said
    assert said.endswith(f"sweeps resume {tmp_path}") and named in said
    assert limits == [str(seconds) for seconds in local_ray.START_WITHIN[:tries]]
    assert WAIT not in os.environ


def test_a_start_of_ray_that_hangs_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []

    def init(**_: Any) -> None:
        starts.append(os.environ[WAIT])
        if len(starts) == 1:
            raise Exception(LATE)

    monkeypatch.setattr("ray.init", init)
    local_ray.start(tmp_path, 1)
    assert len(starts) == 2


@pytest.mark.parametrize(
    ("wants", "has", "mode", "named"),
    [
        ("none", "none", "disabled", None),
        ("none", "right", "disabled", None),
        ("right", "right", "token", None),
        ("right", "none", None, "there is no token"),
        ("right", "wrong", None, "is a different"),
        ("away", "right", None, None),
    ],
)
def test_r6_a_cluster_is_shown_a_token_if_it_wants_one(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wants: str,
    has: str,
    mode: str | None,
    named: str | None,
) -> None:
    def ask(address: str, mode: str) -> int | None:
        if wants == "away":
            return 1
        if mode == "token" and has == "none":
            return 1  # Ray ends the process.
        shown = has if mode == "token" else "none"
        return (
            ray_authentication.ACCEPTED
            if wants in (shown, "none")
            else ray_authentication.NEEDS_TOKEN
        )

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    if has != "none":
        (tmp_path / "token").write_text(has)
    monkeypatch.setattr(ray_authentication, "_try_mode", ask)
    monkeypatch.setattr(ray_authentication, "_mode", None)
    monkeypatch.setattr(ray_authentication, "_reload_mode", lambda: None)
    if named is None:
        ray_authentication.prepare_authentication("10.0.0.1:6379")
    else:
        with pytest.raises(InputError, match=named) as refused:
            ray_authentication.prepare_authentication("10.0.0.1:6379")
        assert refused.value.problems[0].place == "--address" and "token" in str(refused.value)
    assert os.environ.get("RAY_AUTH_MODE") == mode
    ray_authentication.forget_authentication()
    assert os.environ.get("RAY_AUTH_MODE") is None


FAILING = """
import os
from pathlib import Path
import psutil
from sweeps.core.host import logging_setup
from sweeps.core.errors import SweepsError
from sweeps.execution.cluster import local_ray
from tests.waiting import wait_until
logging_setup.set_environment()
from ray._private import services
plain = services.get_node
ended = []
def get_node(*what):
    raylet = next(child for child in psutil.Process().children() if child.name() == "raylet")
    wait_until(lambda: len(raylet.children()) > 1, 30, "both agents")
    ended.extend(psutil.Process().children(recursive=True))
    raylet.kill()
    raylet.wait()
    raise KeyboardInterrupt if os.environ.get("INTERRUPTED") else OSError("the raylet has died")
services.get_node = get_node
try:
    local_ray.start(Path("/"), 2)
except (SweepsError, KeyboardInterrupt) as e:
    print(type(e).__name__, str(e))
print(len(ended), [process.name() for process in ended if process.is_running()])
print(os.listdir(Path(os.environ["RAY_TMPDIR"], "ray")))
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("interrupted", ["", "1"])
def test_a_ray_that_fails_to_start_or_is_interrupted_leaves_no_process(interrupted: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as temporary:
        done = subprocess.run(
            [sys.executable, "-c", FAILING],
            capture_output=True,
            text=True,
            env={**os.environ, "RAY_TMPDIR": temporary, "INTERRUPTED": interrupted},
        )
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    error = "KeyboardInterrupt " if interrupted else "SweepsError Ray did not start: "
    assert lines[0].startswith(error)
    assert lines[1] == "4 []", "the raylet, its two agents and the control store"
    assert lines[2] in ("[]", "['session_latest']")


LISTENING = """
import os, sys, tempfile
from pathlib import Path
import psutil
from sweeps.core.host import logging_setup
from sweeps.execution.cluster import local_ray
logging_setup.set_environment()
import ray
local_ray.start(Path(tempfile.mkdtemp()), 2)
ray.get(ray.remote(lambda: 1).remote())
me = psutil.Process()
for process in [me, *me.children(recursive=True)]:
    for one in process.net_connections():
        if one.status == psutil.CONN_LISTEN:
            print("listens", one.laddr.ip)
for child in me.children():
    print("group", os.getpgid(child.pid) == os.getpgid(0))
ray.shutdown()
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_r18_and_r4_own_ray_listens_on_loopback_in_own_groups() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, timeout=100, cwd=REPO
    )
    said = [line.split() for line in done.stdout.splitlines()]
    addresses = {word for kind, word in said if kind == "listens"}
    assert addresses and addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, done.stderr
    assert {word for kind, word in said if kind == "group"} == {"False"}
