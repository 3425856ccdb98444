"""The taxi data of the benchmarks: `search_spaces/taxi.py`, rows split by month, and four
preprocessors for sweeps and scikit-learn.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loops import taxi_matrix, taxi_trial
from benchmarks.running import ROOT

FILES = "TLC_FILES"
LABEL, MONTH, VALID = "is_big_tip", "month", 0.08
SCALED, ZONES = (
    ["trip_distance", "trip_duration", "fare_amount", "passenger_count", "hour"],
    ["PULocationID", "DOLocationID"],
)
THREADS = 2

DATA = (
    'data: {train: "taxi:load", label: is_big_tip, valid: {time: month, last: 0.08}, drop: [month]}'
)
# The same preprocessors as in `pipeline`, in the same order.
CHAINS = """
    grid:
      - ["taxi:features", StandardScaler: {columns: &scaled \
[trip_distance, trip_duration, fare_amount, passenger_count, hour]}]
      - ["taxi:features", "sklearn.preprocessing:QuantileTransformer": {columns: *scaled}]
      - ["taxi:features", "sklearn.preprocessing:PowerTransformer": {columns: *scaled}]
      - ["taxi:features", "sklearn.preprocessing:TargetEncoder": \
{columns: [PULocationID, DOLocationID]}]
"""


def absent() -> str | None:
    """Return why there is no taxi data on this machine; None if there is."""
    import glob

    if not os.environ.get(FILES):
        return (
            f"{FILES} is not set; it takes a path or glob of TLC trip records, see "
            "search_spaces/taxi_big_tip.yaml"
        )
    files = glob.glob(os.path.expanduser(os.environ[FILES]))
    return None if files else f"{FILES} is {os.environ[FILES]}, which no file matches"


def beside(folder: Path) -> None:
    """Copy the module that a space file names as `taxi` to the folder of the space file."""
    shutil.copy(ROOT / "search_spaces" / "taxi.py", folder)


def load() -> Any:
    """Return the cleaned trips, as `search_spaces/taxi.py` returns them."""
    from search_spaces import taxi

    return taxi.load()


def load_few() -> Any:
    """Return every hundredth of the cleaned trips."""
    return load().iloc[::100].reset_index(drop=True)


def features(trips: Any) -> Any:
    """Compute numeric features from raw trips, as `search_spaces/taxi.py` does."""
    from search_spaces import taxi

    return taxi.features(trips)


def split(trips: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Split the rows by month.

    Returns:
        train, valid, labels of train, labels of valid. Valid has the latest whole months, with
        about 8 % of the rows.
    """
    rows = trips[MONTH].value_counts().sort_index(ascending=False).cumsum()
    first = rows.index[int((rows >= VALID * len(trips)).to_numpy().argmax())]
    late = (trips[MONTH] >= first).to_numpy()
    x, y = trips.drop(columns=[MONTH, LABEL]), trips[LABEL].to_numpy().astype(int)
    return x[~late], x[late], y[~late], y[late]


def pipeline(number: int, memory: Path | None) -> Any:
    """Return preprocessor `number` (0 to 3) as a scikit-learn pipeline; `memory` caches fits."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import (
        FunctionTransformer,
        PowerTransformer,
        QuantileTransformer,
        StandardScaler,
        TargetEncoder,
    )

    step, columns = [
        (StandardScaler(), SCALED),
        (QuantileTransformer(), SCALED),
        (PowerTransformer(), SCALED),
        (TargetEncoder(), ZONES),
    ][number]
    steps = ColumnTransformer([("step", step, columns)], remainder="passthrough")
    # scikit-learn does not cache the fit of the last step, so the last step does nothing.
    return Pipeline(
        [("features", FunctionTransformer(features)), ("step", steps), ("end", "passthrough")],
        memory=memory and str(memory),
    )


def suggested(trial: Any) -> dict[str, float]:
    """Suggest the tuned parameters in a bare Optuna loop.

    `TUNED` has the same parameters for sweeps.

    The time to build a tree hardly depends on these parameters.
    """
    return {
        "eta": trial.suggest_float("eta", 0.03, 0.3, log=True),
        "reg_lambda": trial.suggest_float("reg_lambda", 0.1, 10.0, log=True),
    }


TUNED = "eta: {loguniform: [0.03, 0.3]}, reg_lambda: {loguniform: [0.1, 10.0]}"


def value(config: dict[str, float], rounds: int, prepared: tuple[Any, Any, Any, Any]) -> float:
    """Build the matrices, train, and return the result."""
    x, x_valid, y, y_valid = prepared
    return taxi_trial(
        config, rounds, THREADS, taxi_matrix(x, y, THREADS), taxi_matrix(x_valid, y_valid, THREADS)
    )
