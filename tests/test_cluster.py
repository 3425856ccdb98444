"""A sweep on an existing cluster: shipped code, shared storage, and the cluster's token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.core.errors import InputError, SweepsError
from sweeps.execution.cluster import (
    local_ray,
    ray_authentication,
    ray_cluster,
    shared_storage,
    shipped_code,
)
from sweeps.space import load
from tests.commands import REPO, command
from tests.ray_nodes import nodes

LOOP = """\
import os
import shutil
import ray.train
from pack import helper


def train_func(config):
    print("loop is at", os.path.realpath(__file__))
    ray.train.report({"loss": helper.loss(config["x"]), \
"rank": ray.train.get_context().get_world_rank()})
"""
SPACE = """\
name: shipped
trainer: {loop: "mine:train_func", backend: torch}
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 2}
space:
  preprocessor: ["mine_steps:half"]
  scaling: {num_workers: 2}
  params: {x: {uniform: [0.0, 1.0]}}
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """Return a user's folder: a loop, a package that it needs, a step, and a data file that must
    not be shipped.
    """
    folder = tmp_path / "project"
    (folder / "pack").mkdir(parents=True)
    (folder / "mine.py").write_text(LOOP)
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "helper.py").write_text("def loss(x):\n    return (x - 0.5) ** 2\n")
    (folder / "mine_steps.py").write_text("def half(frame):\n    return frame / 2\n")
    (folder / "big.parquet").write_bytes(b"PAR1")
    (folder / "space.yaml").write_text(SPACE)
    return folder


# ---- pure


def test_only_folders_that_hold_named_modules_are_shipped(project, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    roots = (project, tmp_path / "elsewhere")
    assert shipped_code.roots_needed(
        ["mine:train_func", "sklearn.preprocessing:PowerTransformer"], roots
    ) == [project]
    assert shipped_code.roots_needed(["pack.helper:loss"], roots) == [project]
    assert shipped_code.roots_needed(["sweeps.trainers.xgboost:train_func"], roots) == []


def test_only_code_is_shipped(project, tmp_path):
    for path in (
        ".git/config",
        "venv/pyvenv.cfg",
        "runs/one/origin.json",
        "runs/mlflow.db",
        "notes.txt",
        "__pycache__/x.pyc",
    ):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("x")
    stage = tmp_path / "stage"
    stage.mkdir()
    shipped = shipped_code.environment(load(project / "space.yaml"), (project,), stage)
    there = {str(f.relative_to(stage)) for f in stage.rglob("*") if f.is_file()}
    assert there == {
        "mine.py",
        "mine_steps.py",
        "pack/__init__.py",
        "pack/helper.py",
        "space.yaml",
        "notes.txt",
    }
    assert [Path(p).name for p in shipped["py_modules"]] == ["sweeps"]


def test_the_folder_of_a_script_is_shipped(project, tmp_path):
    stage, elsewhere = tmp_path / "stage", tmp_path / "elsewhere"
    stage.mkdir()
    elsewhere.mkdir()
    (project / "train.py").write_text("")
    text = (
        'trainer: {command: [python, train.py, "{args}"]}\n'
        "objective: {metric: loss, goal: minimize}\n"
        "space: {params: {x: {grid: [1]}}}\n"
    )
    (project / "script.yaml").write_text(text)
    shipped_code.environment(load(project / "script.yaml"), (elsewhere, project), stage)
    assert (stage / "train.py").is_file()


def test_code_that_is_too_large_is_refused(project, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped_code, "MOST_BYTES", 100)
    stage = tmp_path / "stage"
    stage.mkdir()
    with pytest.raises(InputError, match="the code in the folder of the space file has"):
        shipped_code.environment(load(project / "space.yaml"), (project,), stage)


def test_a_node_without_the_folder_is_named(tmp_path, monkeypatch):
    answers = {"10.0.0.1": True, "10.0.0.2": False}, ["10.0.0.3"]
    monkeypatch.setattr(shared_storage, "ask_nodes", lambda *_: answers)
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "origin.json").touch()
    with pytest.raises(InputError) as refused:
        shared_storage.check_storage(tmp_path / "sweep")
    problems = refused.value.problems
    assert [p.place for p in problems] == ["--dir", "--address"]
    assert (
        f"{tmp_path} is not the same folder on node 10.0.0.2" in problems[0].text
        and "every node shares" in problems[0].text
    )
    assert "10.0.0.3 did not answer" in problems[1].text


# ---- a Ray job


def test_in_a_ray_job_the_cluster_of_the_job_is_the_default(monkeypatch):
    monkeypatch.delenv(shipped_code.JOB_CONFIG, raising=False)
    assert ray_cluster.address_in_job() is None
    monkeypatch.setenv(shipped_code.JOB_CONFIG, "{}")
    assert ray_cluster.address_in_job() == "auto"


def test_code_of_sweeps_replaces_that_of_a_ray_job_whose_modules_are_kept(monkeypatch):
    shipped = {"working_dir": "/stage", "py_modules": ["/sweeps"], "excludes": []}
    monkeypatch.delenv(shipped_code.JOB_CONFIG, raising=False)
    assert shipped_code.with_job_modules(shipped) == shipped
    job = {"working_dir": "gcs://job.zip", "py_modules": ["gcs://more.zip"], "env_vars": {"A": "b"}}
    monkeypatch.setenv(shipped_code.JOB_CONFIG, json.dumps({"runtime_env": job}))
    assert shipped_code.with_job_modules(shipped) == {
        **shipped,
        "py_modules": ["/sweeps", "gcs://more.zip"],
    }
    monkeypatch.setenv(shipped_code.JOB_CONFIG, "{}")
    assert shipped_code.with_job_modules({"image_uri": "an/image"}) == {"image_uri": "an/image"}
    monkeypatch.setattr("ray.init", lambda **how: None)
    ray_cluster.join("auto", shipped)
    assert os.environ.pop(ray_cluster.OVERRIDE_JOB) == "1"


