"""Trips of New York's yellow taxis, for `taxi_big_tip.yaml`: `load` reads and cleans them, `features` is the first step of its chains.

`load` drops rows that teach nothing. What is to be predicted may hold such rows, and must be answered all the same; so whatever is
computed of a row is in `features`, which goes into the bundle with its chain, and the bundle takes rows as the TLC publishes them.

The files are the TLC's trip records: Parquet, or CSV as in the years before.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

FILES = "TLC_FILES"  # the environment variable that names them: a path or a glob, relative to the working directory

TIMES = ["tpep_pickup_datetime", "tpep_dropoff_datetime"]
# All of it is known before the tip. `total_amount` is not: the tip is in it
NUMBERS = [
    *("passenger_count", "trip_distance", "fare_amount", "payment_type"),
    *("PULocationID", "DOLocationID", "RatecodeID", "VendorID"),
]
TIP = "tip_amount"

# Beyond these a row is a slip of the meter. Ray's tutorial has the same bounds, but takes 5 passengers for a slip, and drops every
# row with a missing value: those are ordinary rows, 7 in 100 at the end of 2020 and 22 in 2025
MOST_PASSENGERS, MILES, DOLLARS, SECONDS = 6, 100, 1000, 4 * 60 * 60
# Some clocks stand in 2008, or in 2098: a month with fewer rows than this share of the fullest one's is none that was asked for
LEAST_SHARE = 0.01


def load(files: str | None = None) -> pd.DataFrame:
    """The cleaned trips of all files.

    Args:
        files: a path or a glob, relative to the working directory; $TLC_FILES if not given.

    Returns:
        See `clean`; the files in the order of their names.

    Raises:
        ValueError: no path was given, no file is there, or one lacks columns.
    """
    pattern = files or os.environ.get(FILES, "")
    if not pattern:
        raise ValueError(f"{FILES} is not set; give it the path of TLC trip records or a glob, such as 'trips/yellow_tripdata_*.parquet'")
    found = sorted(glob.glob(os.path.expanduser(pattern), recursive=True))
    if not found:
        raise ValueError(f"no file matches {pattern!r} in {os.getcwd()}")
    return clean(pd.concat([read(Path(file)) for file in found], ignore_index=True))


def read(file: Path) -> pd.DataFrame:
    """The columns of a file that are wanted; which others there are differs from year to year.

    Returns:
        TIMES as datetime64[us], a broken one missing; NUMBERS and TIP as float64.

    Raises:
        ValueError: a column is missing, or the file cannot be read.
    """
    wanted = [*TIMES, *NUMBERS, TIP]
    parquet = file.suffix == ".parquet"
    try:
        have = pq.read_schema(file).names if parquet else pd.read_csv(file, nrows=0).columns
        if missing := [name for name in wanted if name not in have]:
            more = f" and {len(missing) - 1} more" * (len(missing) > 1)
            raise ValueError(f"it lacks the column `{missing[0]}`{more}; are these trips of yellow taxis?")
        trips = pd.read_parquet(file, columns=wanted) if parquet else pd.read_csv(file, usecols=wanted)[wanted]
        for name in TIMES:
            trips[name] = pd.to_datetime(trips[name], errors="coerce").dt.as_unit("us")
        return trips.astype(dict.fromkeys([*NUMBERS, TIP], "float64"))
    except (ValueError, OSError) as e:  # pyarrow's errors are among them
        raise ValueError(f"{file}: {str(e).splitlines()[0]}") from e


def clean(trips: pd.DataFrame) -> pd.DataFrame:
    """Trips that can be learnt from, with their label.

    Args:
        trips: see `read`.

    Returns:
        The raw columns that `features` takes; `month`, the first day of it, to split by; `is_big_tip`, whether the tip was over a
        fifth of the fare.
    """
    pickup, dropoff = (trips[name] for name in TIMES)
    good = (dropoff - pickup).dt.total_seconds().between(0, SECONDS, inclusive="neither")
    good &= trips["fare_amount"].between(0, DOLLARS, inclusive="neither")
    good &= trips["trip_distance"].between(0, MILES, inclusive="left")
    good &= ~(trips["passenger_count"] > MOST_PASSENGERS)  # true where nobody counted them
    kept = trips[good]
    month = pd.Series(kept[TIMES[0]].to_numpy().astype("datetime64[M]").astype("datetime64[us]"), kept.index)
    rows = month.value_counts()
    kept = kept[month.isin(rows.index[rows >= LEAST_SHARE * rows.max()])]
    big = kept[TIP] > 0.2 * kept["fare_amount"]
    return kept[[*TIMES, *NUMBERS]].assign(month=month, is_big_tip=big).reset_index(drop=True)


def features(trips: pd.DataFrame) -> pd.DataFrame:
    """Raw trips as numbers, each row by itself.

    Args:
        trips: TIMES, which may be text, and NUMBERS.

    Returns:
        float64: NUMBERS, and in place of TIMES `trip_duration` in seconds, `hour` 0 to 23 and `day_of_week` 0 (Monday) to 6.
    """
    pickup, dropoff = (pd.to_datetime(trips[name]) for name in TIMES)
    seconds = (dropoff - pickup).dt.total_seconds()
    made = {"trip_duration": seconds, "hour": pickup.dt.hour, "day_of_week": pickup.dt.day_of_week}
    return trips[NUMBERS].assign(**made).astype(np.float64)
