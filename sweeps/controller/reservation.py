"""Reserve CPUs and GPUs of this machine for a session."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sweeps.core.files.origin import valid_origin_keys
from sweeps.core.host import host_resources, logging_setup, machine_share
from sweeps.core.host.machine_share import Share
from sweeps.execution.cluster import ray_authentication, ray_cluster

log = logging.getLogger(__name__)


@contextlib.contextmanager
def reserve(
    name: str, folder: Path, address: str | None, cpus: int | None, gpus: int | None
) -> Iterator[Share]:
    """Prepare this process for Ray, and reserve CPUs and GPUs while the `with` block runs.

    A note is logged for every other sweep of this user that runs on this machine. If the session
    uses a Ray cluster that already runs, nothing is reserved, and no note is logged.

    Args:
        name: Name of the sweep, or the command that needs the session.
        folder: The sweep's folder.
        address: Address of a Ray cluster; None for this machine.
        cpus: Number of CPUs that the session may use. None means the number with which the sweep
            started. If it had no number either, the session may use all CPUs that the other sweeps
            leave.
        gpus: Number of GPUs that the session may use. None has the same meaning as for `cpus`.

    Yields:
        The CPUs and GPUs that the session may use.

    Raises:
        InputError: The cluster cannot be reached, this machine has fewer CPUs than `cpus` or fewer
            GPUs than `gpus`, or other sweeps use all CPUs.
    """
    if address:
        ray_cluster.check_reachable(address)
        ray_authentication.prepare_authentication(address)
    logging_setup.set_environment()
    # Importing Ray sets up its logging, and the logging can be redirected only afterwards.
    import ray

    origin = valid_origin_keys(folder)
    saved_cpus = origin.get("cpus")
    saved_gpus = origin.get("gpus")
    if address or ray.is_initialized():
        yield Share(
            cpus=saved_cpus if cpus is None else cpus,
            gpus=saved_gpus if gpus is None else gpus,
        )
        return
    machine_cpus = int(host_resources.detect()["CPU"])
    gpu_ids = host_resources.gpu_ids()
    wanted = Share(
        cpus=_at_most(saved_cpus, machine_cpus) if cpus is None else cpus,
        gpus=_at_most(saved_gpus, len(gpu_ids)) if gpus is None else gpus,
    )
    with machine_share.register(name, folder, machine_cpus, gpu_ids, wanted) as (share, others):
        for other in others:
            log.warning("note: %s", machine_share.describe_other(other, machine_cpus, len(gpu_ids)))
        if others:
            log.warning("note: %s", machine_share.describe_share(share, len(gpu_ids)))
        yield replace(share, gpu_ids=None) if share.gpu_ids == gpu_ids else share


def _at_most(saved: int | None, most: int) -> int | None:
    """Return the number with which the sweep started, but at most what this machine has."""
    return None if saved is None else min(saved, most)
