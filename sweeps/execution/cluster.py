"""Ray for as long as a sweep lasts: one of its own, the one this process has, or a cluster, to which the user's code is shipped."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from sweeps.core import crash_cleanup, host_resources, references
from sweeps.core.command_hints import DEFAULT_ROOT, resume_command
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.resources import parked_cpus
from sweeps.core.sweep_folder import ORIGIN
from sweeps.execution import ray_version
from sweeps.space import Space
from sweeps.space.model import user_references

log = logging.getLogger(__name__)

# A folder of code is small. What is left out: data, what others made, and what is hidden.
MOST_BYTES = 50 * 2**20
LARGEST_FILE = 2 * 2**20
LEFT_OUT = ("__pycache__", "node_modules", "site-packages", DEFAULT_ROOT, "mlruns", "mlartifacts", "venv", "build", "dist")
DATA = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".db", ".pt", ".bin", ".npy", ".npz", ".zip", ".gz")
ANSWER_WITHIN = 60.0
AUTH_MODE = "RAY_AUTH_MODE"
MONITOR = "RAY_memory_monitor_refresh_ms"  # of memory; the pool has a better one, see `sweeps.execution.memory_guard`
SPARE_CPUS = 1
# Ray gives its processes 30 s to start. A busy machine may need longer, so sweeps tries once more with the second limit, in seconds.
START_WITHIN = (30, 120)
# Ray ends idle processes above this number of theirs, by default its CPUs: then each chain that is fitted starts them anew.
IDLE_PROCESSES = 8
# Ray runs its workers at niceness 15, where MLflow's process at 19 is given a third of the core it shares with one.
NICENESS = 0
LOOK_EVERY = 1.0
END_WITHIN = 10.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}


@dataclass(frozen=True)
class Joined:
    """The Ray that a sweep runs on.

    Attributes:
        ours: it was started for this sweep, and ends with it.
        roots: folders in which the workers look for the user's modules; none where the code was shipped to them.
        nodes: the resources of each node.
        total: the resources of all nodes.
        parked: CPUs that ours counts beyond those there are.

    Of ours `nodes` and `total` are what there is. It counts one CPU more, where the tasks of a fit find room while gangs hold all others,
    and those on which idle gangs stay. Who computes when is the pool's account alone.
    """

    ours: bool
    roots: tuple[str, ...]
    nodes: tuple[dict[str, float], ...]
    total: dict[str, float]
    parked: int = 0

    @property
    def room(self) -> dict[str, float] | None:
        """What gangs may hold together, idle ones as well, see `sweeps.execution.allocation.decide`; None where that is what there is."""
        return {**self.total, "CPU": self.total["CPU"] + self.parked} if self.ours else None

    @property
    def cpus(self) -> float | None:
        """On how many CPUs Ray Data may run its tasks at once; None where Ray counts no more than there are."""
        return self.total["CPU"] if self.ours else None


@contextlib.contextmanager
def ray_for(space: Space, folder: Path, roots: tuple[Path, ...], address: str | None) -> Iterator[Joined]:
    """Ray, for as long as this lasts.

    Args:
        space: what will run; says which modules of the user's are needed.
        folder: the sweep's, which every node must see.
        roots: folders of the user's modules.
        address: of a cluster; without one, the Ray this process is connected to, else one of our own.

    Raises:
        InputError: there is no such cluster, the code is too large to ship, or a node does not see the folder.
        SweepsError: a Ray of our own does not start.
    """
    import ray

    ray_version.warn_once(ray.__version__)
    if ray.is_initialized():
        yield _joined(False, roots)
        return
    parked = 0
    with tempfile.TemporaryDirectory(prefix="sweeps-code-") as stage:
        if address:
            reach(address)
            join(address, environment(space, roots, Path(stage)))
        else:
            forget_authentication()
            cpus = int(host_resources.detect()["CPU"])
            parked = parked_cpus(cpus, host_resources.memory())
            os.environ.setdefault("RAY_num_workers_soft_limit", str(cpus + parked + IDLE_PROCESSES))
            os.environ.setdefault("RAY_worker_niceness", str(NICENESS))
            os.environ.setdefault(MONITOR, "0")
            start(folder, cpus + SPARE_CPUS + parked)
    node = None if address else ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    watch = _Watch(folder, node) if node is not None else None
    try:
        if address:
            check_storage(folder)
        yield _joined(address is None, () if address else roots, parked)
    except BaseException:
        session = None  # its logs may tell why
        raise
    finally:
        if watch is not None:
            watch.end()
        ray.shutdown()
        crash_cleanup.delete_ray_record(folder)
        if session is not None:
            shutil.rmtree(session, ignore_errors=True)


def start(folder: Path, cpus: int) -> None:
    """Start a Ray of our own. If it is not up in time, end its processes and try once more with a longer limit.

    Args:
        folder: the sweep's.
        cpus: that Ray counts.

    Raises:
        SweepsError: Ray did not start.
    """
    import ray

    for limit in START_WITHIN:
        before = {child.pid for child in psutil.Process().children()}
        try:
            with _patience(limit), _only_needed(), _apart(), _on_loopback():  # "local": not a Ray that RAY_ADDRESS or `ray start` offers
                ray.init(address="local", num_cpus=cpus, include_dashboard=False, **QUIET)
            return
        except Exception as e:  # Ray raises no less
            log.exception("Ray has not started within %g s", limit)
            late, last = "timed out" in str(e).lower(), limit == START_WITHIN[-1]
            why = _in_a_line(e).rstrip(".")
            if not late:
                raise SweepsError(f"Ray has not started: {why}{_to_go_on(folder)}") from e
            if last:
                tried = ", nor within ".join(f"{seconds:g} s" for seconds in START_WITHIN)
                advice = "the machine may be short of CPU or memory: end other programs, then try again"
                raise SweepsError(f"Ray has not started within {tried}: {why}; {advice}{_to_go_on(folder)}") from e
        _end_ray(before)


@contextlib.contextmanager
def _patience(limit: float) -> Iterator[None]:
    """While this lasts, `ray.init` waits up to `limit` seconds for each of its processes. Ray's own limit for the raylet is a constant."""
    from ray._private import services

    plain, deadline = services.get_node, time.monotonic() + limit

    def get_node(*what: Any) -> Any:
        while True:
            try:
                return plain(*what)
            except RuntimeError:  # the raylet has not registered yet
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
def _only_needed() -> Iterator[None]:
    """While this lasts, `ray.init` does not start the autoscaler's monitor, nor the one that reads workers' logs for the driver.

    A Ray on one machine adds no nodes, and the output of workers goes to files of ours. Both are Python processes that import Ray.
    """
    from ray._private.node import Node

    names = ("start_monitor", "start_log_monitor")
    plain = {name: getattr(Node, name) for name in names if hasattr(Node, name)}
    for name in plain:
        setattr(Node, name, lambda self: None)
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(Node, name, method)


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """While this lasts, `ray.init` starts a Ray that listens on the loopback address alone, as it does on macOS and Windows."""
    from ray._private import ray_constants

    plain = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = plain


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """While this lasts, `ray.init` starts each process in a process group of its own.

    A signal to the driver's group, as `timeout` sends it, is for the driver alone: it stops the sweep gently, for which it needs Ray.
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
    """End the processes of a Ray that did not start, all children of this process that were not there `before`."""
    left = [child for child in psutil.Process().children() if child.pid not in before and not _tracks(child)]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, END_WITHIN)


def _to_go_on(folder: Path) -> str:
    """The tail of what is said when a sweep ends for Ray's sake."""
    return f"; everything recorded is safe. To continue: {resume_command(folder)}" if (folder / "space.yaml").is_file() else ""