# ---- a cluster of two nodes on this machine


WAIT = "RAY_gcs_server_port_wait_time_s"


LATE = "The current node timed out during startup."


@pytest.mark.parametrize(
    "error, named, tries",
    [(LATE, "CPU or memory", 2), ("no space left on device", "no space left on device", 1)],
)
def test_a_ray_that_does_not_start_is_reported_with_the_next_step(
    project, monkeypatch, error, named, tries
):
    monkeypatch.delenv(WAIT, raising=False)
    limits = []

    def init(**_):
        limits.append(os.environ[WAIT])
        raise Exception(error)

    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    space = load(project / "space.yaml")
    with (
        pytest.raises(SweepsError) as caught,
        ray_cluster.ray_connection(space, project, (project,), None),
    ):
        pass
    said = str(caught.value)
    assert said.startswith("Ray did not start: ") and "\n" not in said
    assert said.endswith(f"sweeps resume {project}") and named in said
    assert limits == [str(seconds) for seconds in local_ray.START_WITHIN[:tries]]
    assert WAIT not in os.environ


def test_a_start_of_ray_that_hangs_is_tried_again(tmp_path, monkeypatch):
    starts = []

    def init(**_):
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
    monkeypatch, tmp_path, wants, has, mode, named
):
    def ask(address: str, mode: str) -> int | None:
        if wants == "away":
            return 1
        if mode == "token" and has == "none":
            return 1  # Ray ends the process.
        shown = has if mode == "token" else "none"
        return (
            ray_authentication.TAKEN if wants in (shown, "none") else ray_authentication.NEEDS_TOKEN
        )

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    if has != "none":
        (tmp_path / "token").write_text(has)
    monkeypatch.setattr(ray_authentication, "_ask", ask)
    monkeypatch.setattr(ray_authentication, "_mode", None)
    monkeypatch.setattr(ray_authentication, "_read_again", lambda: None)
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
def test_a_ray_that_fails_to_start_or_is_interrupted_leaves_no_process(interrupted):
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
def test_r18_and_r4_own_ray_listens_on_loopback_in_own_groups():
    done = subprocess.run(
        [sys.executable, "-c", LISTENING], capture_output=True, text=True, timeout=100, cwd=REPO
    )
    said = [line.split() for line in done.stdout.splitlines()]
    addresses = {word for kind, word in said if kind == "listens"}
    assert addresses and addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, done.stderr
    assert {word for kind, word in said if kind == "group"} == {"False"}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[tuple[str, Path]]:
    """Start two nodes that require a token. Yield their address and the token's file."""
    with nodes() as started:
        started.head("--num-cpus=2", "--include-dashboard=false")
        started.start("--num-cpus=2", f"--address={started.address}")
        yield started.address, started.token


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_users_code_reaches_the_nodes_of_a_cluster_that_wants_a_token(
    two_nodes, project, tmp_path, monkeypatch
):
    address, token = two_nodes
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    process = command(
        "run", project / "space.yaml", "--dir", tmp_path / "runs", "--address", address, "--json"
    )
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 2, "pruned": 0, "failed": 0} and result["fits"] == 1
    logs = list(Path(result["dir"]).glob("trials/0000/logs/rank-*.log"))
    assert len(logs) == 2
    for log in logs:
        assert "loop is at" in log.read_text()
        assert str(project) not in log.read_text(), (
            "a worker read the code where the user typed the command"
        )


LIMITED = """
import os, time
from pathlib import Path
import ray.train


def train(config):
    import extra

    assert os.environ["SHIFT"] == "3" and Path("settings.txt").read_text() == "7"
    here = Path(config["folder"])
    (here / str(os.getpid())).touch()
    most, end = 0, time.monotonic() + 2
    while most < 3 and time.monotonic() < end:  # With a limit of two CPUs, there are never three.
        most = max(most, len(list(here.iterdir())))
        time.sleep(0.02)
    (here / str(os.getpid())).unlink()
    ray.train.report({"together": most, "extra": extra.VALUE})
"""


@pytest.mark.long
@pytest.mark.timeout(240)
def test_sweep_on_cluster_keeps_environment_and_limit(two_nodes, tmp_path, monkeypatch):
    address, token = two_nodes
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    for name, text in {
        "code/limited.py": LIMITED,
        "libs/extra/__init__.py": "VALUE = 5\n",
        "files/settings.txt": "7",
        "here/x": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "here" / "x").unlink()
    (tmp_path / "code" / "space.yaml").write_text(f"""
trainer: {{loop: "limited:train"}}
objective: {{metric: together, goal: maximize}}
limits: {{max_trials: 6, max_concurrent_trials: 4}}
runtime_env: {{env_vars: {{SHIFT: 3}}, py_modules: [../libs/extra], working_dir: ../files}}
trackers: []
space: {{params: {{folder: {tmp_path}/here, x: {{uniform: [0, 1]}}}}}}
""")
    process = command(
        "run",
        tmp_path / "code" / "space.yaml",
        "--dir",
        tmp_path / "runs",
        "--address",
        address,
        "--cpus",
        2,
        "--json",
    )
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"]["completed"] == 6 and result["best"]["value"] == 2, (
        "two trials at once, although four CPUs are there"
    )
