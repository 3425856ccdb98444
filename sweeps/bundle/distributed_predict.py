"""Predict a Parquet file in several processes through Ray Data.

The predictions keep the order of the rows.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sweeps.bundle import integrity
from sweeps.core import crash_cleanup, logging_setup
from sweeps.core.errors import SweepsError
from sweeps.data.ray_data import quiet_ray_data

if TYPE_CHECKING:
    from sweeps.bundle.model import Bundle


# The variable makes Ray start separate processes for the tasks, because a process keeps the modules
# of a bundle that it has loaded
WORKER_OPTIONS: dict[str, Any] = {"runtime_env": {"env_vars": {"SWEEPS_PREDICTS": "1"}}}


@functools.lru_cache(maxsize=1)
def _load_once(bundle: str, digest: str) -> Bundle:
    """Load a bundle once per process.

    `digest` is the SHA-256 of the bundle's manifest, so a changed bundle is loaded again.
    """
    from sweeps.bundle.model import load_bundle

    return load_bundle(bundle)


def _predict_row_groups(
    groups: pd.DataFrame, bundle: str, digest: str, source: str, chunk: int
) -> Iterator[pd.DataFrame]:
    """Predict row groups of a Parquet file. Ray Data runs this function in its worker processes.

    Ray Data runs the function in tasks and not in actors, because its actors may survive an error
    and keep their CPUs.

    Args:
        groups: one row for each row group to predict: `group` is its number, `before` is the number
            of rows that precede it in the file.
        bundle: the bundle's folder.
        digest: SHA-256 of the bundle's manifest.
        source: path or URI of the file.
        chunk: largest number of rows in a yielded frame.
    """
    from sweeps.bundle.predict import predict_chunks, read_row_groups

    loaded = _load_once(bundle, digest)
    for group, before in zip(groups["group"].tolist(), groups["before"].tolist(), strict=True):
        yield from predict_chunks(
            loaded, read_row_groups(source, loaded.manifest, chunk, [group]), before
        )


def predict_distributed(
    bundle: str | Path, source: str | Path, groups: Sequence[int], chunk: int, workers: int
) -> Iterator[pd.DataFrame]:
    """Predict the rows of a Parquet file in several processes.

    Args:
        bundle: the bundle's folder.
        source: path or URI of the file. Every worker must be able to read the file.
        groups: number of rows in each row group of the file. A worker predicts one row group at a
            time.
        chunk: largest number of rows in a yielded frame.
        workers: number of processes.

    Yields:
        Predictions of at most `chunk` rows, in the order of the file.

    Raises:
        SweepsError: a worker raised this error, such as an `InputError` for an invalid value.
    """
    logging_setup.set_environment()
    import ray
    import ray.data

    workers = max(1, min(workers, len(groups)))  # Ray Data warns of more workers than row groups.
    started = not ray.is_initialized()
    if started:
        with crash_cleanup.cleaned_up_on_failure():
            ray.init(
                address="local",
                num_cpus=workers + 1,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    folder = Path(bundle).resolve()
    digest = integrity.sha256(folder / integrity.MANIFEST)
    predict = functools.partial(
        _predict_row_groups, bundle=str(folder), digest=digest, source=str(source), chunk=chunk
    )
    before = [0, *itertools.accumulate(groups)]
    try:
        with quiet_ray_data():
            rows = ray.data.from_items(
                [{"group": i, "before": before[i]} for i in range(len(groups))],
                override_num_blocks=len(groups),
            )
            predictions = rows.map_batches(
                predict,
                batch_size=1,
                batch_format="pandas",
                compute=ray.data.TaskPoolStrategy(size=workers),
                **WORKER_OPTIONS,
            )
            yield from predictions.iter_batches(
                batch_size=None, batch_format="pandas", prefetch_batches=1
            )
    except Exception as e:  # Ray wraps the errors of workers
        own_errors = [cause for cause in _causes(e) if isinstance(cause, SweepsError)]
        if not own_errors:
            raise
        raise own_errors[-1].with_traceback(
            None
        ) from None  # the outer errors are Ray's; their class inherits from SweepsError, too
    finally:
        if started:
            with contextlib.suppress(Exception):
                ray.shutdown()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of this cause, and so on.

    The cause is Ray's attribute `cause`, or else Python's attribute `__cause__`.
    """
    while error is not None:
        yield error
        error = getattr(error, "cause", None) or error.__cause__