class _Watch(threading.Thread):
    """Ends this process when the Ray that was started for the sweep has died: Ray itself would wait for it for a minute, then do so."""

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
                if not _lives(process) and not self.over.is_set():
                    os.write(2, f"Ray has died ({name}){_to_go_on(self.folder)}\n".encode())
                    os._exit(1)

    def end(self) -> None:
        self.over.set()
        self.join()


def _tracks(process: psutil.Process) -> bool:
    """Whether it is the process that writes to MLflow: it outlives the driver for a moment, in which the next one must not begin."""
    try:
        return any("sweeps.tracking.mlflow.tracker_process" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _joined(ours: bool, roots: Iterable[Path], parked: int = 0) -> Joined:
    import ray

    nodes = tuple(n["Resources"] for n in ray.nodes() if n["Alive"])
    total = {k: v for k, v in ray.cluster_resources().items() if not k.startswith("node:")}
    if ours:
        total["CPU"] -= SPARE_CPUS + parked
        nodes = tuple({**node, "CPU": node["CPU"] - SPARE_CPUS - parked} for node in nodes)
    return Joined(ours, tuple(map(str, roots)), nodes, total, parked)


def reach(address: str) -> None:
    """Say at once that nobody listens; Ray itself would try for minutes.

    Raises:
        InputError: nobody does, or it is the address of a Ray Client.
    """
    if address.startswith("ray://"):
        text = f"{address}: Ray Client is not supported; run sweeps on a node of the cluster, or with `ray job submit`, with --address auto"
        raise InputError(Problem("--address", text))
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as e:
            raise InputError(Problem("--address", f"{address}: no Ray cluster can be reached: {e}")) from e


def join(address: str, shipped: dict[str, Any]) -> None:
    """Connect to a cluster.

    Args:
        shipped: Ray's runtime environment.

    Raises:
        InputError: it cannot be joined.
    """
    import ray

    try:
        ray.init(address=address, runtime_env=shipped, **QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as e:
        why = _in_a_line(e)
        raise InputError(Problem("--address", f"{address}: no Ray cluster can be reached: {why}")) from e


def _in_a_line(error: Exception) -> str:
    """Why Ray did not join. Its text on two versions has a paragraph, the cluster's and this process's under each other."""
    lines = [line.strip() for line in str(error.__cause__ or error).strip().splitlines() if line.strip()]
    if lines and "mismatch" in lines[0].lower():
        return " ".join(lines)
    return lines[-1] if lines else type(error).__name__


# ---- the user's code


def environment(space: Space, roots: Iterable[Path], stage: Path) -> dict[str, Any]:
    """Ray's runtime environment that brings to every worker what this process would import: sweeps itself and the user's modules.

    Args:
        space: names the modules.
        roots: folders they are found in; those that hold none of them are not shipped.
        stage: an empty folder, in which the user's code is laid out.

    Raises:
        InputError: the code is larger than `MOST_BYTES`.
    """
    for root in reversed(roots_needed(user_references(space), tuple(roots))):
        lay_out(root, stage)
    size = sum(f.stat().st_size for f in stage.rglob("*") if f.is_file())
    if size > MOST_BYTES:
        text = (
            f"the code beside the space file is {size / 2**20:.0f} MB, more than {MOST_BYTES >> 20} MB can be shipped; move it to a folder"
        )
        raise InputError(Problem("--address", f"{text} of its own, or install it on the cluster"))
    return {"working_dir": str(stage), **own_code()}


def own_code() -> dict[str, Any]:
    """The part of a runtime environment that brings sweeps itself."""
    file = references.source_of("sweeps")
    return {"py_modules": [str(file.parent)] if file is not None else [], "excludes": ["__pycache__"]}


def roots_needed(names: Iterable[str], roots: tuple[Path, ...]) -> list[Path]:
    """The folders in which modules of these references lie; none for a module that is installed."""
    needed = []
    for name in names:
        top = references.parse(name)[0].split(".")[0]
        for root in roots if top != "sweeps" else ():
            if (root / top).with_suffix(".py").is_file() or (root / top / "__init__.py").is_file():
                needed.append(root)
                break
    return [root for root in roots if root in needed]


def lay_out(root: Path, stage: Path) -> None:
    """Copy a folder of code, without data, hidden files and what others made."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not _is_code(Path(folder, name))}

    shutil.copytree(root, stage, ignore=left_out, dirs_exist_ok=True, ignore_dangling_symlinks=True)


def _is_code(path: Path) -> bool:
    name = path.name
    if name.startswith(".") or name in LEFT_OUT or name.endswith((".egg-info", *DATA)):
        return False
    if path.is_dir():
        markers = ("pyvenv.cfg", ORIGIN, "mlflow.db", "MLmodel")  # an environment, a sweep, a root of sweeps, a bundle
        return not any((path / marker).exists() for marker in markers)
    return path.is_file() and path.stat().st_size <= LARGEST_FILE


# ---- shared storage


def check_storage(folder: Path) -> None:
    """See that every node has the sweep's folder: checkpoints are written by the workers and read by the driver.

    Raises:
        InputError: naming each node that does not.
    """
    if problems := unseen(folder.parent, who_sees(folder / ORIGIN)):
        raise InputError(problems)


def who_sees(file: Path) -> dict[str, bool | None]:
    """By the address of each node: whether it sees this file, and the same; None if it did not answer.

    Raises:
        InputError: a node cannot run the shipped code.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    expected = file.read_bytes()
    asked = {}
    look = ray.remote(num_cpus=0, max_retries=0)(_sees)
    for node in ray.nodes():
        if node["Alive"]:
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[look.options(scheduling_strategy=there).remote(str(file), expected)] = node["NodeManagerAddress"]
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_WITHIN)
    seen: dict[str, bool | None] = {asked[ref]: None for ref in silent}
    for ref in answered:
        try:
            seen[asked[ref]] = ray.get(ref)
        except ray.exceptions.RayError as e:
            raise InputError(Problem("--address", f"node {asked[ref]} cannot run the shipped code: {last_line(e)}")) from e
    return seen


def _sees(file: str, expected: bytes) -> bool:
    """On a node: whether the file is there, and the same."""
    try:
        return Path(file).read_bytes() == expected
    except OSError:
        return False


def unseen(shared: Path, seen: dict[str, bool | None], place: str = "--dir") -> list[Problem]:
    """What is wrong with the storage, from whether each node sees the folder; None for one that did not answer."""
    problems = []
    for node, there in seen.items():
        if there is None:
            problems.append(Problem("--address", f"node {node} did not answer within {ANSWER_WITHIN:.0f} s"))
        elif not there:
            text = f"{shared} is not the same folder on node {node}; with --address it must lie on storage that every node shares"
            problems.append(Problem(place, text))
    return problems


def last_line(error: BaseException) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)


