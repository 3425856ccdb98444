"""Start the Ray instance of a sweep on this machine, and watch its processes."""

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil

from sweeps.core.errors import SweepsError
from sweeps.core.host import crash_cleanup
from sweeps.core.host.host_resources import GPU_IDS
from sweeps.core.text.command_hints import resume_command

from .ray_errors import last_line

log = logging.getLogger(__name__)

# Time limits for the start of Ray's processes in the first and the second try, in seconds. Now and
# then a process of Ray hangs while it starts. A busy machine may need the second limit.
START_WITHIN = (30, 120)
LOOK_EVERY = 1.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@contextlib.contextmanager
def _variable(name: str, value: str | None) -> Iterator[None]:
    """Within the `with` block, an environment variable has a value.

    With None, it stays as it is.
    """
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if before is not None:
            os.environ[name] = before
        elif value is not None:
            del os.environ[name]


def only_gpus(gpu_ids: tuple[str, ...] | None) -> contextlib.AbstractContextManager[None]:
    """Within the `with` block, `ray.init` starts a Ray that uses only these GPUs; all for None."""
    return _variable(GPU_IDS, None if gpu_ids is None else ",".join(gpu_ids))


def start(folder: Path, cpus: int, runtime_env: Mapping[str, Any] | None = None) -> None:
    """Start a Ray instance for this sweep.

    If this takes too long, try once more with a longer time limit. A start that fails or is
    interrupted leaves no process of Ray.

    Args:
        folder: The sweep's folder.
        cpus: Number of CPUs for `ray.init`, which may be more than the machine has; see
            `ray_cluster.RayConnection`.
        runtime_env: Runtime environment for `ray.init`; None for no runtime environment.

    Raises:
        SweepsError: Ray did not start.
    """
    import ray
    from ray._private import ray_constants

    for seconds in START_WITHIN:
        try:
            with (
                crash_cleanup.cleaned_up_on_failure(),
                patient_and_separate(seconds),
                minimal_processes(),
                # Ray listens only on the loopback address, as by default on macOS and Windows.
                patch.multiple(ray_constants, ENABLE_RAY_CLUSTER=False),
            ):
                # "local" ignores RAY_ADDRESS and `ray start`.
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    runtime_env=runtime_env or None,
                    **QUIET,
                )
            return
        except Exception as e:  # Ray raises exceptions of many classes here.
            log.exception("Ray did not start within %g s", seconds)
            why = last_line(e).rstrip(".")
            late = "timed out" in str(e).lower()
            if late and seconds != START_WITHIN[-1]:
                continue
            if late:
                why += "; if the machine lacks CPU or memory, end other programs and try again"
            raise SweepsError(f"Ray did not start: {why}{_resume_hint(folder)}") from e


@contextlib.contextmanager
def patient_and_separate(seconds: float) -> Iterator[None]:
    """Within the `with` block, `ray.init` waits long for Ray's processes, which get own groups.

    Ray has no option for the time that the raylet may take to start, or for process groups. A
    signal to the driver's process group, for example from `timeout`, must end only the driver,
    so that the driver can stop the sweep cleanly.

    Args:
        seconds: The time limit for the start of Ray's processes.
    """
    from ray._private import services

    plain_node: Any = services.get_node
    plain_popen: Any = services.ConsolePopen
    deadline = time.monotonic() + seconds

    def get_node(*what: Any) -> Any:
        while True:
            try:
                return plain_node(*what)
            except RuntimeError:  # The raylet has not registered yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def popen(*what: Any, **how: Any) -> Any:
        return plain_popen(*what, **{"process_group": 0, **how})

    name = "RAY_gcs_server_port_wait_time_s"
    limit = None if name in os.environ else str(seconds)
    with _variable(name, limit), patch.multiple(services, get_node=get_node, ConsolePopen=popen):
        yield


@contextlib.contextmanager
def minimal_processes() -> Iterator[None]:
    """Within the `with` block, `ray.init` starts only the processes of Ray that a sweep needs.

    `ray.init` then starts neither the autoscaler's monitor, nor the monitor that sends workers'
    logs to the driver, nor the dashboard's server. Each of these would be a Python process that
    imports Ray. The agent of the dashboard starts without web server and metrics.
    """
    from ray._private import utils
    from ray._private.node import Node

    names = ("start_monitor", "start_log_monitor", "start_api_server")
    nothing: dict[str, Any] = dict.fromkeys(names, lambda self, **_: None)
    not_needed = ImportError("not needed")
    with (
        patch.multiple(Node, **nothing),
        patch.multiple(utils, get_dashboard_dependency_error=lambda: not_needed),
    ):
        yield


def _resume_hint(folder: Path) -> str:
    """Return the part of an error message that says how to resume the sweep.

    Return "" if the sweep has recorded nothing yet.
    """
    if not (folder / "space.yaml").is_file():
        return ""
    return (
        f"; everything that was recorded is safe. To continue the sweep: {resume_command(folder)}"
    )


class RayWatch(threading.Thread):
    """Thread that ends this process when the Ray instance of the sweep has died.

    Ray itself would end this process only after a minute.

    Args:
        folder: The sweep's folder. The ids of Ray's processes are recorded in this folder.
        node: The `ray._private.node.Node` of this machine.
    """

    def __init__(self, folder: Path, node: Any):
        super().__init__(name="watch", daemon=True)
        pids = {
            name: [p.process.pid for p in processes]
            for name, processes in node.all_processes.items()
        }
        ours = [child.pid for child in psutil.Process().children() if _tracks(child)]
        crash_cleanup.record_ray(
            folder, node.get_session_dir_path(), [*ours, *itertools.chain(*pids.values())]
        )
        self.folder = folder
        self.vital = {name: psutil.Process(pids[name][0]) for name in ("raylet", "gcs_server")}
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        """Look at Ray's processes until `end` is called."""
        while not self.over.wait(LOOK_EVERY):
            for name, process in self.vital.items():
                if not _is_running(process) and not self.over.is_set():
                    os.write(
                        2, f"Ray's process {name} has died{_resume_hint(self.folder)}\n".encode()
                    )
                    os._exit(1)

    def end(self) -> None:
        """Stop to watch, before Ray is shut down."""
        self.over.set()
        self.join()


def _tracks(process: psutil.Process) -> bool:
    """Return whether a process is the one that writes to MLflow.

    This process may outlive the driver; a resumed sweep waits for its end.
    """
    try:
        return any("sweeps.tracking.mlflow.tracker_process" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
