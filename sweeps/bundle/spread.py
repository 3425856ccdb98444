"""A Parquet file predicted by several processes, through Ray Data, in the order of its rows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps import chatter


class Worker:
    """What an actor of Ray Data keeps: the bundle, and how to read the file."""

    def __init__(self, bundle: str, source: str, chunk: int):
        from sweeps.bundle.model import load_bundle

        self.bundle, self.source, self.chunk = load_bundle(bundle), source, chunk

    def __call__(self, groups: pd.DataFrame) -> Iterator[pd.DataFrame]:
        from sweeps.bundle.predict import parquet_rows

        yield from (
            self.bundle.predict(rows) for rows in parquet_rows(self.source, self.bundle.manifest, self.chunk, groups["group"].tolist())
        )


def predicted(bundle: str | Path, source: str | Path, groups: int, chunk: int, workers: int) -> Iterator[pd.DataFrame]:
    """The predictions of a Parquet file's rows, in pieces.

    Args:
        bundle: its folder.
        source: the file, which every worker can read.
        groups: row groups of the file; what a worker takes at once.
        chunk: rows of a piece.
        workers: processes that predict.
    """
    chatter.set_environment()
    import ray
    import ray.data

    began = not ray.is_initialized()
    if began:
        ray.init(address="local", num_cpus=workers + 1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    before: dict[str, Any] = {"order": context.execution_options.preserve_order, "bars": context.enable_progress_bars}
    try:
        context.execution_options.preserve_order, context.enable_progress_bars = True, False
        rows = ray.data.from_items([{"group": i} for i in range(groups)], override_num_blocks=max(1, groups))
        arguments = (str(Path(bundle).resolve()), str(source), chunk)
        found = rows.map_batches(
            Worker, fn_constructor_args=arguments, batch_size=1, batch_format="pandas", compute=ray.data.ActorPoolStrategy(size=workers)
        )
        yield from found.iter_batches(batch_size=None, batch_format="pandas", prefetch_batches=1)
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before["order"], before["bars"]
        if began:
            with contextlib.suppress(Exception):
                ray.shutdown()