def at_driver() -> Any:
    """Where the actors of a sweep run that read the data and write its folder: on the driver's own node, as long as it lives."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)


# Asks a cluster whether it takes this process, and exits with one of the codes below.
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
_mode: str | None = None  # what `prepare_authentication` has set


def prepare_authentication(address: str) -> None:
    """Show a cluster a token if it wants one, and none if it was started without.

    Ray decides by a variable when it is imported, and a process that has a token cannot work with a cluster that has none. So the
    cluster is asked in a process of its own. `RAY_AUTH_MODE` is not changed if it is set.

    Raises:
        InputError: the cluster wants a token, and there is none, or another.
    """
    global _mode
    if os.environ.get(AUTH_MODE) not in (None, "", _mode):
        return
    for mode in ("disabled", "token"):
        if (answer := _ask(address, mode)) == TAKEN:
            _mode = os.environ[AUTH_MODE] = mode
            _read_again()
            return
        if answer != NEEDS_TOKEN:
            return  # whoever joins it says what is wrong
    kept = os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    token = "the one in RAY_AUTH_TOKEN" if os.environ.get("RAY_AUTH_TOKEN") else f"the one in {kept}"
    has = bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(kept).expanduser().exists()
    why = f"{token} is another" if has else f"there is none in {kept}"
    text = f"{address}: the cluster wants a token, and {why}; copy the cluster's ~/.ray/auth_token, or set RAY_AUTH_TOKEN"
    raise InputError(Problem("--address", text))


def forget_authentication() -> None:
    """Leave it to Ray again whether it asks for a token."""
    global _mode
    if _mode is not None and os.environ.get(AUTH_MODE) == _mode:
        del os.environ[AUTH_MODE]
        _read_again()
    _mode = None


def _read_again() -> None:
    """Have Ray read the variable, which it does only once."""
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")


def _ask(address: str, mode: str) -> int | None:
    """How a cluster answers a process with this mode of authentication: a code of `ASK`; None if it did not in time."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK, address], env={**os.environ, AUTH_MODE: mode}, capture_output=True, timeout=ANSWER_WITHIN
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode
