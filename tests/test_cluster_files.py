"""The files of docs/clusters, as far as they can be checked without Kubernetes, Slurm, Docker and a
cloud.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from sweeps.cli import main
from tests.commands import REPO
from tests.ray_nodes import write_project
from tests.waiting import wait_until

FILES = REPO / "docs" / "clusters"
SLURM, DOCKERFILE = FILES / "slurm.sh", FILES / "Dockerfile"
(RAY,) = re.findall(r"^ray==(.+)$", (REPO / "constraints.txt").read_text(), re.M)


def tool(name: str) -> str:
    """Return the path of a linter that the extra `dev` installs."""
    program = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


def lint(*command: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def parses(command: str) -> None:
    """Check that `sweeps` has the verb and the options of a command."""
    first, verb, *arguments = shlex.split(command)
    assert first == "sweeps"
    main.commands[verb].make_context(verb, arguments)


# ---- Kubernetes


TEXT, WHOLE, TRUTH = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
# The part of KubeRay's API `ray.io/v1` that the manifest uses, by its reference for version 1.7.
# The manifest was also checked against the whole schema of the RayJob that KubeRay 1.7 installs, by
# hand.


def test_the_ray_job_runs_a_command_of_sweeps_and_sets_variables_as_text() -> None:
    spec = yaml.safe_load((FILES / "kuberay.yaml").read_text())["spec"]
    parses(spec["entrypoint"])
    variables = yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]
    assert all(isinstance(value, str) for value in variables.values())


# ---- ray up


def test_the_cluster_file_has_the_schema_that_ray_ships() -> None:
    config = prepare_config(yaml.safe_load((FILES / "ray-up.yaml").read_text()))
    validate_config(config)
    assert config["head_node_type"] in config["available_node_types"]
    assert any(
        "ray start --head" in line and "--autoscaling-config" in line
        for line in config["head_start_ray_commands"]
    )
    del config["provider"]["type"]
    with pytest.raises(jsonschema.ValidationError):
        validate_config(config)


# ---- Docker


def test_the_dockerfile_has_no_mistakes_that_hadolint_finds() -> None:
    lint(tool("hadolint"), DOCKERFILE)


def test_the_dockerfile_copies_files_that_exist_onto_the_tested_ray() -> None:
    text = DOCKERFILE.read_text()
    assert re.findall(r"^FROM rayproject/ray:(\S+)-py311$", text, re.M) == [RAY]
    copied = [
        word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[1:-1]
    ]
    assert "pyproject.toml" in copied and all((REPO / name).exists() for name in copied)


# ---- Slurm


def test_the_slurm_script_has_no_mistakes_that_bash_and_shellcheck_find() -> None:
    lint("bash", "-n", SLURM)
    lint(tool("shellcheck"), SLURM)


def test_the_slurm_script_shows_commands_of_sweeps() -> None:
    shown = re.findall(r"^#   sbatch slurm.sh (.*)$", SLURM.read_text(), re.M)
    assert len(shown) == 2
    for command in shown:
        parses(f"sweeps {command}")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a Slurm job with two nodes, which are both this machine.

    `srun` starts its command here.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    fakes = {
        "scontrol": 'echo "127.0.0.1"\necho "other"',
        "srun": f'echo "$*" >> {tmp_path}/srun.log\nwhile [ "${{1#--}}" != "$1" ]; do shift; done\n'
        'exec "$@"',
    }
    for name, text in fakes.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    short = (
        Path("/tmp") / f"slurm-{os.getpid()}"
    )  # The path of a socket has 107 characters at most.
    env = {
        **os.environ,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    for name in ("PYTHONPATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        env.pop(name, None)
    job = {
        "SLURM_JOB_NODELIST": "two",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_CPUS_PER_TASK": "2",
        "RAY_TMPDIR": str(short),
    }
    yield env | job
    shutil.rmtree(short, ignore_errors=True)


def start(env: dict[str, str], *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SLURM), *map(str, args)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.long
@pytest.mark.timeout(400)
def test_slurm_script_stops_before_time_ends_and_resumes(slurm: Any, tmp_path: Path) -> None:
    space, runs = write_project(tmp_path) / "space.yaml", tmp_path / "runs"
    job = start(slurm, "run", space, "--dir", runs)
    try:
        wait_until(
            lambda: len(list(tmp_path.glob("*.waits"))) == 2 or job.poll() is not None,
            120,
            "two trials to wait",
        )
        members = psutil.Process(job.pid).children(recursive=True)
        members = [
            member for member in members if "Agent" not in " ".join(member.cmdline())
        ]  # They end some time after their node.
        job.send_signal(signal.SIGTERM)  # As `--signal=B:TERM@300`, to the script alone.
        said, _ = job.communicate(timeout=100)
        assert job.returncode == 130 and "stopping: " in said, said
        psutil.wait_procs(members, 30)
        assert [member for member in members if member.is_running()] == []
        (folder,) = runs.glob("job-*")
        (tmp_path / "go").touch()
        job = start(slurm, "resume", folder)
        said, _ = job.communicate(timeout=150)
        assert job.returncode == 0, said
        result = json.loads((folder / "result.json").read_text())
        assert result["trials"] == {"completed": 4, "pruned": 0, "failed": 0}
        steps = (tmp_path / "srun.log").read_text()
        assert (
            steps.count("--nodelist=127.0.0.1 ray start --head") == 2
            and steps.count("--exclude=127.0.0.1 ray start --address") == 2
        )
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(20)
