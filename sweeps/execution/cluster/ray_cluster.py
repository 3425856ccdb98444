"""Provide Ray for a sweep: a local instance, an existing connection, or a cluster.

A local Ray instance is started for the sweep. An existing connection is that of this process.
"""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.files import stores
from sweeps.core.host import crash_cleanup, host_resources
from sweeps.core.host.machine_share import EVERYTHING, Share
from sweeps.core.resources import parked_cpus, stream_cpus
from sweeps.space import Space

from . import ray_version
from .local_ray import QUIET, RayWatch, limit_gpus, start
from .ray_authentication import forget_authentication
from .ray_errors import last_line
from .shared_storage import check_storage, check_store_on_nodes
from .shipped_code import JOB_CONFIG, environment, with_job_modules

# If this variable is "1", Ray accepts a `working_dir` although the Ray job has one.
OVERRIDE_JOB = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
# Ray's memory monitor. `sweeps.execution.gangs.memory_guard` is used instead.
MONITOR = "RAY_memory_monitor_refresh_ms"
SPARE_CPUS = 1  # see `RayConnection`
# Ray keeps one idle process for each CPU, and this many more. Otherwise each fit of a preprocessing
# chain would start new processes.
IDLE_PROCESSES = 8
# Niceness of Ray's workers. With Ray's default of 15, MLflow's process at 19 would use a third of a
# core that it shares with a worker.
NICENESS = 0


@dataclass(frozen=True)
class RayConnection:
    """The Ray instance or cluster on which a sweep runs.

    A Ray instance that is started for the sweep counts more CPUs than the machine has. It has
    `SPARE_CPUS` additional CPUs, so that the tasks of a fit can run while workers hold all other
    CPUs. It also has `parked` additional CPUs for idle workers. The pool, not Ray, decides which
    workers compute at the same time.

    Attributes:
        ours: True if Ray was started for this sweep. If so, Ray ends together with the sweep.
        roots: Folders in which the workers look for the user's modules. Empty if the code was sent
            to the cluster.
        nodes: Resources of each node, without the additional CPUs.
        total: Resources of all nodes together, without the additional CPUs.
        parked: Number of additional CPUs for idle workers.
        limit: Amount of each limited resource that the sweep may hold, if Ray was not started for
            the sweep. None if there is no limit.
        stream_cpus: Number of CPUs that only the tasks of Ray Data use, if the data is streamed;
            else 0. `total` does not include them.
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
        """Number of CPUs that tasks of Ray Data may use at the same time.

        None if they may use all CPUs that Ray counts.
        """
        return self.total["CPU"] if self.ours or "CPU" in (self.limit or {}) else None


@contextlib.contextmanager
def ray_connection(
    space: Space,
    folder: Path,
    roots: tuple[Path, ...],
    address: str | None,
    share: Share = EVERYTHING,
) -> Iterator[RayConnection]:
    """Connect to Ray, or start a Ray instance, for the duration of the `with` block.

    Args:
        space: The search space, which names the user's modules.
        folder: The sweep's folder, which all nodes must share.
        roots: Folders of the user's modules.
        address: Address of a cluster; None for no cluster. If this process is connected to Ray
            already, the address is ignored. If it is not connected and there is no address, a Ray
            instance is started.
        share: The CPUs and GPUs that the sweep may use.

    Yields:
        The description of the Ray instance or cluster.

    Raises:
        InputError: The cluster cannot be reached, the code is too large to send, a node does not
            share the folder, or Ray cannot set up `runtime_env`.
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
            raise InputError(space.place("runtime_env"), f"runtime_env: {text}")
        yield _describe_connection(False, roots, streams, limit=share.limit)
        return
    parked = 0
    added = 0  # CPUs that Ray counts in addition, for the tasks of Ray Data
    with tempfile.TemporaryDirectory(prefix="sweeps-code-") as stage:
        if address:
            check_reachable(address)
            join(address, environment(space, roots, Path(stage)))
        else:
            forget_authentication()
            machine_cpus = int(host_resources.detect()["CPU"])
            cpus = share.cpus or machine_cpus
            parked = parked_cpus(cpus, host_resources.memory() * cpus / machine_cpus)
            added = stream_cpus(cpus) if streams else 0
            os.environ.setdefault("RAY_num_workers_soft_limit", str(cpus + parked + IDLE_PROCESSES))
            os.environ.setdefault("RAY_worker_niceness", str(NICENESS))
            os.environ.setdefault(MONITOR, "0")
            os.environ.setdefault("RAY_enable_metrics_collection", "0")  # Nothing collects them.
            with limit_gpus(share.gpu_ids):
                start(folder, cpus + SPARE_CPUS + parked + added, space.runtime_env.for_ray())
    node = None if address else ray._private.worker._global_node
    session = node.get_session_dir_path() if node is not None else None
    watch: RayWatch | None = None
    try:
        if node is not None:
            watch = RayWatch(folder, node)
        await_runtime_env(space)
        if address and (store := stores.store_of(folder)) is not None:
            check_store_on_nodes(store)
        elif address:
            check_storage(folder)
        yield _describe_connection(
            address is None,
            () if address else roots,
            streams,
            parked,
            added,
            share.limit if address else None,
        )
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


