"""A sweep on an existing cluster: shipped code, shared storage, and the cluster's token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.execution.cluster import (
    ray_cluster,
    shared_storage,
    shipped_code,
)
from sweeps.space import load
from tests.commands import command
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
def project(tmp_path: Path) -> Path:
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


def test_only_folders_that_hold_named_modules_are_shipped(project: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    roots = (project, tmp_path / "elsewhere")
    assert shipped_code.roots_needed(
        ["mine:train_func", "sklearn.preprocessing:PowerTransformer"], roots
    ) == [project]
    assert shipped_code.roots_needed(["pack.helper:loss"], roots) == [project]
    assert shipped_code.roots_needed(["sweeps.trainers.xgboost:train_func"], roots) == []


def test_only_code_is_shipped(project: Any, tmp_path: Path) -> None:
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


def test_the_folder_of_a_script_is_shipped(project: Any, tmp_path: Path) -> None:
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


def test_code_that_is_too_large_is_refused(
    project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_code, "MOST_BYTES", 100)
    stage = tmp_path / "stage"
    stage.mkdir()
    with pytest.raises(InputError, match="the code in the folder of the space file has"):
        shipped_code.environment(load(project / "space.yaml"), (project,), stage)


def test_a_node_without_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_in_a_ray_job_the_cluster_of_the_job_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(shipped_code.JOB_CONFIG, raising=False)
    assert ray_cluster.address_in_job() is None
    monkeypatch.setenv(shipped_code.JOB_CONFIG, "{}")
    assert ray_cluster.address_in_job() == "auto"


def test_code_of_sweeps_replaces_that_of_a_ray_job_whose_modules_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    two_nodes: Any, project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_sweep_on_cluster_keeps_environment_and_limit(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
