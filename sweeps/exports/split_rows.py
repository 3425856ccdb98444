"""Read the rows of a sweep's splits again, for `export --ensemble`.

The sweep's folder has only the rows of test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.controller.session_secrets import refuse_missing_secrets, sources_of
from sweeps.core.errors import InputError
from sweeps.core.host.machine_share import EVERYTHING
from sweeps.data.checks.preflight import locate_problems
from sweeps.space import Space

from .rerun import reopen

if TYPE_CHECKING:
    from sweeps.data.splits.variants import DataVariants


def read_splits(
    folder: Path, space: Space, roots: tuple[Path, ...], fingerprint: str | None
) -> DataVariants:
    """Read and split the data of a sweep again, in this process.

    If a source may need Ray to be read, Ray runs meanwhile: on the cluster with which the sweep
    started, or on this machine.

    Args:
        folder: The sweep's folder.
        space: The search space of the sweep.
        roots: Folders from which the user's modules are imported.
        fingerprint: Fingerprint of the data when the sweep started.

    Returns:
        The data variants. The rows are in memory of this process.

    Raises:
        InputError: The data cannot be read, or has changed since the sweep began.
    """
    from sweeps.data.load_request import LoadRequest
    from sweeps.data.splits.variants import DataVariants

    refuse_missing_secrets(space)
    request = LoadRequest.of_space(space, fingerprint)
    # The data sets of scikit-learn need no Ray.
    without_ray = all(source.startswith("sklearn:") for source in sources_of(space))
    try:
        with contextlib.nullcontext() if without_ray else _ray(folder, space, roots):
            data = DataVariants(request.spec, request.variants, request.seed, request.tuned)
            if not without_ray:
                data.copy_rows()
            request.check_unchanged(data.fingerprint)
    except InputError as e:
        raise locate_problems(space, e.problems) from None
    return data


@contextlib.contextmanager
def _ray(folder: Path, space: Space, roots: tuple[Path, ...]) -> Iterator[None]:
    """Run Ray within the `with` block, or connect to the cluster with which the sweep started."""
    from sweeps.execution.cluster.ray_cluster import ray_connection

    with (
        reopen(folder, "sweeps export --ensemble", EVERYTHING) as (scratch, address, share),
        ray_connection(space, scratch, roots, address, share),
    ):
        yield
