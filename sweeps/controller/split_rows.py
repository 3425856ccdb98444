"""Read the rows of a sweep's splits again, for `export --ensemble`.

The sweep's folder has only the rows of test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.controller.rerun import scratch_folder
from sweeps.controller.session import prepare_ray, reserve
from sweeps.core.errors import InputError
from sweeps.core.origin import read_origin
from sweeps.data.preflight import locate_problems
from sweeps.space import Space

if TYPE_CHECKING:
    from sweeps.data.variants import DataVariants


def read_splits(
    folder: Path, space: Space, roots: tuple[Path, ...], fingerprint: str | None
) -> DataVariants:
    """Read and split the data of a sweep again, in this process.

    Ray runs meanwhile if it may read the files: on the cluster with which the sweep started, or on
    this machine.

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
    from sweeps.data.data_actor import check_unchanged, load_arguments
    from sweeps.data.variants import DataVariants

    if names := ", ".join(space.missing_secrets):
        raise InputError(
            str(space.path), f"needs these environment variables, which are not set: {names}"
        )
    spec, seed, variants, tuned, _ = load_arguments(space, None)
    without_ray = _reads_without_ray(space)
    try:
        with contextlib.nullcontext() if without_ray else _ray(folder, space, roots):
            found = DataVariants(spec, variants or (spec,), seed, tuned)
            if not without_ray:
                found.copy_rows()
    except InputError as e:
        raise locate_problems(space, e.problems) from None
    check_unchanged(found.fingerprint, fingerprint)
    return found


def _reads_without_ray(space: Space) -> bool:
    """Return whether all sources are data sets of scikit-learn, which need no Ray."""
    paths = [
        split.path
        for split in (space.data.valid, space.data.test)
        if split is not None and split.path
    ]
    return all(
        str(source).startswith("sklearn:")
        for source in (space.data.train, *paths, *(v.train for v in space.variants))
    )


@contextlib.contextmanager
def _ray(folder: Path, space: Space, roots: tuple[Path, ...]) -> Iterator[None]:
    """Run Ray within the `with` block, or connect to the cluster with which the sweep started."""
    from sweeps.execution.cluster import ray_connection

    origin = read_origin(folder)
    address = origin.get("address")
    prepare_ray(address)
    with (
        reserve("sweeps export --ensemble", folder, address, None, None, origin) as share,
        scratch_folder(folder) as scratch,
        ray_connection(space, scratch, roots, address, share),
    ):
        yield
