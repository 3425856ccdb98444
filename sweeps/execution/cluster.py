"""Provide Ray for a sweep: a local Ray instance that is started for the sweep, the Ray that this process is connected to, or a cluster.

If the sweep runs on a cluster, this module also packages the user's code and checks that all nodes share the sweep's folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sweeps.core import crash_cleanup, host_resources, references, stores
from sweeps.core.command_hints import DEFAULT_ROOT, resume_command
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.host_resources import GPU_IDS
from sweeps.core.machine_share import EVERYTHING, Share
from sweeps.core.resources import parked_cpus, stream_cpus
from sweeps.core.sweep_folder import ORIGIN
from sweeps.execution import ray_version
from sweeps.space import Space
from sweeps.space.model import command_files, user_references

log = logging.getLogger(__name__)

# Limits on the code that is sent to a cluster. Data files, generated folders and hidden files are not sent.
MOST_BYTES = 50 * 2**20
LARGEST_FILE = 2 * 2**20
LEFT_OUT = ("__pycache__", "node_modules", "site-packages", DEFAULT_ROOT, "mlruns", "mlartifacts", "venv", "build", "dist")
DATA = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".db", ".pt", ".bin", ".npy", ".npz", ".zip", ".gz")
ANSWER_WITHIN = 60.0
NO_ANSWER = object()  # Result for a node that does not answer within this time.
AUTH_MODE = "RAY_AUTH_MODE"
# Ray sets this variable for the command of a Ray job (`ray job submit`).
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
OVERRIDE_JOB = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
MONITOR = "RAY_memory_monitor_refresh_ms"  # Ray's memory monitor. `sweeps.execution.memory_guard` is used instead.
SPARE_CPUS = 1
# Time limits for the start of Ray's processes in the first and the second try, in seconds. A busy machine may need the second limit.
START_WITHIN = (30, 120)
# Ray keeps one idle process for each CPU, and this many more. Otherwise each fit of a preprocessing chain would start new processes.
IDLE_PROCESSES = 8
# Niceness of Ray's workers. With Ray's default of 15, MLflow's process at 19 would use a third of a core that it shares with a worker.
NICENESS = 0
LOOK_EVERY = 1.0
END_WITHIN = 10.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@dataclass(frozen=True)
class RayConnection:
    """The Ray instance or cluster on which a sweep runs.

    A Ray instance that is started for the sweep counts more CPUs than the machine has. It has `SPARE_CPUS` additional CPUs, so that the
    tasks of a fit can run while workers hold all other CPUs. It also has `parked` additional CPUs for idle workers. The pool, not Ray,
    decides which workers compute at the same time.

    Attributes:
        ours: Whether Ray was started for this sweep. If so, Ray ends together with the sweep.
        roots: Folders in which the workers look for the user's modules. Empty if the code was sent to the cluster.
        nodes: Resources of each node, without the additional CPUs.
        total: Resources of all nodes together, without the additional CPUs.
        parked: Number of additional CPUs for idle workers.
        limit: Amount of each limited resource that the sweep may hold, if Ray was not started for the sweep. None if there is no limit.
        stream_cpus: Number of CPUs that only the tasks of Ray Data use, if the data is streamed; else 0. `total` does not include them.
    """

    ours: bool
    roots: tuple[str, ...]
    nodes: tuple[dict[str, float], ...]
    total: dict[str, float]
    parked: int = 0
    limit: dict[str, float] | None = None
    stream_cpus: int = 0

    @property
    def cpus(self) -> float | None:
        """Number of CPUs that tasks of Ray Data may use at the same time. None if they may use all CPUs that Ray counts."""
        return self.total["CPU"] if self.ours or "CPU" in (self.limit or {}) else None


@contextlib.contextmanager
def ray_connection(
    space: Space, folder: Path, roots: tuple[Path, ...], address: str | None, share: Share = EVERYTHING
) -> Iterator[RayConnection]:
    """Connect to Ray, or start a Ray instance, for the duration of the `with` block.

    Args:
        space: The search space, which names the user's modules.
        folder: The sweep's folder, which all nodes must share.
        roots: Folders of the user's modules.
        address: Address of a cluster; None for no cluster. If this process is connected to Ray already, the address is ignored. If it
            is not connected and there is no address, a Ray instance is started.
        share: The CPUs and GPUs that the sweep may use.

    Yields:
        The description of the Ray instance or cluster.

    Raises:
        InputError: The cluster cannot be reached, the code is too large to send, a node does not share the folder, or Ray cannot set up
            `runtime_env`.
        SweepsError: The Ray instance for this sweep did not start.
    """
    import ray

    streams = space.data.ingest == "stream"
    ray_version.warn_once(ray.__version__)
    if ray.is_initialized():
        if space.runtime_env.for_ray():
            text = (
                "this process is already connected to Ray, so Ray cannot set up `runtime_env`; "
                "pass `runtime_env` to `ray.init`, or call `ray.shutdown()` first"
            )
            raise InputError(Problem(space.place("runtime_env"), f"runtime_env: {text}"))
        yield _describe_connection(False, roots, streams, limit=share.limit)
        return
    parked = added = 0
    with tempfile.TemporaryDirectory(prefix="sweeps-code-") as stage:
        if address:
            check_reachable(address)
            join(address, environment(space, roots, Path(stage)))
        else:
            forget_authentication()
            there = int(host_resources.detect()["CPU"])
            cpus = share.cpus or there
            parked = parked_cpus(cpus, host_resources.memory() * cpus / there)
            added = stream_cpus(cpus) if streams else 0
            os.environ.setdefault("RAY_num_workers_soft_limit", str(cpus + parked + IDLE_PROCESSES))
            os.environ.setdefault("RAY_worker_niceness", str(NICENESS))
            os.environ.setdefault(MONITOR, "0")
            os.environ.setdefault("RAY_enable_metrics_collection", "0")  # Nothing collects them.
            with _only_gpus(share.gpu_ids):
                start(folder, cpus + SPARE_CPUS + parked + added, space.runtime_env.for_ray())
    node = None if address else ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    watch = _Watch(folder, node) if node is not None else None
    try:
        await_runtime_env(space)
        if address and (store := stores.store_of(folder)) is not None:
            check_store_on_nodes(store)
        elif address:
            check_storage(folder)
        yield _describe_connection(address is None, () if address else roots, streams, parked, added, share.limit if address else None)
    except BaseException:
        session = None  # Keep the folder of the Ray session: its logs may show the cause.
        raise
    finally:
        if watch is not None:
            watch.end()
        ray.shutdown()
        crash_cleanup.delete_ray_record(folder)
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


@contextlib.contextmanager
def _only_gpus(gpu_ids: tuple[str, ...] | None) -> Iterator[None]:
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
    """Start a Ray instance for this sweep. If this takes too long, end Ray's processes and try once more with a longer time limit.

    Args:
        folder: The sweep's folder.
        cpus: Number of CPUs for `ray.init`, which may be more than the machine has; see `RayConnection`.
        runtime_env: Runtime environment for `ray.init`; None for no runtime environment.

    Raises:
        SweepsError: Ray did not start.
    """
    import ray

    for limit in START_WITHIN:
        before = {child.pid for child in psutil.Process().children()}
        try:
            with _start_timeout(limit), _minimal_processes(), _own_process_groups(), _on_loopback():
                # "local" ignores RAY_ADDRESS and `ray start`.
                ray.init(address="local", num_cpus=cpus, include_dashboard=False, runtime_env=runtime_env or None, **QUIET)
            return
        except Exception as e:  # Ray raises exceptions of many classes here.
            log.exception("Ray did not start within %g s", limit)
            late, last = "timed out" in str(e).lower(), limit == START_WITHIN[-1]
            why = _in_a_line(e).rstrip(".")
            if not late:
                raise SweepsError(f"Ray did not start: {why}{_resume_hint(folder)}") from e
            if last:
                limits = ", ".join(f"{seconds:g} s" for seconds in START_WITHIN)
                tried = f"Ray did not start in {len(START_WITHIN)} attempts (time limits: {limits})"
                advice = "if the machine lacks CPU or memory, end other programs and try again"
                raise SweepsError(f"{tried}: {why}; {advice}{_resume_hint(folder)}") from e
        _end_ray(before)


@contextlib.contextmanager
def _start_timeout(limit: float) -> Iterator[None]:
    """Within the `with` block, `ray.init` waits up to `limit` seconds for Ray's processes.

    Ray has no option for the time that the raylet may take to start. So a private function of Ray is replaced.
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
def _minimal_processes() -> Iterator[None]:
    """Within the `with` block, `ray.init` starts only the processes of Ray that a sweep needs.

    `ray.init` then starts neither the autoscaler's monitor, nor the monitor that sends workers' logs to the driver, nor the dashboard's
    server. Each of these would be a Python process that imports Ray. The agent of the dashboard starts without web server and metrics.
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

    A signal to the driver's process group, for example from `timeout`, then ends only the driver. If the signal ended Ray too, the driver
    could not stop the sweep cleanly.
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


def _end_ray(before: set[int]) -> None:
    """End the processes that a failed start of Ray has left behind.

    Args:
        before: Ids of the children of this process before the start. All newer children are killed, except the one that writes to MLflow.
    """
    left = [child for child in psutil.Process().children() if child.pid not in before and not _tracks(child)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, END_WITHIN)


def _resume_hint(folder: Path) -> str:
    """Return the part of an error message that says how to resume the sweep. Return "" if the sweep has recorded nothing yet."""
    return (
        f"; everything that was recorded is safe. To continue the sweep: {resume_command(folder)}"
        if (folder / "space.yaml").is_file()
        else ""
    )


class _Watch(threading.Thread):
    """Thread that ends this process when the Ray instance of the sweep has died. Ray itself would end this process only after a minute.

    Args:
        folder: The sweep's folder. The ids of Ray's processes are recorded in this folder.
        node: The `ray._private.node.Node` of this machine.
    """

    def __init__(self, folder: Path, node: Any):
        super().__init__(name="watch", daemon=True)
        found = node.all_processes
        ours = [child.pid for child in psutil.Process().children() if _tracks(child)]
        crash_cleanup.record_ray(folder, node.get_session_dir_path(), [*ours, *(p.process.pid for each in found.values() for p in each)])
        self.folder = folder
        self.vital = {name: psutil.Process(found[name][0].process.pid) for name in ("raylet", "gcs_server") if found.get(name)}
        self.over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.over.wait(LOOK_EVERY):
            for name, process in self.vital.items():
                if not _is_running(process) and not self.over.is_set():
                    os.write(2, f"Ray's process {name} has died{_resume_hint(self.folder)}\n".encode())
                    os._exit(1)

    def end(self) -> None:
        self.over.set()
        self.join()


def _tracks(process: psutil.Process) -> bool:
    """Return whether a process is the one that writes to MLflow. This process may outlive the driver; a resumed sweep waits for its end."""
    try:
        return any("sweeps.tracking.mlflow.tracker_process" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _describe_connection(
    ours: bool, roots: Iterable[Path], streams: bool, parked: int = 0, added: int = 0, limit: dict[str, float] | None = None
) -> RayConnection:
    import ray

    nodes = tuple(n["Resources"] for n in ray.nodes() if n["Alive"])
    total = {k: v for k, v in ray.cluster_resources().items() if not k.startswith("node:")}
    if ours:
        total["CPU"] -= SPARE_CPUS + parked + added
        nodes = tuple({**node, "CPU": node["CPU"] - SPARE_CPUS - parked - added} for node in nodes)
    total |= {name: min(amount, total.get(name, 0.0)) for name, amount in (limit or {}).items()}
    reserved = stream_cpus(total.get("CPU", 0.0)) if streams and not ours else 0
    if reserved:
        total["CPU"] = max(0.0, total.get("CPU", 0.0) - reserved)
    return RayConnection(ours, tuple(map(str, roots)), nodes, total, parked, limit, added or reserved)


def check_reachable(address: str) -> None:
    """Check quickly that a cluster can be reached at an address. Ray itself would retry for minutes.

    Args:
        address: Address of the cluster. Connections are tried only to an address of the form host:port, not to "auto".

    Raises:
        InputError: The address accepts no connection, or is an address of Ray Client (`ray://...`), which is not supported.
    """
    if address.startswith("ray://"):
        text = f"{address}: Ray Client is not supported; run sweeps on a node of the cluster, or with `ray job submit`, with --address auto"
        raise InputError(Problem("--address", text))
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as e:
            raise InputError(Problem("--address", f"no Ray cluster can be reached at {address}: {e}")) from e


def address_in_job() -> str | None:
    """Return "auto", the address of the job's cluster, if this process is the command of a Ray job; otherwise None."""
    return "auto" if JOB_CONFIG in os.environ else None


