"""`sweeps.open`: what Python sees of a sweep, while it runs and afterwards, wherever its folder
lies.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import plotly.graph_objects
import pytest

import sweeps
from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import JOURNAL
from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported
from sweeps.sweep_report.plots import FIGURES
from tests.controller.test_sweep_lookup import ended, recorded_sweep

CONDITIONAL = """\
name: branches
trainer: xgboost
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: OBJECTIVE
scheduler: {name: none}
limits: {max_trials: 20}
space:
  params:
    booster: {choice: [gbtree, dart]}
    flag: {choice: [true, false], when: {params.booster: dart}}
    depth: {randint: [1, 9], when: {params.booster: dart}}
    rate: {uniform: [0, 1], when: {params.booster: dart}}
    layers: {choice: [[8], [8, 4], none]}
"""
ONE = "{metric: loss, goal: minimize}"
TWO = "[{metric: loss, goal: minimize}, {metric: auc, goal: maximize}]"


def branches(root: Path, objective: str, trials: int = 20) -> tuple[Path, SearchLoop]:
    """A sweep's folder with conditional dimensions, of trials that are all complete."""
    folder = root / "branches-1"
    folder.mkdir(parents=True)
    (root / "branches.yaml").write_text(CONDITIONAL.replace("OBJECTIVE", objective))
    space = load(root / "branches.yaml")
    save_space(folder, space, 1.0)
    loop = SearchLoop.open(folder, space)
    for n in range(trials):
        trial = loop.ask()
        assert trial is not None
        loop.store.append(
            TrialReported(
                1.0,
                trial.number,
                (Report(1, {"loss": 1.0 + n, "auc": 0.5 + n / 100}, time.time()),),
                seconds=0.5,
            ),
        )
        loop.store.end(trial.number, State.COMPLETE)
    return folder, loop


def test_trials_has_a_row_for_each_trial(tmp_path: Path) -> None:
    trials = sweeps.open(recorded_sweep(tmp_path)).trials
    assert (
        list(trials.columns[:3]) == ["number", "state", "value"] and trials.columns[-1] == "seconds"
    )
    assert set(trials.columns[3:-1]) == {"preprocessor", "params.eta", "params.nested.depth"}
    assert trials["number"].tolist() == trials.index.tolist() == [0, 1, 2, 3]
    assert trials["state"].tolist() == ["COMPLETE", "PRUNED", "FAIL", "INTERRUPTED"]
    np.testing.assert_array_equal(trials["value"], [0.25, 0.75, math.nan, math.nan])
    assert trials["seconds"].tolist()[:3] == [1.25] * 3
    assert (
        trials["params.eta"].dtype == "float64" and trials["params.nested.depth"].dtype == "Int64"
    )
    assert set(trials["preprocessor"]) == {"StandardScaler", "MinMaxScaler"}


def test_a_dimension_is_missing_where_it_is_inactive(tmp_path: Path) -> None:
    folder, _ = branches(tmp_path, ONE)
    trials = sweeps.open(folder).trials
    inactive = trials["params.booster"] == "gbtree"
    assert 0 < inactive.sum() < 20
    for name, dtype in {
        "params.depth": "Int64",
        "params.rate": "float64",
        "params.flag": "boolean",
    }.items():
        assert trials[name].dtype == dtype and (trials[name].isna() == inactive).all(), name
    assert trials.query("`params.depth` > 4")["params.booster"].eq("dart").all()
    assert trials["params.layers"].notna().all() and trials["params.layers"].map(str).nunique() == 3


def test_several_objectives_have_a_column_each_and_no_best(tmp_path: Path) -> None:
    folder, _ = branches(tmp_path, TWO, 3)
    opened = sweeps.open(folder)
    assert list(opened.trials.columns[:4]) == ["number", "state", "value.loss", "value.auc"]
    assert opened.trials["value.auc"].tolist() == [0.5, 0.51, 0.52] and opened.best is None
    assert opened.study is not None and len(opened.study.best_trials) == 3


def test_best_is_the_best_trial(tmp_path: Path) -> None:
    folder, loop = branches(tmp_path, ONE, 3)
    best = sweeps.open(folder).best
    assert best is not None and (best.number, best.id, best.value) == (0, "0000", 1.0)
    assert best.params == loop.store.trial(0).params
    row = sweeps.open(folder).trials.loc[best.number].dropna()
    assert best.dimensions == {name: row[name] for name in row.index if name.startswith("params.")}


