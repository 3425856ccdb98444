from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps import InputError
from sweeps.core.files.file_format import FORMAT
from sweeps.core.files.origin import read_origin
from sweeps.core.files.sweep_folder import create_sweep_folder
from sweeps.core.text.secrets import masked, without_password
from sweeps.runs.mlflow_summary import resumed_uri
from sweeps.space import known_fits, load
from sweeps.space.python.saved_space import (
    resumed_space,
    roots_of,
    save_limits,
    save_space,
    saved_space,
)
from sweeps.study import storage

SPACE = """\
name: x
trainer: {loop: "own_loop:train", backend: none}
data: {train: rows.csv, label: y, valid: 0.2}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 4}
space:
  preprocessor: {grid: [none, StandardScaler, \
[SimpleImputer: {strategy: {choice: [mean, most_frequent]}}]]}
  params: {a: {uniform: [0, 1]}, b: {randn: [0, 1]}, c: {choice: [x, y]}}
"""


@pytest.fixture
def space(tmp_path: Path) -> Any:
    (tmp_path / "own_loop.py").write_text("def train(config): ...\n")
    (tmp_path / "x.yaml").write_text(SPACE)
    return load(tmp_path / "x.yaml", ("limits.max_trials=5",))


def test_sweeps_that_start_in_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = {create_sweep_folder(tmp_path / "runs", "x", 1e9) for _ in range(3)}
    assert len(folders) == 3 and all(f.is_dir() for f in folders)


def test_a_root_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot create a folder in"):
        create_sweep_folder(tmp_path / "file", "x", 1e9)


def test_a_saved_space_is_the_same_space_from_anywhere(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    save_space(folder, space, 1.5)
    monkeypatch.chdir("/")
    again, roots = saved_space(folder)
    assert (
        again.limits == space.limits
        and again.dimensions == space.dimensions
        and again.data == space.data
    )
    assert roots[0] == roots_of(space)[0] == tmp_path


def test_a_folder_that_is_not_a_sweeps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no readable origin\.json"):
        saved_space(Path(tmp_path))


def test_chains_are_known_beforehand_unless_something_in_them_is_sampled(space: Any) -> None:
    assert [[step.name for step in chain] for _, chain in known_fits(space)] == [
        [],
        ["StandardScaler"],
    ]


@pytest.fixture
def sweep(space: Any, tmp_path: Path) -> Any:
    folder = tmp_path / "sweep"
    folder.mkdir()
    save_space(folder, space, 1.5, tracking_uri="sqlite:///x.db")
    return folder


def test_a_sweep_goes_on_with_other_limits_and_keeps_them(sweep: Any) -> None:
    changes = ("limits.max_trials=9", "limits.timeout=2h", "limits.max_failures=7")
    space = resumed_space(sweep, changes, 3)
    assert (space.limits.max_trials, space.limits.timeout, space.limits.max_failures) == (
        12,
        7200.0,
        7,
    )
    save_limits(sweep, space)
    assert saved_space(sweep)[0].limits == space.limits
    assert resumed_space(sweep, (), 1).limits.max_trials == 13
    kept = read_origin(sweep)
    assert (kept["max_trials"], kept["tracking_uri"], kept["began"]) == (12, "sqlite:///x.db", 1.5)


def test_without_a_change_the_space_is_the_one_that_was_kept(sweep: Any, space: Any) -> None:
    assert resumed_space(sweep, (), 0).limits == space.limits


def test_only_limits_are_set_on_the_way(sweep: Any) -> None:
    with pytest.raises(
        InputError, match=r"--set space.params.a=1: only `limits` can change on resume"
    ):
        resumed_space(sweep, ("space.params.a=1", "limits.max_trials=9"), 0)


@pytest.mark.parametrize("stated", ["", "population: 4, "])
def test_a_population_does_not_grow(tmp_path: Path, stated: str) -> None:
    text = SPACE + f"scheduler: {{{stated}name: pbt, perturbation_interval: 2, max_t: 8}}\n"
    (tmp_path / "own_loop.py").write_text("def train(config): ...\n")
    (tmp_path / "x.yaml").write_text(text)
    folder = tmp_path / "sweep"
    folder.mkdir()
    save_space(folder, load(tmp_path / "x.yaml"), 1.5)
    with pytest.raises(
        InputError,
        match=(
            "--add-trials: the population of pbt cannot change after the sweep has begun; this "
            "population has 4 members, got 2 more"
        ),
    ):
        resumed_space(folder, (), 2)
    with pytest.raises(InputError, match="population"):
        resumed_space(folder, ("limits.max_trials=5",), 0)


def test_a_uri_is_kept_without_its_password() -> None:
    assert (
        without_password("postgresql://me:s3cret@host:5432/db?x=1")
        == "postgresql://me@host:5432/db?x=1"
    )
    assert without_password("https://me:s3:cr@et@host/path") == "https://me@host/path"
    for uri in ("sqlite:////tmp/a:b@c.db", "http://host:5000", "databricks", "./mlruns"):
        assert without_password(uri) == uri


@pytest.mark.parametrize("scheme", ["s3", "gs", "hdfs", "abfss", "postgresql+psycopg2"])
@pytest.mark.parametrize("secret", ["hunter2", "hun/ter2", "h/un/t+er2/"])
def test_the_password_of_any_scheme_is_masked(scheme: str, secret: str) -> None:
    assert (
        masked(f"`{scheme}://KEY:{secret}@bucket/x.csv` failed")
        == f"`{scheme}://KEY:***@bucket/x.csv` failed"
    )
    assert (
        without_password(f"{scheme}://KEY:{secret}@bucket/x.csv") == f"{scheme}://KEY@bucket/x.csv"
    )


def test_a_study_is_reopened_by_a_url_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_full_urls", {})
    url = "postgresql://me:a%40b@host/db?options=-c%20hunter2&sslmode=require"
    bare = storage.remember_secrets(url)
    assert bare == "postgresql://me@host/db?sslmode=require"
    origin = {"format": FORMAT, "storage": bare, "study": "s-1"}
    (tmp_path / "origin.json").write_text(json.dumps(origin))
    assert storage.place_of(tmp_path) == (url, "s-1")


def test_a_sweep_goes_on_in_the_mlflow_that_it_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other:5000")
    assert (
        resumed_uri(None, None, True) is None
        and resumed_uri(None, "http://kept:5000", True) == "http://kept:5000"
    )
    assert resumed_uri("http://said:5000", "http://kept:5000", True) == "http://said:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cret@kept:5000")
    assert resumed_uri(None, "http://me@kept:5000", True) == "http://me:s3cret@kept:5000", (
        "the password is kept nowhere else"
    )
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert resumed_uri(None, None, True) is None
