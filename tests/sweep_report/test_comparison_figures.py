"""The figures of a comparison: one line for each sweep, and one figure for each group of comparable
sweeps.
"""

from __future__ import annotations

import doctest

import pytest

from sweeps.core.trial import State
from sweeps.study.record import Record
from sweeps.sweep_report import comparison
from sweeps.sweep_report import comparison_figures as figures
from sweeps.sweep_report.comparison import compare
from sweeps.sweep_report.comparison_figures import comparison_figures
from sweeps.sweep_report.comparison_tables import to_page
from sweeps.sweep_report.regret import best_result
from tests.sweep_report.test_comparison import space, sweep
from tests.sweep_report.test_regret import MINIMIZE, trial


def lines(figure) -> dict:
    return {
        trace["name"]: list(zip(trace["x"], trace["y"], strict=True))
        for trace in figure.plot["data"]
    }


def test_each_sweep_has_a_line_of_its_best_value_and_of_its_regret(tmp_path):
    made = space(tmp_path)
    best, regret, *over_seconds = comparison_figures(
        compare([sweep("a", made, 0.5, 0.4), sweep("b", made, 0.7, 0.3, 0.6)])
    )
    assert lines(best) == {"A: a": [(1, 0.5), (2, 0.4)], "B: b": [(1, 0.7), (2, 0.3), (3, 0.3)]}
    assert lines(regret) == {
        "A: a": [(1, pytest.approx(0.2)), (2, pytest.approx(0.1))],
        "B: b": [(1, 0.4), (2, 0.4)],
    }
    assert (
        regret.plot["layout"]["yaxis"]["type"] == "log"
        and best.plot["layout"]["xaxis"]["dtick"] == 1
    )
    assert [f.plot["layout"]["xaxis"]["title"]["text"] for f in over_seconds] == [
        "seconds",
        "seconds",
    ]


def test_sweeps_that_cannot_be_compared_are_in_different_figures(tmp_path):
    made = compare(
        [
            sweep("a", space(tmp_path), 0.5),
            sweep("b", space(tmp_path, ("valid: 0.25", "valid: 0.2")), 0.3, data="other"),
        ]
    )
    assert [
        (f.title, list(lines(f)))
        for f in comparison_figures(made)
        if f.plot["layout"]["xaxis"]["title"]["text"] == "trials"
    ] == [
        ("Best so far of A over trials", ["A: a"]),
        ("Best so far of B over trials", ["B: b"]),
    ]


def test_failed_trials_and_empty_sweeps_have_no_points(tmp_path):
    made = space(tmp_path)
    empty, failed = sweep("a", None, record=None), sweep("b", made, None, None)
    assert comparison_figures(compare([empty, failed])) == []
    best, *_ = comparison_figures(compare([empty, failed, sweep("c", made, None, 0.4)]))
    assert lines(best) == {"C: c": [(2, 0.4)]}


def test_a_sweep_without_regret_has_no_line_of_its_regret(tmp_path):
    made = space(tmp_path)
    pruned = Record(MINIMIZE, (trial(0, State.PRUNED, 0.1),), "d")
    found = comparison_figures(
        compare([sweep("a", made, 0.5, 0.4), sweep("b", made, record=pruned)])
    )
    assert lines(found[0]).keys() == {"A: a", "B: b"} and lines(found[1])["B: b"] == []


def test_the_page_has_the_figures_after_the_results(tmp_path):
    page = to_page(
        compare([sweep("a", space(tmp_path), 0.5, 0.4), sweep("b", space(tmp_path), 0.7)])
    )
    titles = (
        "Results",
        "Best so far over trials",
        "Regret over trials",
        "Regret over seconds",
        "Spaces",
        "Best configurations",
    )
    places = [page.index(f"<h2>{title}</h2>") for title in titles]
    assert places == sorted(places) and 'data-figure="3"' in page
    assert "<script" not in to_page(
        compare([sweep("a", None, record=None), sweep("b", None, record=None)])
    )


def test_the_examples_of_the_docstrings_are_right():
    assert doctest.testmod(figures).failed == 0


def test_the_best_result_of_a_sweep_is_found_once_and_not_at_each_point(tmp_path, monkeypatch):
    made, calls = space(tmp_path), []

    def counted(record):
        calls.append(record)
        return best_result(record)

    monkeypatch.setattr(comparison, "best_result", counted)
    values = [1 / (n + 1) for n in range(50)]
    to_page(compare([sweep("a", made, *values), sweep("b", made, *values[:20])]))
    assert len(calls) == 2
