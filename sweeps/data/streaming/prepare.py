"""Prepare the streams of a trial: fit the chain, and describe the splits.

The data actor calls these functions.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import ray

from sweeps.core.errors import InputError
from sweeps.data.columns import check_readable
from sweeps.data.prepared_store import DatasetInfo, PreparedStore
from sweeps.data.streaming.fit import FIRST_ROWS, first_rows, fit_on_stream, prepared
from sweeps.data.streaming.splits import StreamSplits

if TYPE_CHECKING:
    from sweeps.space import Step
    from sweeps.space.trainer_definition import TrainerDefinition


def prepare_streams(
    key: str,
    steps: tuple[Step, ...],
    splits: StreamSplits,
    store: PreparedStore,
    roots: tuple[str, ...],
    check_rows: int,
    trainer: TrainerDefinition,
) -> dict[str, Any]:
    """Fit a chain on the train split, and return the prepared streams.

    Args:
        key: name of the prepared data.
        steps: the chain.
        splits: the splits of the trial.
        store: store of fitted chains.
        roots: folders of the user's modules.
        check_rows: number of rows of valid for which a trainer stores predictions.
        trainer: definition of the trainer, which must be able to read the prepared columns.

    Returns:
        A dict; see `_DataActor.prepare`. Instead of rows, the references are to lazy Ray Datasets.

    Raises:
        InputError: the chain cannot be fitted.
    """
    stored, first = None, pd.DataFrame()
    with contextlib.suppress(InputError):  # damaged or not trusted: the chain is fitted again
        stored = store.find_chain(key)  # exists in a resumed sweep
    if stored is None:
        fitted, first = fit_on_stream(steps, splits, roots)
        store.save_chain(key, fitted)
    else:
        fitted = stored
        first = fitted.transform(first_rows(splits.train, FIRST_ROWS, splits.schema).to_pandas())
    check_readable(first, splits.label, trainer)
    check = fitted.transform(first_rows(splits.valid, check_rows, splits.schema).to_pandas())
    features = check if splits.label is None else check.drop(columns=splits.label, errors="ignore")
    streams = {"train": splits.train, "valid": splits.valid}
    shards = {
        name: (ray.put(prepared(dataset, fitted, splits.schema, roots)),)
        for name, dataset in streams.items()
    }
    return {"key": key, "bytes": 0, "shards": shards, "check": ray.put(features), "weight": None}


def describe_streams(
    splits: StreamSplits, fingerprint: str, check_rows: int
) -> tuple[DatasetInfo, pa.Table]:
    """Return information about a data variant, and the first rows of valid.

    These rows are raw, and do not have the label.
    """
    check = first_rows(splits.valid, check_rows, splits.schema).select(list(splits.features))
    info = DatasetInfo(
        label=splits.label,
        task=splits.task,
        classes=splits.classes,
        features=splits.features,
        fingerprint=fingerprint,
        rows=splits.rows,
        check=check.to_pandas(),
        notes=splits.notes,
        missing=splits.missing,
    )
    return info, check
