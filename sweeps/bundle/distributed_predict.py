"""A Parquet file predicted by several processes, through Ray Data, in the order of its rows."""

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
from sweeps.core import logging_setup
from sweeps.core.errors import SweepsError
from sweeps.data.sources import quiet_ray_data

if TYPE_CHECKING:
    from sweeps.bundle.model import Bundle


# Its tasks get processes of their own, as what a bundle brings to import stays in one that has loaded it
WORKER_OPTIONS: dict[str, Any] = {"runtime_env": {"env_vars": {"SWEEPS_PREDICTS": "1"}}}


@functools.lru_cache(maxsize=1)
def _load_once(bundle: str, digest: str) -> Bundle:
    """A bundle, once a process; `digest` is its manifest's."""
    from sweeps.bundle.model import load_bundle

    return load_bundle(bundle)


def _predict_row_groups(groups: pd.DataFrame, bundle: str, digest: str, source: str, chunk: int) -> Iterator[pd.DataFrame]:
    """The predictions of some row groups of a file: a task of Ray Data. (Its actors may outlive an error, with the CPUs that they hold.)"""
    from sweeps.bundle.predict import predict_chunks, read_row_groups

    loaded = _load_once(bundle, digest)
    for group, before in zip(groups["group"].tolist(), groups["before"].tolist(), strict=True):
        yield from predict_chunks(loaded, read_row_groups(source, loaded.manifest, chunk, [group]), before)


def predict_distributed(bundle: str | Path, source: str | Path, groups: Sequence[int], chunk: int, workers: int) -> Iterator[pd.DataFrame]:
    """The predictions of a Parquet file's rows, in pieces.

    Args:
        bundle: its folder.
        source: the file, which every worker can read.
        groups: the rows of each row group of the file, which a worker takes at once.
        chunk: rows of a piece.
        workers: processes that predict.

    Raises:
        SweepsError: what a worker raised.
    """
    logging_setup.set_environment()
    import ray
    import ray.data

    began = not ray.is_initialized()
    if began:
        ray.init(address="local", num_cpus=workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    folder = Path(bundle).resolve()
    digest = integrity.sha256(folder / integrity.MANIFEST)
    predict = functools.partial(_predict_row_groups, bundle=str(folder), digest=digest, source=str(source), chunk=chunk)
    before = [0, *itertools.accumulate(groups)]
    try:
        with quiet_ray_data():
            rows = ray.data.from_items([{"group": i, "before": before[i]} for i in range(len(groups))], override_num_blocks=len(groups))
            found = rows.map_batches(
                predict,
                batch_size=1,
                batch_format="pandas",
                compute=ray.data.TaskPoolStrategy(size=workers),
                **WORKER_OPTIONS,
            )
            yield from found.iter_batches(batch_size=None, batch_format="pandas", prefetch_batches=1)
    except Exception as e:  # Ray puts what a worker raised into errors of its own
        ours = [cause for cause in _causes(e) if isinstance(cause, SweepsError)]
        if not ours:
            raise
        raise ours[-1].with_traceback(None) from None  # the others are Ray's, of a class that is both
    finally:
        if began:
            with contextlib.suppress(Exception):
                ray.shutdown()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised for, by Python's chain and by Ray's."""
    while error is not None:
        yield error
        error = getattr(error, "cause", None) or error.__cause__
