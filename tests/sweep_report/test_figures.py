"""The trials and values in figures, the figures of unusual sweeps, and figures that fail."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.best_step import Constraint
from sweeps.core.trial import State
from sweeps.space.sections.search_models import Objective
from sweeps.study.objectives import Objectives
from sweeps.sweep_report import plots
from sweeps.sweep_report.figures import MOST_CHARACTERS, Figure, literal
from sweeps.sweep_report.importance import basis_of
from sweeps.sweep_report.parallel_plot import parallel
from sweeps.sweep_report.plot_data import PlotData, best_first, best_so_far, finite_points, thin
from tests.sweep_report.report_data import MARKUP, RUNGS, marked_data, space_in, trial, trials

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
GOALS = (Objective("acc@5", "maximize"),)
DRAWN = ["history", "curves", "importance", "parallel", *["slice"] * 6, "cost", "timeline"]


@pytest.fixture
def space(tmp_path: Path) -> Any:
    return space_in(tmp_path)


def data_of(space: Any, states: Any, **more: Any) -> PlotData:
    return PlotData(
        **{
            "dimensions": space.dimensions,
            "objectives": GOALS,
            "rungs": RUNGS,
            "trials": tuple(states),
            **more,
        }
    )


def timed(states: Any, start: float = 1_000_000.0, seconds: float = 10.0) -> Any:
    """Return the trials as if they had run one after the other."""
    at = [start + i * seconds for i in range(len(states) + 1)]
    return [
        dataclasses.replace(
            t,
            started=dataclasses.replace(t.started, time=at[i]),
            ended_at=at[i + 1] if t.has_ended else None,
        )
        for i, t in enumerate(states)
    ]


# ---- the choice of trials and values


@given(st.lists(st.integers(), max_size=300, unique=True), st.integers(2, 50))
def test_thinning_keeps_the_ends_and_the_order(items: Any, most: Any) -> None:
    kept = thin(items, most)
    assert len(kept) == min(most, len(items))
    assert not items or (kept[0], kept[-1]) == (items[0], items[-1])
    at = [items.index(item) for item in kept]
    assert at == sorted(set(at))


def test_values_are_compared_at_equal_steps(space: Any) -> None:
    states = trials(space, 100)
    basis, values = basis_of(states, RUNGS)
    reached = {rung: sum(len(t.curve) >= rung for t in states) for rung in RUNGS}
    assert reached[45] < 30 <= reached[15]
    assert basis == f"the values at step 15, which {reached[15]} trials reached"
    assert values == {t.number: t.curve[14][1] for t in states if len(t.curve) >= 15}
    assert basis_of(states[:5], RUNGS)[1].keys() == {0, 1, 2, 3, 4}  # few: those of the first rung
    assert basis_of(states[:5], ()) == (
        "the values of 5 trials",
        {t.number: t.result.value for t in states[:5]},
    )


def test_trials_without_a_finite_value_are_not_ranked(space: Any) -> None:
    odd = [
        trial(space, 0, State.FAIL, ()),
        trial(space, 1, curve=(math.nan,)),
        trial(space, 2, curve=(math.inf,)),
    ]
    good, better = trial(space, 3, curve=(0.5,)), trial(space, 4, curve=(0.7,))
    assert [t.number for t in best_first([*odd, good, better], minimize=False)] == [4, 3]
    assert finite_points(((1, math.nan), (2, 0.5), (3, -math.inf))) == [(2, 0.5)]


def test_a_stopped_trial_is_the_best_so_far_only_without_complete_trials(space: Any) -> None:
    stopped, complete = (
        trial(space, 0, State.PRUNED, (0.9,)),
        [trial(space, n, curve=(v,)) for n, v in ((1, 0.4), (2, 0.3), (3, 0.6))],
    )
    assert best_so_far([stopped, *complete, trial(space, 4, State.FAIL, ())], minimize=False) == [
        (1, 0.4),
        (3, 0.6),
        (4, 0.6),
    ]
    assert best_so_far([stopped], minimize=False) == [(0, 0.9), (0, 0.9)]
    assert best_so_far([trial(space, 0, State.FAIL, ())], minimize=False) == []
    short = Objectives(GOALS, (Constraint("seconds", "<", 1.0),))
    infeasible = trial(space, 3, curve=(0.6,), objectives=short)
    assert infeasible.result.value == complete[2].result.value and not infeasible.result.feasible
    assert best_so_far([*complete[:2], infeasible], minimize=False)[-1] == (3, 0.4)
    running = trial(space, 5, State.RUNNING, (0.99,))  # the value of an early step is not final
    assert (
        best_so_far([stopped, running], minimize=False) == [(0, 0.9), (5, 0.9)]
        and best_so_far([running], minimize=False) == []
    )


def test_figures_of_few_trials_label_whole_numbers_only(space: Any) -> None:
    data = data_of(space, timed([trial(space, n, curve=(0.5, 0.4 + n / 10)) for n in range(3)]))
    axes = {f.key: f.plot["layout"] for f in plots.all_figures(data, 0)}
    assert (
        axes["history"]["xaxis"]["dtick"]
        == axes["curves"]["xaxis"]["dtick"]
        == axes["timeline"]["yaxis"]["dtick"]
        == 1
    )
    (ticks,) = (
        axis["ticktext"]
        for axis in parallel(data).plot["data"][0]["dimensions"]
        if axis["label"] == "depth"
    )
    assert all("." not in text for text in ticks)


def test_curves_over_rows_show_the_share_of_rows(space: Any) -> None:
    figure = plots.curves(data_of(space, [trial(space, 0, curve=(0.5, 0.6, 0.7))], parts=4))
    assert [trace["x"] for trace in figure.plot["data"]] == [[25.0, 50.0, 75.0]]
    assert (
        figure.plot["layout"]["xaxis"]["title"]["text"] == "% of the train rows"
        and "share of the train rows" in figure.note
    )


# ---- the figures


@pytest.mark.parametrize("count", [2, 40, 200])
def test_every_kind_of_dimension_is_drawn(space: Any, count: int) -> None:
    figures = plots.all_figures(data_of(space, trials(space, count)), 6)
    expected = [key for key in DRAWN if key != "importance" or count >= 10]
    assert [f.key for f in figures] == expected and all(f.plot and f.note for f in figures)
    shown = json.dumps([f.plot for f in figures], allow_nan=False)
    assert len(shown) < 600_000
    importance = next((f for f in figures if f.key == "importance"), None)
    assert importance is None or "optimizer.choice.0.momentum" in importance.plot["data"][0]["y"]


def test_axes_follow_the_domains(space: Any) -> None:
    data = data_of(space, trials(space, 40))
    (axes,) = (trace["dimensions"] for trace in parallel(data).plot["data"])
    by_name = {axis["label"]: axis for axis in axes}
    eta = by_name["eta"]  # logarithmic
    assert max(eta["values"]) <= math.log10(0.5) and "0.01" in eta["ticktext"]
    assert by_name["optimizer.choice.0.momentum"]["ticktext"][0] == "not set"
    assert by_name["mixed"]["ticktext"] == ["null", "true", "1.5", "a_b|c"]
    assert plots.slice_of(data, "params.eta").plot["layout"]["xaxis"]["type"] == "log"
    assert plots.slice_of(data, "params.mixed").plot["layout"]["xaxis"]["type"] == "category"
    assert "type" not in plots.slice_of(data, "params.normal").plot["layout"]["xaxis"]


def test_each_point_has_the_id_of_its_trial(space: Any) -> None:
    data = data_of(space, trials(space, 40))
    for figure in (plots.history(data), plots.slice_of(data, "params.eta"), plots.cost(data)):
        ids = {i for trace in figure.plot["data"] for i in trace.get("customdata", ())}
        assert ids == {t.id for t in data.trials}


def test_large_sweeps_are_thinned_with_a_note(space: Any) -> None:
    many = [trial(space, n, curve=(0.5 + n / 10_000,)) for n in range(2500)]
    figure = plots.history(data_of(space, many))
    assert sum(len(trace["x"]) for trace in figure.plot["data"][:-1]) == 2000
    assert "The figure shows 2,000 of 2,500 trials" in figure.note
    curves = plots.curves(data_of(space, many[:40]))
    assert len(curves.plot["data"]) == 30 and "30 of 40 trials" in curves.note
    (chosen,) = plots.curves(data_of(space, many[:40]), chosen=["0003"]).plot["data"]
    assert chosen["name"] == "0003"


def test_running_trials_have_curves_and_end_now(space: Any) -> None:
    running = trial(space, 40, State.RUNNING, (0.1,))
    states = timed([*(trial(space, n) for n in range(40)), running])
    data = data_of(space, states, is_driven=True, now=1_000_500.0)
    assert "0040" in [trace["name"] for trace in plots.curves(data).plot["data"]]
    bars = {trace["name"]: trace for trace in plots.timeline(data).plot["data"]}
    assert bars["RUNNING"]["x"] == [100_000] and bars["COMPLETE"]["x"] == [10_000] * 40
    assert {
        trace["name"]
        for trace in plots.timeline(dataclasses.replace(data, is_driven=False)).plot["data"]
    } == {
        "COMPLETE",
        "INTERRUPTED",
    }


def test_the_front_is_marked(space: Any) -> None:
    goals = (*GOALS, Objective("seconds", "minimize"))
    two = Objectives(goals)
    states = [
        trial(space, 0, curve=(0.5,), objectives=two, seconds=1.0),
        trial(space, 1, curve=(0.4,), objectives=two, seconds=2.0),
        trial(space, 2, State.PRUNED, (0.3,), objectives=two),
    ]
    assert [t.result.values for t in states] == [(0.5, 1.0), (0.4, 2.0), (0.3, None)]
    others, front = plots.pareto(data_of(space, states, objectives=goals, front=(0,))).plot["data"]
    assert (front["customdata"], front["x"], front["y"]) == (["0000"], [0.5], [1.0]) and others[
        "customdata"
    ] == ["0001"]


def test_unusual_sweeps_get_the_figures_that_can_be_drawn(space: Any) -> None:
    assert plots.all_figures(data_of(space, []), 6) == []
    assert (
        plots.all_figures(
            data_of(space, [trial(space, n, State.FAIL, (), "boom") for n in range(12)]), 6
        )
        == []
    )
    assert (
        plots.all_figures(
            data_of(space, [trial(space, n, curve=(math.nan,) * 5) for n in range(12)]), 6
        )
        == []
    )
    one = plots.all_figures(data_of(space, trials(space, 1)), 6)
    assert [f.key for f in one] == [key for key in DRAWN if key != "importance"]
    flat = data_of(space, [trial(space, n, curve=(0.5,) * 5) for n in range(12)])
    assert not flat.importance.shares and all(f.plot for f in plots.all_figures(flat, 6))
    untuned = plots.all_figures(data_of(space, trials(space, 12), dimensions=()), 6)
    assert [f.key for f in untuned] == ["history", "curves", "cost", "timeline"]


def strings(value: Any, key: str = "") -> list[tuple[str, str]]:
    """Return all texts of a part of a figure, each with its key."""
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in strings(inner, name)]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner, key)]
    return [(key, value)] if isinstance(value, str) else []


def test_no_figure_has_a_name_that_plotly_reads_as_markup(tmp_path: Path) -> None:
    figures = plots.all_figures(marked_data(tmp_path, metrics=2), 20)
    assert {f.key for f in figures} == set(plots.FIGURES)
    for figure in figures:
        raw = ["hovertemplate", *["ticktext"] * (figure.key == "parallel"), "bdata"]
        shown = [text for key, text in strings(figure.plot) if key not in raw]
        assert not [text for text in shown if re.search(r"<|\$|%\{", text)]
        assert max(map(len, shown)) < 6 * MOST_CHARACTERS
        assert figure.key == "timeline" or any(MARKUP in html.unescape(text) for text in shown)
        templates = [text for key, text in strings(figure.plot) if key == "hovertemplate"]
        assert not any("//e" in text for text in templates)


@given(st.text(max_size=MOST_CHARACTERS))
def test_a_text_of_a_figure_is_escaped_once(text: Any) -> None:
    escaped = literal(text)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#36;", "$"), ("&#123;", "{")):
        escaped = escaped.replace(entity, character)
    assert escaped.replace("&amp;", "&") == text


def test_options_that_are_equal_after_the_cut_stay_different(tmp_path: Path) -> None:
    data = marked_data(tmp_path)
    name = f"params.mixed {MARKUP}"
    order = plots.slice_of(data, name).plot["layout"]["xaxis"]["categoryarray"]
    assert len(order) == len(set(order)) == 4 and order[1] == f"2: {'x' * 14}…{'x' * 9}"
    (track,) = [
        axis
        for axis in parallel(data).plot["data"][0]["dimensions"]
        if html.unescape(axis["label"]) == f"mixed {MARKUP}"
    ]
    assert track["tickvals"] == [0, 1, 2, 3] and track["ticktext"][3] == f"4: {MARKUP}"


def test_titles_in_three_dimensions_have_no_tags(tmp_path: Path) -> None:
    figure = plots.pareto(marked_data(tmp_path, metrics=3))
    title = figure.plot["layout"]["scene"]["zaxis"]["title"]["text"]
    assert title == f"2 {MARKUP}".replace("<", "<\u200b")


def test_a_failed_figure_does_not_affect_the_others(
    space: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **how: Any) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setitem(plots.FIGURES, "parallel", fail)
    shown = {f.key: f for f in plots.all_figures(data_of(space, trials(space, 3)), 6)}
    assert (
        shown["parallel"].note == "This figure could not be made: RuntimeError: no ink"
        and not shown["parallel"].plot
    )
    assert shown["history"].plot and shown["slice"].plot


def test_a_figure_is_a_plotly_figure_for_notebooks(space: Any) -> None:
    figure = plots.history(data_of(space, trials(space, 3))).to_plotly()
    assert figure.layout.title.text == "Best so far" and figure.data[-1].name == "best so far"
    assert figure.layout.title.subtitle.text.startswith("The line is the best value so far.")


def test_the_caption_of_a_notebook_figure_is_wrapped_and_escaped() -> None:
    figure = Figure("slice", "Slice", note="<b> " + "word " * 40).to_plotly()
    lines = figure.layout.title.subtitle.text.split("<br>")
    assert len(lines) == 3 and lines[0].startswith("&lt;b&gt; word") and max(map(len, lines)) < 100
    assert (
        not figure.data
        and figure.layout.xaxis.visible is False
        and figure.layout.height == 60 + 3 * 18
    )


def test_the_winner_is_drawn_beside_other_trials_and_the_default(space: Any) -> None:
    gains = [
        {"trial": "0002", "value": 0.1, "low": -0.1, "high": 0.3},
        {"trial": "0000", "default": "", "value": 0.5, "low": 0.2, "high": 0.8},
        {"trial": "0001", "default": "trees"},  # the exported model
    ]
    data = data_of(space, trials(space, 3), new_rows={"trials": gains})
    figure = plots.figure(data, "winner")
    (points,) = figure.plot["data"]
    assert points["y"] == ["0002", "0000 (default)"] and points["customdata"] == ["0002", "0000"]
    assert points["x"] == [0.1, 0.5] and points["error_x"]["array"][0] == pytest.approx(0.2)
    assert "winner" in [f.key for f in plots.all_figures(data, 0)]
    unknown = data_of(space, trials(space, 3), new_rows={"unknown": "valid has 9 rows"})
    figure = plots.figure(unknown, "winner")
    assert not figure.plot and figure.note == "There is nothing to draw: valid has 9 rows."
    assert "winner" not in [f.key for f in plots.all_figures(unknown, 0)]
