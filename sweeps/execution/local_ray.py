"""Start the Ray instance of a sweep on this machine, and watch its processes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from sweeps.core import crash_cleanup
from sweeps.core.command_hints import resume_command
from sweeps.core.errors import SweepsError
from sweeps.core.host_resources import GPU_IDS
from sweeps.execution.ray_errors import in_a_line

log = logging.getLogger(__name__)

# Time limits for the start of Ray's processes in the first and the second try, in seconds. A busy
# machine may need the second limit.
START_WITHIN = (30, 120)
LOOK_EVERY = 1.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@contextlib.contextmanager
def only_gpus(gpu_ids: tuple[str, ...] | None) -> Iterator[None]:
    """Within the `with` block, `ray.init` starts a Ray instance that uses only these GPUs, or all GPUs for None."""
    before = os.environ.get(GPU_IDS)
    if gpu_ids is not None:
        os.environ[GPU_IDS] = ",".join(gpu_ids)
    try:
        yield
    finally:
        if gpu_ids is not None:
            os.environ.pop(GPU_IDS)
            if before is not None:
                os.environ[GPU_IDS] = before


def start(folder: Path, cpus: int, runtime_env: Mapping[str, Any] | None = None) -> None:
    """Start a Ray instance for this sweep.

    If this takes too long, try once more with a longer time limit. A start that fails or is
    interrupted leaves no process of Ray.

    Args:
        folder: The sweep's folder.
        cpus: Number of CPUs for `ray.init`, which may be more than the machine has; see
            `cluster.RayConnection`.
        runtime_env: Runtime environment for `ray.init`; None for no runtime environment.

    Raises:
        SweepsError: Ray did not start.
    """
    import ray

    for limit in START_WITHIN:
        try:
            with (
                crash_cleanup.cleaned_up_on_failure(),
                _start_timeout(limit),
                minimal_processes(),
                _own_process_groups(),
                _on_loopback(),
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
            log.exception("Ray did not start within %g s", limit)
            late, last = "timed out" in str(e).lower(), limit == START_WITHIN[-1]
            why = in_a_line(e).rstrip(".")
            if not late:
                raise SweepsError(f"Ray did not start: {why}{_resume_hint(folder)}") from e
            if last:
                limits = ", ".join(f"{seconds:g} s" for seconds in START_WITHIN)
                tried = f"Ray did not start in {len(START_WITHIN)} attempts (time limits: {limits})"
                advice = "if the machine lacks CPU or memory, end other programs and try again"
                raise SweepsError(f"{tried}: {why}; {advice}{_resume_hint(folder)}") from e


@contextlib.contextmanager
def _start_timeout(limit: float) -> Iterator[None]:
    """Within the `with` block, `ray.init` waits up to `limit` seconds for Ray's processes.

    Ray has no option for the time that the raylet may take to start. So a private function of Ray
    is replaced.
    """
    from ray._private import services

    plain, deadline = services.get_node, time.monotonic() + limit

    def get_node(*what: Any) -> Any:
        while True:
            try:
                return plain(*what)
            except RuntimeError:  # The raylet has not registered yet.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    name = "RAY_gcs_server_port_wait_time_s"
    given = os.environ.get(name)
    os.environ[name] = given or str(limit)
    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = plain
        if given is None:
            del os.environ[name]


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
    plain = {name: getattr(Node, name) for name in names if hasattr(Node, name)}
    for name in plain:
        setattr(Node, name, lambda self, **_: None)
    dependency_error = utils.get_dashboard_dependency_error
    utils.get_dashboard_dependency_error = lambda: ImportError("not needed")
    try:
        yield
    finally:
        utils.get_dashboard_dependency_error = dependency_error
        for name, method in plain.items():
            setattr(Node, name, method)


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Within the `with` block, `ray.init` starts a Ray instance that listens only on the loopback address.

    On macOS and Windows, this is Ray's default.
    """
    from ray._private import ray_constants

    plain = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = plain


@contextlib.contextmanager
def _own_process_groups() -> Iterator[None]:
    """Within the `with` block, `ray.init` starts each process of Ray in a process group of its own.

    A signal to the driver's process group, for example from `timeout`, then ends only the driver.
    If the signal ended Ray too, the driver could not stop the sweep cleanly.
    """
    from ray._private import services as starting

    services: Any = starting
    plain = services.ConsolePopen

    def popen(*what: Any, **how: Any) -> Any:
        return plain(*what, **{"process_group": 0, **how})

    services.ConsolePopen = popen
    try:
        yield
    finally:
        services.ConsolePopen = plain


def _resume_hint(folder: Path) -> str:
    """Return the part of an error message that says how to resume the sweep.

    Return "" if the sweep has recorded nothing yet.
    """
    return (
        f"; everything that was recorded is safe. To continue the sweep: {resume_command(folder)}"
        if (folder / "space.yaml").is_file()
        else ""
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
        found = node.all_processes
        ours = [child.pid for child in psutil.Process().children() if _tracks(child)]
        crash_cleanup.record_ray(
            folder,
            node.get_session_dir_path(),
            [*ours, *(p.process.pid for each in found.values() for p in each)],
        )
        self.folder = folder
        self.vital = {
            name: psutil.Process(found[name][0].process.pid)
            for name in ("raylet", "gcs_server")
            if found.get(name)
        }
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
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