def _describe_connection(
    ours: bool,
    roots: Iterable[Path],
    streams: bool,
    parked: int = 0,
    added: int = 0,
    limit: dict[str, float] | None = None,
) -> RayConnection:
    """Return the description of the Ray instance or cluster to which this process is connected.

    Args:
        ours: See `RayConnection`.
        roots: See `RayConnection`.
        streams: True if the data is streamed.
        parked: See `RayConnection`.
        added: Number of CPUs that Ray counts in addition for the tasks of Ray Data, if `ours`.
        limit: See `RayConnection`.
    """
    import ray

    nodes = tuple(n["Resources"] for n in ray.nodes() if n["Alive"])
    total = {k: v for k, v in ray.cluster_resources().items() if not k.startswith("node:")}
    if ours:  # Ray counts these CPUs in addition to those of the machine.
        for amounts in (total, *nodes):
            amounts["CPU"] -= SPARE_CPUS + parked + added
    total |= {name: min(amount, total.get(name, 0.0)) for name, amount in (limit or {}).items()}
    if streams and not ours:  # The tasks of Ray Data take CPUs from those of the cluster.
        cpus = total.get("CPU", 0.0)
        added = stream_cpus(cpus)
        total["CPU"] = max(0.0, cpus - added)
    return RayConnection(
        ours, tuple(map(str, roots)), nodes, total, parked=parked, limit=limit, stream_cpus=added
    )


def check_reachable(address: str) -> None:
    """Check quickly that a cluster can be reached at an address.

    Ray itself would retry for minutes.

    Args:
        address: Address of the cluster. Connections are tried only to an address of the form
            host:port, not to "auto".

    Raises:
        InputError: The address accepts no connection, or is an address of Ray Client (`ray://...`),
            which is not supported.
    """
    if address.startswith("ray://"):
        text = (
            f"{address}: Ray Client is not supported; run sweeps on a node of the cluster, or "
            "with `ray job submit`, with --address auto"
        )
        raise InputError("--address", text)
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError as e:
            raise InputError("--address", f"no Ray cluster can be reached at {address}: {e}") from e


def address_in_job() -> str | None:
    """Return "auto", the address of the job's cluster, if this process is the command of a Ray job.

    Otherwise, return None.
    """
    return "auto" if JOB_CONFIG in os.environ else None


def join(address: str, shipped: dict[str, Any]) -> None:
    """Connect to a cluster.

    Args:
        address: Address of the cluster.
        shipped: Runtime environment with the code; see `shipped_code.environment`.

    Raises:
        InputError: Ray cannot connect to the cluster.
    """
    import ray

    os.environ.setdefault(OVERRIDE_JOB, "1")
    try:
        ray.init(address=address, runtime_env=with_job_modules(shipped), **QUIET)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as e:
        why = last_line(e)
        raise InputError("--address", f"no Ray cluster can be reached at {address}: {why}") from e


def await_runtime_env(space: Space) -> None:
    """Wait until Ray has set up the `runtime_env` of the space file for the first time.

    Raises:
        InputError: Ray cannot set up the `runtime_env`, for example because pip does not find a
            package.
    """
    import ray

    if space.runtime_env.for_ray():
        try:
            ray.get(ray.remote(num_cpus=0, max_retries=0)(_do_nothing).remote())
        except ray.exceptions.RuntimeEnvSetupError as e:
            text = f"runtime_env: Ray cannot set up this environment: {last_line(e)}"
            raise InputError(space.place("runtime_env"), text) from e


def _do_nothing() -> None:
    """Do nothing. Ray sets up the `runtime_env` before it calls this function as a task."""


def at_driver() -> Any:
    """Return a scheduling strategy for actors that read the data or write to the sweep's folder.

    The strategy prefers the driver's node. If this node has died, Ray chooses another node.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
