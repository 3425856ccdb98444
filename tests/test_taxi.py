"""The taxi space: cleaning and features on rows made up for it; a small sweep on real trips, where
the folder that holds them is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.commands import REPO
from tests.ports import free_port
from tests.waiting import wait_until

SPACE = REPO / "search_spaces" / "taxi_big_tip.yaml"
# TLC trip records, sampled; too large for the repository
TRIPS = Path(
    os.environ.get("SWEEPS_TEST_DATA", REPO.parent / "shared" / "data"), "nyc_yellow_parquet"
)


@pytest.fixture
def taxi(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loader module, imported as a space file's module is."""
    monkeypatch.syspath_prepend(SPACE.parent)
    import taxi

    return taxi


def trip(**other: Any) -> dict[str, Any]:
    """A trip of January 2020 as the TLC writes it down, but for what is said."""
    usual = {
        **{
            "VendorID": 1,
            "tpep_pickup_datetime": "2020-01-07 08:30:00",
            "tpep_dropoff_datetime": "2020-01-07 08:40:30",
        },
        **{
            "passenger_count": 1,
            "trip_distance": 1.5,
            "RatecodeID": 1,
            "store_and_fwd_flag": "N",
            "PULocationID": 238,
        },
        **{
            "DOLocationID": 239,
            "payment_type": 1,
            "fare_amount": 10.0,
            "extra": 0.5,
            "mta_tax": 0.5,
            "tip_amount": 2.5,
        },
        **{
            "tolls_amount": 0.0,
            "improvement_surcharge": 0.3,
            "total_amount": 13.8,
            "congestion_surcharge": 2.5,
        },
    }
    return usual | other


@pytest.fixture
def cleaned(taxi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `load` makes of trips, given as rows, in a file of this name."""

    def through(*rows: dict[str, Any], name: str = "trips.csv") -> pd.DataFrame:
        frame = pd.DataFrame(list(rows))
        if name.endswith(".parquet"):
            frame.to_parquet(tmp_path / name)
        else:
            frame.to_csv(tmp_path / name, index=False)
        monkeypatch.setenv("TLC_FILES", str(tmp_path / name))
        return taxi.load()

    return through


DIRT = {
    "negative fare": {"fare_amount": -10.0},
    "no fare": {"fare_amount": 0.0},
    "fare of a fortune": {"fare_amount": 429_490.2},
    "fare missing": {"fare_amount": None},
    "dropoff before pickup": {"tpep_dropoff_datetime": "2020-01-07 08:29:59"},
    "no time at all": {"tpep_dropoff_datetime": "2020-01-07 08:30:00"},
    "all night": {"tpep_dropoff_datetime": "2020-01-07 12:30:00"},
    "no dropoff": {"tpep_dropoff_datetime": None},
    "no date": {"tpep_pickup_datetime": "yesterday"},
    "backwards": {"trip_distance": -0.1},
    "around the world": {"trip_distance": 46_826.21},
    "a crowd": {"passenger_count": 7},
}


@pytest.mark.parametrize("wrong", DIRT.values(), ids=DIRT)
def test_invalid_trips_are_removed(cleaned: Any, wrong: Any) -> None:
    assert len(cleaned(trip(), trip(**wrong), trip())) == 2


ORDINARY = {
    "nobody counted": {
        "passenger_count": None,
        "RatecodeID": None,
        "VendorID": None,
        "payment_type": None,
    },
    "nobody aboard": {"passenger_count": 0},
    "six aboard": {"passenger_count": 6},
    "a flat fare": {"trip_distance": 0.0},
    "long": {
        "tpep_dropoff_datetime": "2020-01-07 12:29:59",
        "trip_distance": 99.9,
        "fare_amount": 999.0,
    },
}


@pytest.mark.parametrize("other", ORDINARY.values(), ids=ORDINARY)
def test_unusual_trips_stay(cleaned: Any, other: Any) -> None:
    assert len(cleaned(trip(), trip(**other))) == 2


@pytest.mark.parametrize(("tip", "big"), [(0.0, False), (2.0, False), (2.01, True)])
def test_a_big_tip_is_more_than_a_fifth_of_the_fare(cleaned: Any, tip: float, big: bool) -> None:
    assert cleaned(trip(tip_amount=tip))["is_big_tip"].tolist() == [big]


def test_amounts_that_contain_the_tip_are_not_features(taxi: Any, cleaned: Any) -> None:
    kept = cleaned(trip())
    assert list(kept.columns) == [*taxi.TIMES, *taxi.NUMBERS, "month", "is_big_tip"]
    assert not {"tip_amount", "total_amount"} & set(kept.columns)


def test_a_month_of_wrong_clocks_is_no_month(cleaned: Any) -> None:
    stray = [
        trip(tpep_pickup_datetime=f"{day} 23:50:00", tpep_dropoff_datetime=f"{day} 23:55:00")
        for day in ("2008-12-31", "2098-01-01")
    ]
    february = trip(
        tpep_pickup_datetime="2020-02-01 00:10:00", tpep_dropoff_datetime="2020-02-01 00:20:00"
    )
    months = cleaned(*[trip()] * 300, *[february] * 3, *stray)["month"].value_counts()
    assert months.to_dict() == {pd.Timestamp("2020-01-01"): 300, pd.Timestamp("2020-02-01"): 3}


def test_csv_and_parquet_mean_the_same(cleaned: Any) -> None:
    rows = [trip(), trip(passenger_count=None, payment_type=2, tip_amount=0)]
    typed = [
        r | {k: pd.Timestamp(r[k]) for k in ("tpep_pickup_datetime", "tpep_dropoff_datetime")}
        for r in rows
    ]
    pd.testing.assert_frame_equal(cleaned(*rows), cleaned(*typed, name="trips.parquet"))


def test_columns_that_differ_from_year_to_year_do_not_matter(
    taxi: Any, cleaned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned(trip(), name="y_2020.parquet")
    cleaned(trip(cbd_congestion_fee=0.75, VendorID=np.int32(2)), name="y_2025.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLC_FILES", "y_*.parquet")
    assert taxi.load()["VendorID"].tolist() == [1.0, 2.0]


def test_features_are_those_of_the_tutorial_and_more(taxi: Any) -> None:
    raw = pd.DataFrame(
        [
            trip(),
            trip(
                tpep_pickup_datetime="2020-01-12 23:59:59",
                tpep_dropoff_datetime="2020-01-13 00:00:09",
            ),
        ]
    )
    features = taxi.features(raw)
    assert features[["trip_duration", "hour", "day_of_week"]].to_numpy().tolist() == [
        [630.0, 8.0, 1.0],
        [10.0, 23.0, 6.0],
    ]
    assert features["payment_type"].tolist() == [1.0, 1.0] and set(features.dtypes) == {
        np.dtype("float64")
    }
    assert set(features.columns) == {*taxi.NUMBERS, "trip_duration", "hour", "day_of_week"}


def test_features_of_a_row_are_independent_of_other_rows(taxi: Any) -> None:
    rows = [
        trip(),
        trip(tpep_dropoff_datetime="2020-01-07 08:00:00", fare_amount=-3.0),
        trip(tpep_pickup_datetime=None, VendorID=None),
    ]
    raw = pd.DataFrame(rows).assign(
        **{name: lambda f, n=name: pd.to_datetime(f[n]) for name in taxi.TIMES}
    )
    whole = taxi.features(raw)
    pd.testing.assert_frame_equal(
        whole, pd.concat([taxi.features(raw.iloc[[i]]) for i in range(3)])
    )
    assert (
        whole["trip_duration"].iloc[1] == -1800
        and whole.iloc[2][["trip_duration", "hour", "VendorID"]].isna().all()
    )


def test_a_path_that_is_missing_or_invalid_is_reported_in_one_line(
    taxi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TLC_FILES", raising=False)
    with pytest.raises(ValueError, match=r"^TLC_FILES is not set; .*yellow_tripdata_\*\.parquet'$"):
        taxi.load()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TLC_FILES", "trips/*.parquet")
    with pytest.raises(ValueError, match=rf"^no file matches 'trips/\*\.parquet' in {tmp_path}$"):
        taxi.load()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "green.csv",
            "lpep_pickup_datetime,fare_amount\n2020-01-01,3\n",
            "it lacks the column `tpep_pickup_datetime` and 9 more",
        ),
        ("broken.parquet", "version https://git-lfs.github.com/spec/v1\n", "Parquet"),
        ("empty.csv", "", "No columns"),
    ],
)
def test_a_file_that_holds_no_trips_is_named(
    taxi: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setenv("TLC_FILES", str(tmp_path / name))
    with pytest.raises(ValueError, match=rf"{name}: .*{said}") as caught:
        taxi.load()
    assert "\n" not in str(caught.value)


def answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(urllib.request.urlopen(url, timeout=5).status == 200)
    return False


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_tutorial_lead_from_trips_to_an_answer(tmp_path: Path) -> None:
    """Word by word, but for the port, which another process may hold here."""
    trips = TRIPS / "yellow_tripdata_2018-2020_sample360k.parquet"
    if not trips.is_file():
        pytest.skip(
            f"no TLC trip records in {TRIPS}; SWEEPS_TEST_DATA names the folder that holds "
            "`nyc_yellow_parquet`"
        )
    (tmp_path / "trips").mkdir()
    (tmp_path / "trips" / "yellow_tripdata_2018-2020.parquet").symlink_to(trips)
    shutil.copytree(SPACE.parent, tmp_path / "search_spaces")
    section = (
        (REPO / "docs/tutorials/taxi.md")
        .read_text()
        .partition("\n## From the sweep to an answer\n")[2]
        .partition("\n## ")[0]
    )
    steps, asked = re.findall(r"^```bash\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (shown,) = re.findall(r"^```json\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    steps, _, serve = steps.strip().rpartition("\n")
    port = str(free_port())
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    shell: dict[str, Any] = {
        "cwd": tmp_path,
        "env": env,
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }

    done = subprocess.run(["bash", "-ec", steps], timeout=400, **shell)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        "registered this bundle as big_tip version 1" in done.stderr + done.stdout
        and "alias champion now refers to version 1" in done.stderr + done.stdout
    )

    assert "8000" in serve and "8000" in asked
    process = subprocess.Popen(["bash", "-ec", f"exec {serve.replace('8000', port)}"], **shell)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/health"), 60, "the service answers")
        done = subprocess.run(["bash", "-ec", asked.replace("8000", port)], timeout=60, **shell)
        assert done.returncode == 0, done.stderr
        (given,), (expected,) = (
            json.loads(done.stdout)["predictions"],
            json.loads(shown)["predictions"],
        )
        assert given.keys() == expected.keys() and given["prediction"] is expected["prediction"]
        assert given["probability_True"] == pytest.approx(
            expected["probability_True"], abs=0.1
        )  # which trial wins depends on the machine
    finally:
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
