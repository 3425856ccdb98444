"""`sweeps compare` on sweeps in folders, and the same from Python."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import JOURNAL, SPACE
from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported
from tests.commands import invoke

SPACE_FILE = """\
name: NAME
trainer: xgboost
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
search: {algorithm: random, seed: SEED}
scheduler: {name: none}
limits: {max_trials: 12}
space:
  params: {eta: {loguniform: [1e-3, HIGHEST]}, depth: {randint: [1, 9]}}
"""


def recorded(root: Path, name: str, seed: int = 0, highest: float = 1.0, trials: int = 12) -> Path:
    """Write a sweep's folder in which the loss of a trial is its `eta`, so that `eta` decides
    everything.
    """
    folder = root / f"{name}-20260102-120000"
    folder.mkdir(parents=True)
    file = root / f"{name}.yaml"
    file.write_text(
        SPACE_FILE.replace("NAME", name).replace("SEED", str(seed)).replace("HIGHEST", str(highest))
    )
    space = load(file)
    save_space(folder, space, 1000.0)
    loop = SearchLoop.open(folder, space)
    for _ in range(trials):
        trial = loop.ask()
        assert trial is not None
        loop.store.append(
            TrialReported(
                1.0,
                trial.number,
                (Report(1, {"loss": trial.params["eta"]}, time.time()),),
                seconds=2.0,
            ),
        )
        loop.store.end(trial.number, State.COMPLETE)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("compared")
    recorded(root / "runs", "wide")
    recorded(root / "other", "narrow", highest=0.5)
    return root


def test_compare_prints_tables_and_takes_sweeps_of_other_roots(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs)
    done = invoke("compare", "wide", "other/latest", "--dir", "runs")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[:2] == ["A  runs/wide-20260102-120000", "B  other/narrow-20260102-120000"]
    assert "(B has the best value)" in lines
    assert any(
        line.split()
        == ["params.eta", "{loguniform:", "[1e-3,", "1.0]}", "{loguniform:", "[1e-3,", "0.5]}"]
        for line in lines
    )
    eta = next(
        line.split() for line in lines if line.startswith("params.eta") and "loguniform" not in line
    )
    assert all(float(share) > 0.9 for share in eta[1:]), eta
    assert any(line.startswith("12 trials") for line in lines) and any(
        line.startswith("best ") for line in lines
    )


def test_compare_prints_json(runs: Any) -> None:
    done = invoke(
        "compare",
        runs / "runs/wide-20260102-120000",
        runs / "other/narrow-20260102-120000",
        "--json",
    )
    shown = json.loads(done.stdout)
    assert shown["comparable"] == [["A", "B"]] and shown["results"]["trials"] == [12, 12]
    assert shown["space"]["differs"] == {
        "params.eta": ["{loguniform: [1e-3, 1.0]}", "{loguniform: [1e-3, 0.5]}"]
    }
    assert (
        shown["regret"]["trials"][-1]["trials"] == 12
        and min(shown["regret"]["trials"][-1]["regret"]) == 0
    )


def test_compare_refuses_one_sweep_and_the_same_sweep_twice(runs: Any) -> None:
    folder = runs / "runs/wide-20260102-120000"
    for arguments, text in (
        ((folder,), "needs at least two sweeps, got 1"),
        ((folder, folder), "is given twice"),
    ):
        done = invoke("compare", *arguments)
        assert done.exit_code == 2 and text in done.stderr and "\n" not in done.stderr.strip()


def test_running_damaged_and_empty_sweeps_are_compared(tmp_path: Path) -> None:
    good, bad, empty = (
        recorded(tmp_path, name, trials=n) for name, n in (("good", 11), ("bad", 2), ("empty", 0))
    )
    (bad / SPACE).write_text("nonsense: [")
    (empty / JOURNAL).unlink()
    with FolderLock(good):
        done = invoke("compare", good, bad, empty)
    assert done.exit_code == 0, done.output
    assert (
        "note: A is still running" in done.stdout
        and "note: B: the space file cannot be read" in done.stdout
    )
    assert "one of them has no trial yet" in done.stdout
    assert invoke("compare", bad, empty, "--json").exit_code == 0


def test_python_compares_sweeps_and_returns_the_importances(runs: Any) -> None:
    opened = sweeps.open(runs / "runs/wide-20260102-120000")
    importance = opened.importance()
    assert (
        importance.index[0] == "params.eta"
        and importance.sum() == pytest.approx(1)
        and "12 trials" in importance.attrs["basis"]
    )
    comparison = opened.compare(sweeps.open("latest", dir=runs / "other"))
    frames = comparison.frames()
    assert list(frames["results"].columns) == ["wide-20260102-120000", "narrow-20260102-120000"]
    assert (
        frames["regret.trials"].index[-1] == 12
        and frames["importance"].loc["params.eta"].min() > 0.9
    )
    assert "<table" in comparison._repr_html_() and "params.eta" in str(comparison)


def test_importance_says_why_it_is_unknown(tmp_path: Path) -> None:
    importance = sweeps.open(recorded(tmp_path, "few", trials=3)).importance()
    assert importance.empty and importance.attrs == {
        "unknown": "importance needs 10 trials with comparable values, but there are 3"
    }


def test_show_prints_what_mattered(runs: Any, tmp_path: Path) -> None:
    done = invoke("show", runs / "runs/wide-20260102-120000")
    line = next(line for line in done.stdout.splitlines() if "importance" in line)
    assert line.split()[:2] == ["importance", "eta"] and line.endswith(
        "; by the values of 12 trials"
    )
    shown = json.loads(invoke("show", runs / "runs/wide-20260102-120000", "--json").stdout)
    assert shown["importance"]["params.eta"] > 0.9
    few = recorded(tmp_path, "few", trials=3)
    assert (
        "importance" not in invoke("show", few).stdout
        and json.loads(invoke("show", few, "--json").stdout)["importance"] == {}
    )