def test_curves_are_long_and_of_all_trials_or_of_one(tmp_path: Path) -> None:
    opened = sweeps.open(recorded_sweep(tmp_path))
    curves = opened.curves()
    assert list(curves.columns) == ["trial", "step", "value"]
    assert curves.drop(columns="value").values.tolist() == [[0, 1], [0, 2], [0, 3], [1, 1], [2, 1]]
    np.testing.assert_array_equal(curves["value"], [0.5, 0.25, 0.3, 0.75, math.nan])
    for one in (0, "0", "0000", "best"):
        pd.testing.assert_frame_equal(opened.curves(one), curves[:3])
    assert opened.curves(3).empty
    with pytest.raises(InputError, match="9"):
        opened.curves(9)


PLOTS = {
    "plot_history": "scatter",
    "plot_curves": "scatter",
    "plot_importance": "bar",
    "plot_parallel_coordinates": "parcoords",
    "plot_slice": "scatter",
    "plot_cost": "scatter",
    "plot_timeline": "bar",
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_sweep_draws_itself(tmp_path: Path) -> None:
    opened = sweeps.open(branches(tmp_path, ONE)[0])
    methods = {name for name in dir(opened) if name.startswith("plot_")}
    assert methods == {*PLOTS, "plot_pareto", "plot_winner"} and len(methods) == len(FIGURES)
    for name, kind in PLOTS.items():
        figure = getattr(opened, name)()
        assert isinstance(figure, plotly.graph_objects.Figure) and figure.data[0].type == kind, name
    assert (
        opened.plot_slice("depth").layout.title.text
        == "Slice: depth"
        == opened.plot_slice("params.depth").layout.title.text
    )
    assert [trace.name for trace in opened.plot_curves("best", 3).data] == ["0000", "0003"]
    assert (
        sweeps.open(branches(tmp_path / "two", TWO, 3)[0]).plot_pareto().data[0].type == "scatter"
    )


def test_a_figure_that_cannot_be_drawn_says_why(tmp_path: Path) -> None:
    opened = sweeps.open(branches(tmp_path, ONE, 1)[0])
    refusals: list[tuple[str, Callable[[], object], str]] = [
        ("dimension", lambda: opened.plot_slice("dept"), "did you mean `depth`?"),
        ("plot_pareto", opened.plot_pareto, "two or three objectives"),
    ]
    for place, wrong, text in refusals:
        with pytest.raises(InputError, match=re.escape(text)) as e:
            wrong()
        assert e.value.problems[0].place == place
    assert opened.trials["params.booster"].tolist() == [
        "gbtree"
    ]  # with which the dimension `depth` is not active
    inactive = opened.plot_slice("depth")
    assert (
        not inactive.data
        and "no trial with a value has the dimension params.depth"
        in inactive.layout.title.subtitle.text
    )
    assert "importance needs 10 trials" in opened.plot_importance().layout.title.subtitle.text
    assert "has not exported a model" in opened.plot_winner().layout.title.subtitle.text
    (tmp_path / "new").mkdir()
    empty = sweeps.open(branches(tmp_path / "new", ONE, 0)[0]).plot_history()
    assert not empty.data and "no trial has a value" in empty.layout.title.subtitle.text


def test_the_study_is_a_copy(tmp_path: Path) -> None:
    folder = recorded_sweep(tmp_path)
    before = (folder / JOURNAL).read_bytes()
    study = sweeps.open(folder).study
    assert (
        isinstance(study, optuna.Study) and study.best_trial.number == 0 and len(study.trials) == 4
    )
    assert study.trials_dataframe()["number"].tolist() == [0, 1, 2, 3]
    study.enqueue_trial({"params.eta": 0.5})
    study.tell(study.ask(), 0.0)
    study.set_user_attr("mine", 1)
    assert (folder / JOURNAL).read_bytes() == before
    again = sweeps.open(folder).study
    assert again is not None and len(again.trials) == 4 and "mine" not in again.user_attrs


def test_a_sweep_that_runs_shows_what_came_since(tmp_path: Path) -> None:
    folder, loop = branches(tmp_path, ONE, 2)
    lock = FolderLock(folder)
    try:
        opened = sweeps.open(folder)
        assert len(opened.trials) == 2
        trial = loop.ask()
        assert trial is not None
        assert opened.trials["state"].tolist() == ["COMPLETE", "COMPLETE", "RUNNING"]
        loop.store.append(
            TrialReported(
                1.0,
                trial.number,
                (Report(1, {"loss": 0.5, "auc": 0.5}, time.time()),),
                seconds=0.5,
            ),
        )
        assert opened.curves(trial.number)["value"].tolist() == [0.5]
        loop.store.end(trial.number, State.COMPLETE)
        best = opened.best
        assert (
            best is not None
            and best.number == trial.number
            and opened.trials["state"].tolist() == ["COMPLETE"] * 3
        )
        with (folder / JOURNAL).open("ab") as journal:
            journal.write(b'{"op_code": 5, "half')  # the driver is in the middle of a record
        assert len(opened.trials) == 3
        with pytest.raises(InputError, match="running"):
            opened.bundle  # noqa: B018
    finally:
        lock.release()
    assert sweeps.open(folder).trials["state"].tolist() == ["COMPLETE"] * 3


def test_a_sweep_without_trials_is_empty(tmp_path: Path) -> None:
    folder = tmp_path / "made-1"
    folder.mkdir()
    (tmp_path / "made.yaml").write_text(CONDITIONAL.replace("OBJECTIVE", ONE))
    save_space(folder, load(tmp_path / "made.yaml"), 5.0)
    opened = sweeps.open(folder)
    assert (
        list(opened.trials.columns) == ["number", "state", "value", "seconds"]
        and opened.trials.empty
        and opened.curves().empty
    )
    assert opened.best is None and opened.study is None


def test_no_code_of_the_user_runs_but_by_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module beside the space file that cannot be imported is no reason to see nothing."""
    (tmp_path / "mine.py").write_text(
        "raise SystemExit('imported')\ndef train(config): ...\ndef load(folder): ...\n"
    )
    text = CONDITIONAL.replace("OBJECTIVE", ONE).replace(
        "trainer: xgboost", 'trainer: {loop: "mine:train", load: "mine:load"}'
    )
    monkeypatch.setattr(f"{__name__}.CONDITIONAL", text)
    folder, _ = branches(tmp_path, ONE, 2)
    opened = sweeps.open(folder)
    assert len(opened.trials) == 2 and opened.best and opened.study and len(opened.curves()) == 2
    with pytest.raises(InputError, match="export"):
        opened.bundle  # noqa: B018


LOOP = 'trainer: {loop: "tests.user_loops:plain"}'
FRONT = {
    "trial": "0000",
    "value": 0.25,
    "test": None,
    "params": {},
    "preprocessor": "none",
    "values": {"loss": 0.25},
}
FRONT["scaling"] = {"num_workers": 1, "resources_per_worker": {"CPU": 1.0}}
WITHOUT_A_BUNDLE = [
    pytest.param({}, "trainer: xgboost", None, "export", id="killed"),
    pytest.param({"best": None}, "trainer: xgboost", None, "show", id="failed"),
    pytest.param(
        {"best": None, "front": (FRONT,)},
        "trainer: xgboost",
        None,
        "--trial ID",
        id="several objectives",
    ),
    pytest.param(
        {"bundle": None}, LOOP, "checkpoint", "`load` in the section `trainer`", id="no load"
    ),
    pytest.param(
        {"bundle": None}, "trainer: xgboost", "exports/0001", "exports/0001", id="exported"
    ),
]


@pytest.mark.parametrize(("result", "trainer", "there", "said"), WITHOUT_A_BUNDLE)
def test_a_sweep_without_a_bundle_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    result: Any,
    trainer: Any,
    there: Any,
    said: Any,
) -> None:
    monkeypatch.setattr(
        "tests.controller.test_sweep_lookup.SPACE",
        recorded_sweep.__globals__["SPACE"].replace("trainer: xgboost", trainer),
    )
    folder = recorded_sweep(tmp_path)
    if result:
        ended(folder, **result)
    if there is not None:
        (folder / there).mkdir(parents=True)
        (folder / there / "manifest.json").touch()
    loads: list[Callable[[], object]] = [
        lambda: sweeps.load_bundle(folder),
        lambda: sweeps.open(folder).bundle,
    ]
    for load_it in loads:
        with pytest.raises(InputError) as e:
            load_it()
        (problem,) = e.value.problems
        assert problem.place == str(folder) and said in problem.text and "\n" not in problem.text
    (folder / "bundle").mkdir()
    with pytest.raises(InputError, match="manifest"):
        sweeps.load_bundle(folder)
    shutil.rmtree(folder / "bundle")
