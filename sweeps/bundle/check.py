"""Check that a bundle predicts what the model predicted in training.

Run the module in a fresh process: `python -m sweeps.bundle.check FOLDER`. The check loads the
bundle as any user of MLflow would, and predicts the raw rows stored in the bundle. The predictions
must be bit-identical to the predictions that were stored in training. If the model was trained on a
GPU, they may differ by the tolerance in the manifest. The exit code is 0 if the bundle is good.
Otherwise the exit code is 1, and the last line on stderr gives the reason. A line on stdout that
begins with `SPEED` has the speed in rows a second.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sweeps.core.errors import BundleError, SweepsError

from .manifest import CHECK_OUTPUT, CHECK_ROWS, DATA_FOLDER, Manifest
from .predictions import label_output

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel

# The batch with which the speed of a bundle is measured grows until it has this many rows, or until
# its prediction takes this many seconds.
TIMED_ROWS = 2_000
TIMED_SECONDS = 0.5
# Beginning of the line on stdout that has the speed
SPEED = "rows a second: "


def check(folder: Path) -> float | None:
    """Load a bundle, predict its stored rows, and compare with its stored predictions of training.

    If the bundle has no stored rows, the function only loads the bundle. If the bundle has rows but
    no predictions of training, the function predicts the rows and compares nothing.

    Args:
        folder: The bundle's folder.

    Returns:
        Number of rows that the bundle predicts in a second, in one batch; None without stored rows.

    Raises:
        SweepsError: The bundle cannot be loaded, cannot predict, or predicts other values. If
            values differ, the message names the largest difference and the first row that differs.
    """
    manifest = Manifest.read(folder)
    pyfunc = import_pyfunc()
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    # The warnings compare versions, which takes a second.
    model = pyfunc.load_model(str(folder), suppress_warnings=True)
    if not (folder / DATA_FOLDER / CHECK_ROWS).is_file():
        return None
    rows = pd.read_parquet(folder / DATA_FOLDER / CHECK_ROWS)
    began = time.perf_counter()
    predictions = model.predict(rows)
    seconds = time.perf_counter() - began
    if len(predictions) != len(rows):
        raise BundleError(f"the bundle predicts {len(predictions)} rows for {len(rows)} input rows")
    if manifest.checked:
        expected = label_output(
            manifest, np.load(folder / DATA_FOLDER / CHECK_OUTPUT, allow_pickle=False), rows.index
        )
        difference = describe_difference(expected, predictions, manifest.tolerance)
        if difference is not None:
            raise BundleError(
                f"the bundle's predictions differ from the predictions in training: {difference}"
            )
    return _measure_speed(model, rows, seconds) if len(rows) else None


def _measure_speed(model: PyFuncModel, rows: pd.DataFrame, seconds: float) -> float:
    """Return how many rows a model predicts in a second, in one batch that repeats some rows.

    Args:
        model: The loaded bundle.
        rows: At least one row.
        seconds: Duration of the first prediction of `rows`. It is often slower than the next.
    """
    copies = 1  # the first round predicts the same rows again, without the slow start
    while seconds < TIMED_SECONDS and len(rows) < TIMED_ROWS:
        rows = pd.concat([rows] * copies, ignore_index=True)
        began = time.perf_counter()
        model.predict(rows)
        seconds = max(time.perf_counter() - began, 1e-6)
        copies = 8
    return len(rows) / seconds


def describe_difference(
    expected: pd.DataFrame, got: pd.DataFrame, tolerance: float = 0.0
) -> str | None:
    """Describe how two frames of predictions differ.

    Args:
        expected: The predictions made in training.
        got: The predictions of the bundle, with the same number of rows.
        tolerance: See `Manifest.tolerance`. If it is not 0 and there are probabilities or numbers,
            only these are compared, because a class may change with the last digits.

    Returns:
        Text with the first column that differs, or None if no value differs by more than the
        tolerance. NaN equals NaN.
    """
    if tolerance:
        floats = expected.select_dtypes("float")
        expected = floats if len(floats.columns) else expected
        got = got[[name for name in expected.columns if name in got]]
    try:
        pd.testing.assert_frame_equal(
            expected.reset_index(drop=True),
            got.reset_index(drop=True),
            check_dtype=False,
            check_column_type=False,
            check_exact=not tolerance,
            rtol=tolerance,
            atol=tolerance,
        )
    except AssertionError as e:
        return " ".join(str(e).split())
    return None


def import_pyfunc() -> ModuleType:
    """Import `mlflow.pyfunc` with MLflow's telemetry disabled."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import mlflow.pyfunc

    return mlflow.pyfunc


def main(folder: str) -> None:
    """Run the check from the command line. Exit with the code 1 if the bundle is not good.

    Args:
        folder: The bundle's folder.
    """
    warnings.simplefilter("ignore")
    try:
        speed = check(Path(folder))
    except SweepsError as e:
        sys.exit(str(e))
    if speed is not None:
        print(f"\n{SPEED}{speed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
