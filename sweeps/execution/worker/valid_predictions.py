"""Keep the predictions that a trial's best model makes for the rows of valid.

Averages of models are chosen with these predictions. They lie beside the trial's checkpoints.
"""

import functools
import logging
import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sweeps.core.files import stores
from sweeps.core.files.atomic_files import write_atomically
from sweeps.core.files.checkpoint_files import checkpoint_root_in, fold_folder
from sweeps.core.files.prediction_files import MOST_BYTES, KeptPredictions
from sweeps.core.files.sweep_folder import PREDICTIONS
from sweeps.core.label_columns import GROUP_COLUMN, label_columns
from sweeps.core.loop_context import Current
from sweeps.core.plugins import references
from sweeps.data.columns.column_values import tensors_to_arrays

from .dataset_cache import DatasetCache
from .fold_runs import reported_file
from .trial_session import TrialSession

log = logging.getLogger(__name__)

# Number of rows that are predicted at once.
CHUNK = 8192
# Predicting may take this many seconds, or this share of the attempt's time if that is more.
LEAST_SECONDS = 2.0
MOST_SHARE = 0.05
# Predictions that take longer are not made a second time.
MOST_SECONDS_TWICE = 0.1
# A worker that is stopped at the end of the sweep has less time, because others wait for it.
SECONDS_WHEN_STOPPED = 0.5


@dataclass(frozen=True)
class ValidModel:
    """A model of a trial, and the rows of valid that it predicts.

    Attributes:
        folder: Folder of the checkpoint; None if there is no checkpoint.
        data: The data of the run that trained the model.
        reported: The predictions that the loop passed to `sweeps.report_predictions`, or None.
    """

    folder: Path | None
    data: DatasetCache
    reported: np.ndarray | None


def keep_predictions(session: TrialSession, current: Current) -> None:
    """Write what the model in a trial's best checkpoint predicts. Any error is only logged.

    If a model cannot predict, the trial keeps no predictions.

    Args:
        session: The session of a trial that is complete, or that the end of the sweep stops, on
            rank 0.
        current: Description of the trial, with the predictions that the loop reported last.
    """
    seconds = max(LEAST_SECONDS, MOST_SHARE * session.seconds)
    limit = time.monotonic() + (SECONDS_WHEN_STOPPED if session.stops else seconds)
    session.expect_silence()
    load = session.job.trainer_of(session.assignment.trial).load
    try:
        with session.open_best() as folder:
            models = _models(session, current, folder)
            if any(model.reported is None and not (load and model.folder) for model in models):
                return
            # Libraries connect the thread of the loop with the other ranks. There, XGBoost would
            # wait for them to make a matrix, too.
            with ThreadPoolExecutor(1) as thread:
                predictions_of = functools.partial(_predictions, session, load=load, limit=limit)
                predicted = list(thread.map(predictions_of, models))
        step = session.step if session.best is None else session.best.best_step
        seconds = sum(seconds for _, seconds in predicted)
        _write(session, KeptPredictions(step, tuple(array for array, _ in predicted), seconds))
    except (Exception, SystemExit) as e:  # a user's model may raise anything
        log.warning("the predictions for valid are not kept: %s: %s", type(e).__name__, e)


def _models(session: TrialSession, current: Current, folder: Path | None) -> list[ValidModel]:
    """Return the trial's model, or the model of each fold of a cross-validation.

    Args:
        session: The session of the trial.
        current: Description of the trial, with the predictions that the loop reported last.
        folder: The best checkpoint; None if there is none.
    """
    if not session.job.folds or folder is None:
        reported = current.predictions if session.best is None else session.best_predictions
        return [ValidModel(folder, session.cache, reported)]
    models = []
    for number, data in enumerate(session.cache.folds, 1):
        file = reported_file(folder, number)
        reported = np.load(file, allow_pickle=False) if file.is_file() else None
        model = fold_folder(folder, number)
        models.append(ValidModel(model if model.is_dir() else None, data, reported))
    return models


def _predictions(
    session: TrialSession, model: ValidModel, load: str | None, limit: float
) -> tuple[np.ndarray, float]:
    """Return a model's predictions for all rows of valid, and the seconds that they took.

    The seconds are NaN if the loop reported the predictions.

    Args:
        session: The session of the trial.
        model: The model, with reported predictions, or with a checkpoint that `load` loads.
        load: See `LoopSpec.load`.
        limit: Time by the monotonic clock at which the predictions must be complete.

    Raises:
        ValueError: There is not one prediction for each row, or there are too many numbers.
        TimeoutError: The predictions are not complete at the time `limit`.
    """
    predictions = model.reported
    rows = _features(session, model.data)
    seconds = math.nan
    if predictions is None:
        assert load is not None, "a model without `load` has reported predictions"
        loaded = references.resolve(load)(str(model.folder))
        predictions, seconds = _timed(loaded, rows, limit)
        if seconds < MOST_SECONDS_TWICE:  # The first time, libraries may have been loaded.
            seconds = min(seconds, _timed(loaded, rows, math.inf)[1])
    if len(predictions) != len(rows):
        text = f"there are {len(predictions)} predictions for the {len(rows)} rows of valid"
        raise ValueError(f"{text}; there must be one for each row, in the order of the shard")
    if predictions.dtype.kind not in "biuf":
        raise ValueError(f"the predictions must be numbers, but are {predictions.dtype}")
    if predictions.nbytes > MOST_BYTES:
        text = f"the predictions have {predictions.nbytes >> 20} MiB"
        raise ValueError(f"{text}, and at most {MOST_BYTES >> 20} MiB are kept")
    return predictions, seconds


def _features(session: TrialSession, data: DatasetCache) -> pd.DataFrame:
    """Return the prepared rows of valid as a bundle passes them to a model."""
    frame: pd.DataFrame = data.shard("valid", session.ranks).materialize().to_pandas()
    label = label_columns(session.assignment.labels.label)
    frame = frame.drop(columns=[*label, GROUP_COLUMN], errors="ignore")
    return frame.apply(tensors_to_arrays) if len(frame.columns) else frame


def _timed(model: Any, rows: pd.DataFrame, limit: float) -> tuple[np.ndarray, float]:
    """Predict rows in chunks, and return the predictions and the seconds that they took.

    Raises:
        TimeoutError: The time is over.
    """
    began = time.perf_counter()
    parts = []
    for start in range(0, max(1, len(rows)), CHUNK):
        if time.monotonic() > limit:
            raise TimeoutError("the model predicts too slowly")
        parts.append(np.asarray(model.predict(rows.iloc[start : start + CHUNK])))
    return np.concatenate(parts), time.perf_counter() - began


def _write(session: TrialSession, kept: KeptPredictions) -> None:
    """Write the predictions beside the trial's checkpoints."""
    root = checkpoint_root_in(session.job.store, session.folder)
    if session.job.store is None:
        with write_atomically(Path(root, PREDICTIONS)) as part:
            kept.write(part)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, PREDICTIONS)
        kept.write(file)
        stores.open_store(root).put(file, PREDICTIONS)
