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
from sweeps.core.host.processes import is_alive
from sweeps.core.text.command_hints import resume_command

from .ray_errors import last_line

log = logging.getLogger(__name__)

# Time limits for the start of Ray's processes in the first and the second try, in seconds. Now and
# then a process of Ray hangs while it starts. A busy machine may need the second limit.
START_WITHIN = (30, 120)
# Seconds between two looks at Ray's processes
WATCH_INTERVAL = 1.0
# Arguments of `ray.init`, with which Ray prints no messages of its own or of the workers.
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@contextlib.contextmanager
def _set_variable(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable while the `with` block runs. With None, do not change it."""
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


def limit_gpus(gpu_ids: tuple[str, ...] | None) -> contextlib.AbstractContextManager[None]:
    """Let `ray.init` use only these GPUs while the `with` block runs; all GPUs for None."""
    return _set_variable(GPU_IDS, None if gpu_ids is None else ",".join(gpu_ids))


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
                crash_cleanup.clean_up_on_failure(),
                patch_process_start(seconds),
                start_fewer_processes(),
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
            timed_out = "timed out" in str(e).lower()
            if timed_out and seconds != START_WITHIN[-1]:
                continue
            if timed_out:
                why += "; if the machine lacks CPU or memory, end other programs and try again"
            raise SweepsError(f"Ray did not start: {why}{_resume_hint(folder)}") from e


@contextlib.contextmanager
def patch_process_start(seconds: float) -> Iterator[None]:
    """Change how `ray.init` starts Ray's processes while the `with` block runs.

    `ray.init` then waits longer for the processes, and each process gets a process group of its
    own. Ray has no options for this. A signal to the driver's process group, for example from
    `timeout`, must end only the driver, so that the driver can stop the sweep cleanly.

    Args:
        seconds: The time limit for the start of Ray's processes.
    """
    from ray._private import services

    original_get_node: Any = services.get_node
    original_popen: Any = services.ConsolePopen
    deadline = time.monotonic() + seconds

    def get_node(*args: Any) -> Any:
        while True:
            try:
                return original_get_node(*args)
            except RuntimeError:  # The raylet has not registered yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def popen(*args: Any, **kwargs: Any) -> Any:
        return original_popen(*args, **{"process_group": 0, **kwargs})

    name = "RAY_gcs_server_port_wait_time_s"
    limit = None if name in os.environ else str(seconds)
    patched = patch.multiple(services, get_node=get_node, ConsolePopen=popen)
    with _set_variable(name, limit), patched:
        yield


@contextlib.contextmanager
def start_fewer_processes() -> Iterator[None]:
    """Let `ray.init` start only the processes that a sweep needs, while the `with` block runs.

    `ray.init` then starts neither the autoscaler's monitor, nor the monitor that sends workers'
    logs to the driver, nor the dashboard's server. Each of these would be a Python process that
    imports Ray.
    """
    from ray._private import utils
    from ray._private.node import Node

    names = ("start_monitor", "start_log_monitor", "start_api_server")
    do_nothing: dict[str, Any] = dict.fromkeys(names, lambda self, **_: None)
    # If the dashboard's packages are missing, its agent starts without web server and metrics.
    error = ImportError("not needed")
    with (
        patch.multiple(Node, **do_nothing),
        patch.multiple(utils, get_dashboard_dependency_error=lambda: error),
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
        folder: The sweep's folder. `ray.json` in this folder records Ray's processes, and the
            process that writes to MLflow.
        node: The `ray._private.node.Node` of this machine.
    """

    def __init__(self, folder: Path, node: Any):
        super().__init__(name="watch", daemon=True)
        pids = {
            name: [p.process.pid for p in processes]
            for name, processes in node.all_processes.items()
        }
        trackers = [child.pid for child in psutil.Process().children() if _writes_to_mlflow(child)]
        crash_cleanup.record_ray(
            folder, node.get_session_dir_path(), [*trackers, *itertools.chain(*pids.values())]
        )
        self.folder = folder
        self.watched = {name: pids[name][0] for name in ("raylet", "gcs_server")}
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Look at Ray's processes until `end` is called."""
        while not self.ended.wait(WATCH_INTERVAL):
            for name, pid in self.watched.items():
                if not is_alive(pid) and not self.ended.is_set():
                    os.write(
                        2, f"Ray's process {name} has died{_resume_hint(self.folder)}\n".encode()
                    )
                    os._exit(1)

    def end(self) -> None:
        """Stop watching. Call this before Ray is shut down."""
        self.ended.set()
        self.join()


def _writes_to_mlflow(process: psutil.Process) -> bool:
    """Return whether a process is the one that writes to MLflow. It may outlive the driver."""
    try:
        return any("sweeps.tracking.mlflow.tracker_process" in part for part in process.cmdline())
    except psutil.Error:
        return False
