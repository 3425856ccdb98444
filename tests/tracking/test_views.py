"""The saved views of a sweep in MLflow's UI."""

from __future__ import annotations

import base64
import json
import zlib

import pytest
from mlflow.utils.validation import MAX_EXPERIMENT_TAG_VAL_LENGTH

from sweeps.tracking.mlflow import views
from tests.sweep_report.made import space_in


@pytest.fixture
def space(tmp_path):
    return space_in(tmp_path)


def test_the_columns_are_the_dimensions_and_the_order_is_the_goals(space):
    state = views.trials_view("made-1", space)
    shown = state["selectedColumns"]
    assert shown[:2] == ["metrics.`objective`", "tags.`sweeps.state`"]
    assert {"params.`preprocessor`", "params.`scaling.num_workers`", "params.`params.eta`"} <= set(
        shown
    )
    assert "params.`params.fixed`" not in shown
    assert (state["orderByKey"], state["orderByAsc"]) == (
        "metrics.`objective`",
        False,
    )  # acc@5 is to be large
    assert (
        state["searchFilter"] == "tags.`sweeps.sweep` = 'made-1' and tags.`sweeps.kind` = 'trial'"
    )
    assert set(shown) < set(state["columnOrder"]) == set(state["columnWidths"])


def test_every_trial_has_every_axis(space):
    (parallel, curves) = views.trials_view("made-1", space)["compareRunCharts"]
    assert parallel["selectedParams"] == [
        "preprocessor",
        "scaling.num_workers",
        "log10 params.eta",
        *(f"params.{name}" for name in ("depth", "mixed", "normal")),
        "log10 params.stepped",
        "params.optimizer",
    ]  # and not the momentum, which adam has none of
    assert any("momentum" in d.name for d in space.dimensions)
    assert parallel["selectedMetrics"] == ["objective"]
    assert curves["metricKey"] == views.legal_name("acc@5")


def test_the_view_of_sweeps_shows_their_results(space):
    state = views.sweeps_view(space)
    assert state["orderByKey"] == "metrics.`best`" and not state["orderByAsc"]
    assert {"metrics.`best.test`", "tags.`best.preprocessor`", "tags.`best.params.eta`"} <= set(
        state["selectedColumns"]
    )
    assert {"params.`trainer`", "params.`search.algorithm`"} <= set(state["selectedColumns"])
    assert "compareRunCharts" not in state


def test_a_view_is_saved_as_mlflow_reads_it(space):
    state = views.trials_view("made-1", space)
    tag = views.saved_view("made-1: trials", 1_700_000_000.5, state)
    assert len(tag) < MAX_EXPERIMENT_TAG_VAL_LENGTH / 4
    read = json.loads(tag)
    packed = read.pop("state")
    assert read == {"name": "made-1: trials", "createdAt": 1_700_000_000_500}
    assert packed.startswith("deflate;")
    assert json.loads(zlib.decompress(base64.b64decode(packed.removeprefix("deflate;")))) == state


def test_links():
    server = "http://127.0.0.1:5000"
    assert views.runs_link(f"{server}/", "3", "made 1") == (
        f"{server}/#/experiments/3/runs?viewStateShareKey=made%201&workflowType=machine_learning"
    )
    assert views.runs_link("", "3", "made", chart=True).startswith(
        "#/experiments/3/runs?viewStateShareKey=made&"
    )
    assert views.runs_link("", "3", "made", chart=True).endswith("&compareRunsMode=CHART")
    assert (
        views.run_link("", "3", "abc", "report.html")
        == "#/experiments/3/runs/abc/artifacts/report.html?workflowType=machine_learning"
    )
