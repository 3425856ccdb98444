"""Trips of New York's yellow taxis, for `taxi_big_tip.yaml`.

`load` reads the trips for training, and drops rows with errors of the taximeter. `features` is the
first step of each chain: it computes features from one row. A bundle contains `features` but not
`load`, so it predicts from rows as the TLC publishes them, errors included.

The files are the TLC's trip records: Parquet, or CSV for earlier years.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

# the environment variable with the path or glob of the files, relative to the working directory
FILES = "TLC_FILES"

TIMES = ["tpep_pickup_datetime", "tpep_dropoff_datetime"]
# Only columns that are known before the tip. `total_amount` is left out, because it contains the
# tip.
NUMBERS = [
    *("passenger_count", "trip_distance", "fare_amount", "payment_type"),
    *("PULocationID", "DOLocationID", "RatecodeID", "VendorID"),
]
TIP = "tip_amount"

# Rows outside these bounds are errors of the taximeter. Ray's tutorial has the same bounds, but
# also drops trips with 5 passengers and rows with a missing value. Here these rows are kept,
# because missing values are common: 7 rows in 100 at the end of 2020, and 22 in 2025.
MOST_PASSENGERS, MILES, DOLLARS, SECONDS = 6, 100, 1000, 4 * 60 * 60
# Some clocks say 2008 or 2098. If a month has fewer rows than this fraction of the largest month,
# its rows are dropped.
LEAST_SHARE = 0.01


def load(files: str | None = None) -> pd.DataFrame:
    """Return the cleaned trips of all files.

    Args:
        files: A path or a glob, relative to the working directory. The default is $TLC_FILES.

    Returns:
        The trips as `clean` returns them. The files are read in the order of their names.

    Raises:
        ValueError: No path is given, no file matches, or a file lacks columns.
    """
    pattern = files or os.environ.get(FILES, "")
    if not pattern:
        raise ValueError(
            f"{FILES} is not set; give it the path of TLC trip records or a glob, such as "
            "'trips/yellow_tripdata_*.parquet'"
        )
    found = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
    if not found:
        raise ValueError(f"no file matches {pattern!r} in {os.getcwd()}")
    return clean(pd.concat([read(Path(file)) for file in found], ignore_index=True))


def read(file: Path) -> pd.DataFrame:
    """Read the needed columns of a file.

    Other columns are not read, because they differ from year to year.

    Returns:
        TIMES as datetime64[us]; unreadable times are missing values. NUMBERS and TIP as float64.

    Raises:
        ValueError: A column is missing, or the file cannot be read.
    """
    wanted = [*TIMES, *NUMBERS, TIP]
    parquet = file.suffix == ".parquet"
    try:
        have = pq.read_schema(file).names if parquet else pd.read_csv(file, nrows=0).columns
        if missing := [name for name in wanted if name not in have]:
            more = f" and {len(missing) - 1} more" * (len(missing) > 1)
            raise ValueError(
                f"it lacks the column `{missing[0]}`{more}; are these trips of yellow taxis?"
            )
        trips = (
            pd.read_parquet(file, columns=wanted)
            if parquet
            else pd.read_csv(file, usecols=wanted)[wanted]
        )
        for name in TIMES:
            trips[name] = pd.to_datetime(trips[name], errors="coerce").dt.as_unit("us")
        return trips.astype(dict.fromkeys([*NUMBERS, TIP], "float64"))
    except (ValueError, OSError) as e:  # These classes include pyarrow's errors.
        raise ValueError(f"{file}: {str(e).splitlines()[0]}") from e


def clean(trips: pd.DataFrame) -> pd.DataFrame:
    """Drop rows with errors of the taximeter, and add the columns `month` and `is_big_tip`.

    Args:
        trips: The trips as `read` returns them.

    Returns:
        The raw columns that `features` needs, and two new columns. `month` is the first day of the
        month; the rows are split by it. `is_big_tip`, the label, is True if the tip was more than a
        fifth of the fare.
    """
    pickup, dropoff = (trips[name] for name in TIMES)
    good = (dropoff - pickup).dt.total_seconds().between(0, SECONDS, inclusive="neither")
    good &= trips["fare_amount"].between(0, DOLLARS, inclusive="neither")
    good &= trips["trip_distance"].between(0, MILES, inclusive="left")
    good &= ~(trips["passenger_count"] > MOST_PASSENGERS)  # keeps rows without a count
    kept = trips[good]
    month = pd.Series(
        kept[TIMES[0]].to_numpy().astype("datetime64[M]").astype("datetime64[us]"), kept.index
    )
    rows = month.value_counts()
    kept = kept[month.isin(rows.index[rows >= LEAST_SHARE * rows.max()])]
    big = kept[TIP] > 0.2 * kept["fare_amount"]
    return kept[[*TIMES, *NUMBERS]].assign(month=month, is_big_tip=big).reset_index(drop=True)


def features(trips: pd.DataFrame) -> pd.DataFrame:
    """Compute numeric features from raw trips, row by row.

    Args:
        trips: A table with the columns TIMES, which may be text, and NUMBERS.

    Returns:
        float64 columns: NUMBERS, `trip_duration` in seconds, `hour` (0 to 23) and `day_of_week` (0
            is Monday). They do not include TIMES.
    """
    pickup, dropoff = (pd.to_datetime(trips[name]) for name in TIMES)
    seconds = (dropoff - pickup).dt.total_seconds()
    made = {"trip_duration": seconds, "hour": pickup.dt.hour, "day_of_week": pickup.dt.day_of_week}
    return trips[NUMBERS].assign(**made).astype(np.float64)