def with_job_modules(shipped: dict[str, Any]) -> dict[str, Any]:
    """Return the runtime environment `shipped`. If this process runs in a Ray job, add the job's `py_modules` to the environment.

    Ray itself adds the other keys of the job's runtime environment.

    Args:
        shipped: Runtime environment with the code; see `environment`. It already contains the modules in the job's working directory,
            because the job's command runs in this directory.
    """
    job = json.loads(os.environ.get(JOB_CONFIG) or "{}").get("runtime_env") or {}
    if "image_uri" in shipped:  # Ray does not combine an image with modules.
        return shipped
    return {**shipped, "py_modules": [*shipped["py_modules"], *job.get("py_modules", ())]}


def join(address: str, shipped: dict[str, Any]) -> None:
    """Connect to a cluster.

    Args:
        address: Address of the cluster.
        shipped: Runtime environment with the code; see `environment`.

    Raises:
        InputError: Ray cannot connect to the cluster.
    """
    import ray

    os.environ.setdefault(OVERRIDE_JOB, "1")  # Otherwise Ray refuses a `working_dir` if the Ray job has one.
    try:
        ray.init(address=address, runtime_env=with_job_modules(shipped), **QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as e:
        why = _in_a_line(e)
        raise InputError(Problem("--address", f"no Ray cluster can be reached at {address}: {why}")) from e


def _in_a_line(error: Exception) -> str:
    """Return the text of an error of Ray as one line.

    This is the last line of the text. For a version mismatch, all lines are joined, because the last line does not explain the error.
    """
    lines = [line.strip() for line in str(error.__cause__ or error).strip().splitlines() if line.strip()]
    if lines and "mismatch" in lines[0].lower():
        return " ".join(lines)
    return lines[-1] if lines else type(error).__name__


# ---- the user's code


def environment(space: Space, roots: Iterable[Path], stage: Path) -> dict[str, Any]:
    """Return Ray's runtime environment for a cluster: the space's `runtime_env`, the package `sweeps`, and the user's modules and scripts.

    If `runtime_env` has an `image_uri`, no code is sent, because Ray does not combine an image with code.

    Args:
        space: The search space. It has the `runtime_env` and refers to the user's modules.
        roots: Folders that may contain the user's modules and scripts. Only folders with files that the space refers to are sent.
        stage: An empty folder, to which the user's code is copied.

    Raises:
        InputError: The code is larger than `MOST_BYTES`, or the `working_dir` in `runtime_env` is a URI.
    """
    given = space.runtime_env.for_ray()
    if "image_uri" in given:
        return given
    if folder := given.pop("working_dir", None):
        if "://" in folder:
            text = f"must be a folder on this machine, because sweeps adds your code to this folder, got {folder}"
            raise InputError(Problem(space.place("runtime_env.working_dir"), f"runtime_env.working_dir: {text}"))
        shutil.copytree(folder, stage, dirs_exist_ok=True)
    roots = tuple(roots)
    needed = {*roots_needed(user_references(space), roots), *command_files(space, roots).values()}
    for root in reversed([root for root in roots if root in needed]):
        copy_code(root, stage)
    size = sum(f.stat().st_size for f in stage.rglob("*") if f.is_file())
    if size > MOST_BYTES:
        text = (
            f"the code in the folder of the space file has {size / 2**20:.0f} MB, but at most {MOST_BYTES >> 20} MB can be "
            "sent to the nodes"
        )
        advice = "move the space file and its code to a separate folder, or install the code on the cluster"
        raise InputError(Problem("--address", f"{text}; {advice}"))
    own = own_code()
    modules = [*own["py_modules"], *given.pop("py_modules", ())]
    return {**given, **own, "working_dir": str(stage), "py_modules": modules}


def await_runtime_env(space: Space) -> None:
    """Wait until Ray has set up the `runtime_env` of the space file for the first time.

    Raises:
        InputError: Ray cannot set up the `runtime_env`, for example because pip does not find a package.
    """
    import ray

    if space.runtime_env.for_ray():
        try:
            ray.get(ray.remote(num_cpus=0, max_retries=0)(_nothing).remote())
        except ray.exceptions.RuntimeEnvSetupError as e:
            text = f"runtime_env: Ray cannot set up this environment: {last_line(e)}"
            raise InputError(Problem(space.place("runtime_env"), text)) from e


def _nothing() -> None:
    """Do nothing. The call as a Ray task makes Ray set up the `runtime_env`, and shows whether this succeeds."""


def own_code() -> dict[str, Any]:
    """Return the part of a runtime environment that contains the package `sweeps`."""
    file = references.source_of("sweeps")
    return {"py_modules": [str(file.parent)] if file is not None else [], "excludes": ["__pycache__"]}


def roots_needed(names: Iterable[str], roots: tuple[Path, ...]) -> list[Path]:
    """Return the folders that contain the user's modules, in the order of `roots`. No folder is returned for an installed module.

    Args:
        names: References to the modules, of the form `module:attr`.
        roots: Folders to search.
    """
    needed = []
    for name in names:
        top = references.parse(name)[0].split(".")[0]
        for root in roots if top != "sweeps" else ():
            if (root / top).with_suffix(".py").is_file() or (root / top / "__init__.py").is_file():
                needed.append(root)
                break
    return [root for root in roots if root in needed]


def copy_code(root: Path, stage: Path) -> None:
    """Copy the code in `root` to `stage`, without large files, data files, hidden files and generated folders."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not _is_code(Path(folder, name))}

    shutil.copytree(root, stage, ignore=left_out, dirs_exist_ok=True, ignore_dangling_symlinks=True)


def _is_code(path: Path) -> bool:
    name = path.name
    if name.startswith(".") or name in LEFT_OUT or name.endswith((".egg-info", *DATA)):
        return False
    if path.is_dir():
        markers = ("pyvenv.cfg", ORIGIN, "mlflow.db", "MLmodel")  # A virtual environment, a sweep, a folder of sweeps, a bundle.
        return not any((path / marker).exists() for marker in markers)
    return path.is_file() and path.stat().st_size <= LARGEST_FILE


# ---- shared storage


def check_storage(folder: Path) -> None:
    """Check that the sweep's folder is on storage that all nodes share. Workers write checkpoints there, and the driver reads them.

    Raises:
        InputError: The folder is not the same on a node, or a node did not answer. The error has a problem for each of these nodes.
    """
    if problems := storage_problems(folder.parent, read_on_nodes(folder / ORIGIN)):
        raise InputError(problems)


def check_store_on_nodes(store: str) -> None:
    """Check that every node of the cluster reaches the sweep's store. Workers write checkpoints there, and read them.

    Raises:
        InputError: A node does not reach the store, or did not answer. The error has a problem for each of these nodes.
    """
    problems = []
    for node, reason in _ask_nodes(stores.unreachable_from_here, store, stores.needed_environment()).items():
        if reason is NO_ANSWER:
            problems.append(_silent_node(node))
        elif reason is not None:
            problems.append(Problem("--dir", f"node {node} does not reach the store: {reason}"))
    if problems:
        raise InputError(problems)


def read_on_nodes(file: Path) -> dict[str, bool | None]:
    """Check on each node whether `file` exists with the same content as on this machine.

    Returns:
        Maps the address of each node to True if the content is the same and to False if not. The value is None if the node did not answer.

    Raises:
        InputError: A node cannot run the code that was sent.
    """
    answers = _ask_nodes(_has_content, str(file), file.read_bytes())
    return {node: None if answer is NO_ANSWER else answer for node, answer in answers.items()}


def _ask_nodes(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function on each node. Return the results by the node's address; `NO_ANSWER` for a node that does not answer in time.

    Raises:
        InputError: A node cannot run the code that was sent.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = {}
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    for node in ray.nodes():
        if node["Alive"]:
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[task.options(scheduling_strategy=on_node).remote(*arguments)] = node["NodeManagerAddress"]
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_WITHIN)
    seen: dict[str, Any] = {asked[ref]: NO_ANSWER for ref in silent}
    for ref in answered:
        try:
            seen[asked[ref]] = ray.get(ref)
        except ray.exceptions.RayError as e:
            raise InputError(Problem("--address", f"node {asked[ref]} cannot run the code that sweeps sent: {last_line(e)}")) from e
    return seen


def _has_content(file: str, expected: bytes) -> bool:
    """Return whether a file exists on this node and has the expected content."""
    try:
        return Path(file).read_bytes() == expected
    except OSError:
        return False


def storage_problems(shared: Path, seen: dict[str, bool | None], place: str = "--dir") -> list[Problem]:
    """Return one problem for each node on which `shared` is not the same folder as on this node, and for each node that did not answer.

    Args:
        shared: Folder that must be on storage that every node shares.
        seen: Result of `read_on_nodes` for a file in this folder.
        place: Option or argument that contains the folder's path. Problems about nodes with another folder start with this text.
    """
    problems = []
    for node, same in seen.items():
        if same is None:
            problems.append(_silent_node(node))
        elif not same:
            text = f"{shared} is not the same folder on node {node}; with --address, this folder must be on storage that every node shares"
            problems.append(Problem(place, text))
    return problems


def _silent_node(node: str) -> Problem:
    return Problem("--address", f"node {node} did not answer within {ANSWER_WITHIN:.0f} s")


def last_line(error: BaseException) -> str:
    """Return the last line of an error's text that is not blank. If the text is blank, return the name of the error's class."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def at_driver() -> Any:
    """Return a scheduling strategy that prefers the driver's node. It is for actors that read the data or write to the sweep's folder.

    If the driver's node has died, Ray chooses another node.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)


# Script that checks whether a cluster accepts this process. The exit code is `TAKEN`, `NEEDS_TOKEN`, or another code after an error.
ASK = """
import sys
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=canonicalize_bootstrap_address_or_die(sys.argv[1])).internal_kv_keys(b"session_name", namespace=None)
except AuthenticationError:
    sys.exit(77)
