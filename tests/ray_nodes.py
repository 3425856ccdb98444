"""Start the nodes of a Ray cluster on this machine by `ray start`, and end them by their process
ids.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.waiting import wait_until

LOOP = """\
import os
import time
import ray
import ray.train
from pathlib import Path
from pack import helper


def train_func(config):
    print("FROM_THE_JOB=" + os.environ.get("FROM_THE_JOB", ""))
    print("cluster nodes:", len(ray.nodes()), "with", int(ray.cluster_resources()["CPU"]))
    for step in range(3):
        while step == 1 and not Path(config["latch"], "go").exists() and config["x"] != 0.0:
            Path(config["latch"], f"{os.getpid()}.waits").touch()
            time.sleep(0.02)
        ray.train.report({"loss": helper.loss(config["x"])})
"""
SPACE = """\
name: job
trainer: {{loop: "mine:train_func", backend: none}}
data: {{train: train.csv, label: label, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 4, max_concurrent_trials: 2}}
space:
  params: {{x: {{grid: [0.0, 1.0, 2.0, 3.0]}}, latch: {latch}}}
"""


def write_project(tmp_path: Path) -> Path:
    """Write a folder with a space file, its data, a loop, and a package that the loop imports.

    Of the four trials, one ends at once. The others wait for the file `go` in `tmp_path`, and write
    files `*.waits` there.
    """
    folder = tmp_path / "project"
    (folder / "pack").mkdir(parents=True)
    (folder / "mine.py").write_text(LOOP)
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "helper.py").write_text("def loss(x):\n    return (x - 0.5) ** 2\n")
    (folder / "train.csv").write_text(
        "a,label\n" + "".join(f"{i},{'yes' if i % 2 else 'no'}\n" for i in range(40))
    )
    (folder / "space.yaml").write_text(SPACE.format(latch=tmp_path))
    return folder


class Nodes:
    """The nodes of one cluster, which accepts processes with the token in the file `token`.

    Args:
        home: Folder for Ray's files and the nodes' output. Its path is short, because the path of a
            socket has 107 characters at most.
        env: Environment variables of the nodes, in addition to those of this process.
    """

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self.home, self.token, self.port = home, home / "token", free_port()
        self.token.write_text("0123456789abcdef0123456789abcdef")
        self.token.chmod(0o600)
        self.env = {**os.environ, **self.credentials, **env}
        self.env.pop("PYTHONPATH", None)
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def credentials(self) -> dict[str, str]:
        """Environment variables with which a process uses the cluster."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}

    def head(self, *args: str) -> None:
        self.start("--head", f"--port={self.port}", f"--temp-dir={self.home}/r", *args)

    def start(self, *args: str, hidden: Path | None = None) -> None:
        """Start a node.

        The node sees the folder `hidden` empty, as if the folder were on another machine's disk.
        """
        apart = (
            ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$@"', "sh"]
            if hidden
            else []
        )
        full = [
            *apart,
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--block",
            "--disable-usage-stats",
            *args,
        ]
        output = self.home / f"{len(self.processes)}.log"
        with output.open("w") as log:
            self.processes.append(
                subprocess.Popen(
                    full,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    start_new_session=True,
                    cwd=self.home,
                )
            )

        def is_up() -> bool:
            said = output.read_text()
            assert "Error" not in said, said
            return "Ray runtime started" in said

        wait_until(is_up, 120, f"a node: {' '.join(args)}")

    def members(self) -> list[psutil.Process]:
        """Return the processes of all nodes."""
        return [
            member
            for process in self.processes
            for member in psutil.Process(process.pid).children(recursive=True)
        ]

    def end(self) -> None:
        members = self.members()
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
        for member in members:  # Ray's daemons lead sessions of their own.
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(members, timeout=20)


@contextlib.contextmanager
def nodes(**env: str) -> Iterator[Nodes]:
    """Yield a cluster without nodes. Its nodes end after the block."""
    home = Path(
        tempfile.mkdtemp(prefix="c-", dir=os.environ.get("RAY_TMPDIR"))
    )  # A short path, see `Nodes`.
    started = Nodes(home, env)
    try:
        yield started
    finally:
        started.end()
        shutil.rmtree(home, ignore_errors=True)
