"""The taxi data of the benchmarks: `search_spaces/taxi.py`, its rows split by month, and the four preprocessors in both languages."""

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
SCALED, ZONES = ["trip_distance", "trip_duration", "fare_amount", "passenger_count", "hour"], ["PULocationID", "DOLocationID"]
THREADS = 2

DATA = 'data: {train: "taxi:load", label: is_big_tip, valid: {time: month, last: 0.08}, drop: [month]}'
# the same as `pipeline` makes, in the order of its numbers
CHAINS = """
    grid:
      - ["taxi:features", StandardScaler: {columns: &scaled [trip_distance, trip_duration, fare_amount, passenger_count, hour]}]
      - ["taxi:features", "sklearn.preprocessing:QuantileTransformer": {columns: *scaled}]
      - ["taxi:features", "sklearn.preprocessing:PowerTransformer": {columns: *scaled}]
      - ["taxi:features", "sklearn.preprocessing:TargetEncoder": {columns: [PULocationID, DOLocationID]}]
"""


def absent() -> str | None:
    """Why there is no taxi data here; None if there is."""
    import glob

    if not os.environ.get(FILES):
        return f"{FILES} is not set; it takes a path or glob of TLC trip records, see search_spaces/taxi_big_tip.yaml"
    found = glob.glob(os.path.expanduser(os.environ[FILES]))
    return None if found else f"{FILES} is {os.environ[FILES]}, which no file matches"


def beside(folder: Path) -> None:
    """Put the module that a space file names as `taxi` where the space file is to be."""
    shutil.copy(ROOT / "search_spaces" / "taxi.py", folder)


def load() -> Any:
    """The cleaned trips, as `search_spaces/taxi.py` gives them."""
    from search_spaces import taxi

    return taxi.load()


def load_few() -> Any:
    """Every hundredth of them."""
    return load().iloc[::100].reset_index(drop=True)


def features(trips: Any) -> Any:
    """Raw trips as numbers, as `search_spaces/taxi.py` does it."""
    from search_spaces import taxi

    return taxi.features(trips)


def split(trips: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """(train, valid, labels of train, labels of valid): valid are the latest months, each whole, that hold 8 % of the rows."""
    rows = trips[MONTH].value_counts().sort_index(ascending=False).cumsum()
    first = rows.index[int((rows >= VALID * len(trips)).to_numpy().argmax())]
    late = (trips[MONTH] >= first).to_numpy()
    x, y = trips.drop(columns=[MONTH, LABEL]), trips[LABEL].to_numpy().astype(int)
    return x[~late], x[late], y[~late], y[late]


def pipeline(number: int, memory: Path | None) -> Any:
    """The preprocessor of this number, 0 to 3, as a scikit-learn pipeline; `memory` caches its fits."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, PowerTransformer, QuantileTransformer, StandardScaler, TargetEncoder

    step, columns = [
        (StandardScaler(), SCALED),
        (QuantileTransformer(), SCALED),
        (PowerTransformer(), SCALED),
        (TargetEncoder(), ZONES),
    ][number]
    steps = ColumnTransformer([("step", step, columns)], remainder="passthrough")
    # the last step's fit is not cached: hence one that does nothing
    return Pipeline([("features", FunctionTransformer(features)), ("step", steps), ("end", "passthrough")], memory=memory and str(memory))


def suggested(trial: Any) -> dict[str, float]:
    """What is tuned beside the preprocessor, in a bare Optuna loop; `TUNED` in ours. A tree's cost hardly depends on it."""
    return {"eta": trial.suggest_float("eta", 0.03, 0.3, log=True), "reg_lambda": trial.suggest_float("reg_lambda", 0.1, 10.0, log=True)}


TUNED = "eta: {loguniform: [0.03, 0.3]}, reg_lambda: {loguniform: [0.1, 10.0]}"


def value(config: dict[str, float], rounds: int, prepared: tuple[Any, Any, Any, Any]) -> float:
    """Make the matrices and train."""
    x, x_valid, y, y_valid = prepared
    return taxi_trial(config, rounds, THREADS, taxi_matrix(x, y, THREADS), taxi_matrix(x_valid, y_valid, THREADS))
