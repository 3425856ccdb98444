"""A Parquet file predicted by several processes, through Ray Data, in the order of its rows."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps import chatter
from sweeps.errors import SweepsError


class Worker:
    """What an actor of Ray Data keeps: the bundle, and how to read the file."""

    def __init__(self, bundle: str, source: str, chunk: int):
        from sweeps.bundle.model import load_bundle

        self.bundle, self.source, self.chunk = load_bundle(bundle), source, chunk

    def __call__(self, groups: pd.DataFrame) -> Iterator[pd.DataFrame]:
        from sweeps.bundle.predict import parquet_rows, predicted

        for group, before in zip(groups["group"].tolist(), groups["before"].tolist(), strict=True):
            yield from predicted(self.bundle, parquet_rows(self.source, self.bundle.manifest, self.chunk, [group]), before)


def spread(bundle: str | Path, source: str | Path, groups: Sequence[int], chunk: int, workers: int) -> Iterator[pd.DataFrame]:
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
    chatter.set_environment()
    import ray
    import ray.data

    began = not ray.is_initialized()
    if began:
        ray.init(address="local", num_cpus=workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    settings: dict[str, Any] = {"order": context.execution_options.preserve_order, "bars": context.enable_progress_bars}
    wrong: BaseException | None = None
    rows: Any = None
    found: Any = None
    try:
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        before = [0, *itertools.accumulate(groups)]
        rows = ray.data.from_items([{"group": i, "before": before[i]} for i in range(len(groups))], override_num_blocks=max(1, len(groups)))
        arguments = (str(Path(bundle).resolve()), str(source), chunk)
        found = rows.map_batches(
            Worker, fn_constructor_args=arguments, batch_size=1, batch_format="pandas", compute=ray.data.ActorPoolStrategy(size=workers)
        )
        yield from found.iter_batches(batch_size=None, batch_format="pandas", prefetch_batches=1)
    except Exception as e:  # Ray puts what a worker raised into errors of its own
        wrong = e
        for cause in _causes(e):
            wrong = cause if isinstance(cause, SweepsError) else wrong
    finally:
        del found, rows  # the workers end with the last reference to these, and an error that is kept keeps this frame
        context.execution_options.preserve_order, context.enable_progress_bars = settings["order"], settings["bars"]
        if began:
            with contextlib.suppress(Exception):
                ray.shutdown()
    if wrong is not None:
        gc.collect()  # Ray's own error and its frames keep each other
        raise wrong.with_traceback(None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised for, by Python's chain and by Ray's."""
    while error is not None:
        yield error
        error = getattr(error, "cause", None) or error.__cause__