"""
TAKEN, NEEDS_TOKEN = 0, 77
_mode: str | None = None  # Value of `RAY_AUTH_MODE` from `prepare_authentication`; None if the variable was not changed.


def prepare_authentication(address: str) -> None:
    """Set `RAY_AUTH_MODE` to the mode that a cluster needs: "token" if the cluster requires a token, "disabled" otherwise.

    Ray reads this variable when Ray is imported, and a process with a token cannot use a cluster that requires none. So each mode is tried
    in a separate process. If the user has set `RAY_AUTH_MODE`, the variable is not changed.

    Args:
        address: Address of the cluster.

    Raises:
        InputError: The cluster requires a token, and the user has no token or a wrong token.
    """
    global _mode
    if os.environ.get(AUTH_MODE) not in (None, "", _mode):
        return
    for mode in ("disabled", "token"):
        if (answer := _ask(address, mode)) == TAKEN:
            _mode = os.environ[AUTH_MODE] = mode
            _read_again()
            return
        if mode == "disabled" and answer != NEEDS_TOKEN:
            return  # `join` reports the problem later.
    kept = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    token = "the token in RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else f"the token in {kept}"
    has = bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(kept).expanduser().exists()
    why = f"{token} is a different token" if has else f"there is no token in {kept}"
    text = (
        f"{address}: the cluster requires a token, but {why}; copy the cluster's file ~/.ray/auth_token to this machine, or "
        "set RAY_AUTH_TOKEN"
    )
    raise InputError(Problem("--address", text))


def forget_authentication() -> None:
    """Remove the variable `RAY_AUTH_MODE` if its value is from `prepare_authentication`."""
    global _mode
    if _mode is not None and os.environ.get(AUTH_MODE) == _mode:
        del os.environ[AUTH_MODE]
        _read_again()
    _mode = None


def _read_again() -> None:
    """Make Ray read `RAY_AUTH_MODE` again, if Ray is imported already. Ray by itself reads the variable only during the import."""
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


def _ask(address: str, mode: str) -> int | None:
    """Run the script `ASK` with a value of `RAY_AUTH_MODE`. Return its exit code, or None if the cluster does not answer in time."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK, address], env={**os.environ, AUTH_MODE: mode}, capture_output=True, timeout=ANSWER_WITHIN
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode
