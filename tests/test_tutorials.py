"""The spaces of Ray's tutorials: the code beside them, and short runs of each space."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML

import sweeps
from sweeps.data.sources.data_files import Source
from sweeps.data.sources.sources import read_source
from tests.commands import REPO, command, invoke
from tests.documents import DOCUMENTS, block_beginning
from tests.waiting import wait_until

TUTORIALS = REPO / "search_spaces" / "tutorials"
SPACES = sorted(TUTORIALS.glob("*.yaml"))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules beside the spaces importable."""
    monkeypatch.syspath_prepend(TUTORIALS)


# ---- the spaces and their pages


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_every_tutorial_can_be_planned(file: Any) -> None:
    done = invoke("plan", file, "--resources", "CPU=2", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["trials"]


@pytest.mark.parametrize("file", SPACES, ids=lambda file: file.stem)
def test_every_tutorial_has_a_page_that_shows_its_command(file: Any) -> None:
    name = file.relative_to(REPO).as_posix()
    pages = [
        d
        for path, d in DOCUMENTS.items()
        if path.startswith("docs/tutorials/") and f"sweeps run {name}" in d.text
    ]
    assert pages and f"../../{name}" in pages[0].text


@pytest.mark.parametrize("name", ["points", "breast_cancer", "data_sets"])
def test_the_space_on_the_page_is_the_one_that_ships(name: str) -> None:
    shown, ships = (
        YAML().load(block_beginning(f"name: {name}")),
        YAML().load(TUTORIALS / f"{name}.yaml"),
    )
    assert shown == ships


# ---- the code beside the spaces


def test_one_half_of_the_points_has_the_label_1(modules: Any) -> None:
    import points

    rows = points.load()
    assert rows["X"].tolist() == list(range(200)) and rows["Y"].sum() == 100


def test_no_row_for_validation_is_in_a_data_set_for_training(modules: Any) -> None:
    import tumors

    valid, shuffled, half = tumors.valid(), tumors.shuffled(), tumors.half()
    assert len(valid) + len(shuffled) == 569 and len(half) == round(len(shuffled) / 2)
    assert not set(valid.index) & set(shuffled.index) and set(half.index) < set(shuffled.index)


def test_a_folder_survives_bytes(modules: Any, tmp_path: Path) -> None:
    import checkpoint_bytes

    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "model.ubj").write_bytes(b"\0\1")
    (tmp_path / "a" / "deep" / "state.json").write_text("{}")
    folder = checkpoint_bytes.from_bytes(checkpoint_bytes.to_bytes(tmp_path / "a"), tmp_path / "b")
    assert (folder / "model.ubj").read_bytes() == b"\0\1" and (
        folder / "deep" / "state.json"
    ).read_text() == "{}"


def trip(**other: Any) -> dict[str, Any]:
    """Return a trip that `clean` keeps, with other values for some columns."""
    times = {
        "tpep_pickup_datetime": pd.Timestamp("2020-01-07 08:30"),
        "tpep_dropoff_datetime": pd.Timestamp("2020-01-07 08:40:30"),
    }
    return (
        times
        | {"passenger_count": 1.0, "trip_distance": 1.5, "fare_amount": 10.0, "tip_amount": 2.5}
        | other
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"passenger_count": None},
        {"passenger_count": 5.0},
        {"trip_distance": 100.0},
        {"fare_amount": 1000.0},
        {"fare_amount": -10.0},
        {"tpep_dropoff_datetime": pd.Timestamp("2020-01-07 08:30")},
        {"tpep_dropoff_datetime": pd.Timestamp("2020-01-07 12:30")},
        {"tpep_dropoff_datetime": None},
    ],
    ids=lambda wrong: "-".join(map(str, wrong.values())),
)
def test_trips_with_errors_are_dropped(modules: Any, wrong: Any) -> None:
    import big_tip

    assert len(big_tip.clean(pd.DataFrame([trip(), trip(**wrong), trip()]))) == 2


def test_the_label_is_a_tip_of_more_than_a_fifth(modules: Any) -> None:
    import big_tip

    cleaned = big_tip.clean(pd.DataFrame([trip(tip_amount=2.0), trip(tip_amount=2.01)]))
    assert cleaned["is_big_tip"].tolist() == [False, True] and "tip_amount" not in cleaned


def test_files_that_do_not_exist_are_named(modules: Any) -> None:
    import big_tip

    with pytest.raises(ValueError, match=r"no file matches 'absent/\*\.parquet'"):
        big_tip.load("absent/*.parquet")


# ---- runs

RUNS = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


def marked(test: Any) -> Any:
    """Mark a test that runs a sweep."""
    for mark in RUNS:
        test = mark(test)
    return test


def ran(tmp_path: Path, name: str, *overrides: str) -> dict[str, Any]:
    """Run a space in this process, and return its result. No trial may fail."""
    sets = [word for override in overrides for word in ("--set", override)]
    done = invoke("run", TUTORIALS / f"{name}.yaml", "--dir", tmp_path / "runs", "--json", *sets)
    assert done.exit_code == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["trials"]["failed"] == 0
    return result


@marked
def test_dask_and_ray_data_give_the_rows_that_pandas_gives(
    local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TUTORIALS)
    import big_tip

    monkeypatch.chdir(tmp_path)
    (tmp_path / "trips").mkdir()
    for month in ("2020-01", "2020-02"):
        big_tip.artificial_trips(month, 500).to_parquet(tmp_path / "trips" / f"{month}.parquet")
    for files in (None, "trips/*.parquet"):
        pandas, *others = [
            read_source(
                Source("big_tip:load", TUTORIALS, "data.train", {"reader": reader, "files": files})
            )
            for reader in ("pandas", "dask", "ray")
        ]
        assert pandas.num_rows > 900
        for other in others:
            assert other.equals(pandas)


@marked
def test_the_taxi_network_predicts_another_month(
    clean_ray: Any, tmp_path: Path, modules: Any
) -> None:
    import big_tip

    result = ran(
        tmp_path,
        "taxi_network",
        "limits.max_trials=2",
        'data.train={"big_tip:load": {reader: dask}}',
    )
    assert result["best"]["value"] > 0.6
    raw = big_tip.artificial_trips("2020-02", 500, seed=1)
    raw.to_parquet(tmp_path / "february.parquet")
    done = invoke(
        "predict",
        result["bundle"],
        tmp_path / "february.parquet",
        "-o",
        tmp_path / "out.parquet",
    )
    assert done.exit_code == 0, done.stderr
    assert len(pd.read_parquet(tmp_path / "out.parquet")) == len(raw)


@pytest.mark.extended
@marked
def test_the_taxi_trees_read_trips_with_ray_data(clean_ray: Any, tmp_path: Path) -> None:
    result = ran(
        tmp_path,
        "taxi_xgboost",
        "limits.max_trials=2",
        'data.train={"big_tip:load": {reader: ray}}',
    )
    assert result["best"]["value"] < np.log(2)


@pytest.mark.extended
@marked
def test_a_tutorial_that_is_stopped_can_be_resumed(tmp_path: Path) -> None:
    name, trials = "breast_cancer", 20
    longer = ("--set", "space.params.num_boost_round=100", "--set", f"limits.max_trials={trials}")
    process = command("run", TUTORIALS / f"{name}.yaml", "--dir", tmp_path, "--json", *longer)
    folder = wait_until(
        lambda: next(iter(tmp_path.glob(f"{name}-*")), None), 60, "the sweep's folder"
    )

    def ended() -> dict[int, float]:
        trials = sweeps.open(folder).trials
        return dict(trials[trials["state"] == "COMPLETE"][["number", "value"]].to_numpy())

    before = wait_until(
        lambda: (done := ended()) and len(done) >= 2 and done, 120, "two trials to end"
    )
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert json.loads(out)["trials"]["completed"] < trials

    process = command("resume", folder, "--json")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": trials, "pruned": 0, "failed": 0}
    assert before.items() <= ended().items(), "trials that had ended did not run again"
    process = command(folder, module=["search_spaces.tutorials.checkpoint_bytes"])
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and out.endswith("the unpacked model is equal\n"), out + err
