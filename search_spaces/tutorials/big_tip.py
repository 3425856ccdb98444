"""Trips of New York's yellow taxis, for `taxi_network.yaml` and `taxi_xgboost.yaml`.

`load` reads and cleans the trips for training. `features` is the first step of each preprocessor,
so the bundle contains it and predicts from rows as the TLC publishes them. Without files, `load`
makes trips that look like the TLC's, errors included. To write made trips of another month to a
file:

    python search_spaces/tutorials/big_tip.py 2020-02 february.parquet
"""

from __future__ import annotations

import glob
import os
import sys
from typing import Any

import numpy as np
import pandas as pd

TIMES = ["tpep_pickup_datetime", "tpep_dropoff_datetime"]
NUMBERS = ["passenger_count", "trip_distance", "fare_amount"]
TIP, LABEL = "tip_amount", "is_big_tip"
COLUMNS = [*TIMES, *NUMBERS, TIP]
LONGEST = pd.Timedelta(hours=4)


def load(files: str | None = None, reader: str = "pandas", rows: int = 8_000) -> Any:
    """Return the cleaned trips, with the label `is_big_tip`.

    Args:
        files: A path or glob of the TLC's Parquet files, relative to the working directory. By
            default, the trips are made.
        reader: `pandas` reads the files in this process. `dask` reads and cleans them with Dask,
            whose tasks run on Ray. `ray` uses Ray Data.
        rows: Number of trips to make, if there are no files.

    Returns:
        A pandas frame, a Dask frame or a Ray Dataset with the columns TIMES, NUMBERS and LABEL.
    """
    return {"pandas": _with_pandas, "dask": _with_dask, "ray": _with_ray_data}[reader](files, rows)


def _find(files: str) -> list[str]:
    """Return the absolute paths of the files. Tasks of Ray may have another working directory.

    Raises:
        ValueError: No file matches.
    """
    if not (found := sorted(glob.glob(files))):
        raise ValueError(f"no file matches {files!r} in {os.getcwd()}")
    return [os.path.abspath(file) for file in found]


def _with_pandas(files: str | None, rows: int) -> pd.DataFrame:
    if files is None:
        return clean(artificial_trips("2020-01", rows))
    return clean(
        pd.concat(
            [pd.read_parquet(file, columns=COLUMNS) for file in _find(files)], ignore_index=True
        )
    )


def _with_dask(files: str | None, rows: int) -> Any:
    """Use Dask on Ray: each partition of the Dask frame is read and cleaned by a task of Ray."""
    import dask.dataframe as dd
    from ray.util.dask import enable_dask_on_ray

    enable_dask_on_ray()
    if files is None:
        return clean(dd.from_pandas(artificial_trips("2020-01", rows), npartitions=4))
    return clean(dd.read_parquet(_find(files), columns=COLUMNS))


def _with_ray_data(files: str | None, rows: int) -> Any:
    """Use Ray Data: `clean` runs as a task of Ray on each block of rows."""
    import ray.data

    if files is None:
        trips = ray.data.from_pandas(artificial_trips("2020-01", rows)).repartition(4)
    else:
        trips = ray.data.read_parquet(_find(files)).select_columns(COLUMNS)
    return trips.map_batches(clean, batch_format="pandas", batch_size=None)


def clean(trips: Any) -> Any:
    """Drop rows with missing values and rows with errors of the taximeter, and add the label.

    The label `is_big_tip` is True if the tip was more than a fifth of the fare.

    Args:
        trips: A pandas or a Dask frame with the columns COLUMNS.
    """
    trips = trips.dropna()
    duration = trips[TIMES[1]] - trips[TIMES[0]]
    good = (
        (trips["passenger_count"] <= 4)
        & (trips["trip_distance"] < 100)
        & (trips["fare_amount"] > 0)
        & (trips["fare_amount"] < 1000)
    )
    trips = trips[good & (duration > pd.Timedelta(0)) & (duration < LONGEST)]
    return trips.assign(**{LABEL: trips[TIP] > 0.2 * trips["fare_amount"]})[
        [*TIMES, *NUMBERS, LABEL]
    ]


def features(trips: pd.DataFrame) -> pd.DataFrame:
    """Compute the six features from raw trips, row by row.

    Returns:
        float64 columns: NUMBERS, `trip_duration` in seconds, `hour` (0 to 23) and `day_of_week` (0
            is Monday).
    """
    pickup, dropoff = (pd.to_datetime(trips[name]) for name in TIMES)
    made = {
        "trip_duration": (dropoff - pickup).dt.total_seconds(),
        "hour": pickup.dt.hour,
        "day_of_week": pickup.dt.day_of_week,
    }
    return trips[NUMBERS].assign(**made).astype(np.float64)


def artificial_trips(month: str, rows: int, seed: int = 0) -> pd.DataFrame:
    """Make trips in the format of the TLC. About one row in thirty has an error or a missing value.

    Args:
        month: The month of the trips, such as `2020-01`.
        rows: Number of trips.
        seed: Seed of the random numbers.

    Returns:
        The trips in the order of their start, with the columns COLUMNS.
    """
    rng = np.random.default_rng([seed, *map(int, month.split("-"))])
    first = pd.Timestamp(f"{month}-01")
    seconds = int((first + pd.offsets.MonthBegin(1) - first).total_seconds())
    pickup = first + pd.to_timedelta(np.sort(rng.integers(0, seconds, rows)), unit="s")
    miles = rng.lognormal(0.7, 0.8, rows).clip(0.1, 40)
    minutes = (miles * 60 / rng.normal(12, 2, rows).clip(5)).clip(1, 180)
    fare = np.round(2.5 + 2.5 * miles + 0.3 * minutes, 1)
    evening = np.isin(pickup.hour, [17, 18, 19, 20, 21, 22])
    weekday = pickup.day_of_week < 5
    # A big tip is more likely for a short ride, in the evening, and on a weekday.
    chance = 1 / (1 + np.exp(0.06 * (fare - 12) - 1.2 * evening - 0.6 * weekday + 0.2))
    tip = np.round(
        fare
        * np.where(
            rng.random(rows) < chance, rng.uniform(0.21, 0.3, rows), rng.uniform(0, 0.19, rows)
        ),
        2,
    )
    passengers = rng.choice(
        [1.0, 2.0, 3.0, 4.0, 5.0, np.nan], rows, p=[0.7, 0.15, 0.06, 0.05, 0.02, 0.02]
    )
    fare = np.where(rng.random(rows) < 0.01, -fare, fare)
    dropoff = pickup + pd.to_timedelta(np.round(minutes * 60), unit="s")
    columns = [
        pickup.as_unit("us"),
        dropoff.as_unit("us"),
        passengers,
        np.round(miles, 2),
        fare,
        tip,
    ]
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


if __name__ == "__main__":
    artificial_trips(sys.argv[1], 2_000).to_parquet(sys.argv[2], row_group_size=500)
