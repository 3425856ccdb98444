"""Names with markup in the figures of a report, in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.sweep_report import plots
from sweeps.sweep_report.html_page import to_html
from tests.browser.conftest import WAIT
from tests.sweep_report.report_data import MARKUP, marked_data

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
]

TEXTS = "plot => [...plot.querySelectorAll('text')].map(text => text.textContent)"
# Shows the hover text of the first points of each trace, and returns all of its lines.
HOVER = """plot => { const seen = [];
    for (const curveNumber of plot.data.keys()) {
        Plotly.Fx.hover(plot, [{curveNumber, pointNumber: 0}]);
        seen.push(...[...plot.querySelectorAll('.hoverlayer text')].map(text => text.textContent));
    }
    return seen; }"""
# Places of the names that each figure shows, as the beginning of each name.
SHOWN = {
    "history": {"0 "},
    "winner": {"0 ", ""},
    "curves": {"0 "},
    "importance": {"depth ", "mixed "},
    "parallel": {"0 ", "depth ", "mixed ", "4: "},
    "slice": {"0 ", "depth ", "mixed ", "4: "},
    "cost": {"0 "},
    "pareto": {"0 ", "1 "},
    "timeline": set(),
}


def test_names_are_shown_as_they_are_and_are_no_links(page: Any, tmp_path: Path) -> None:
    data = marked_data(tmp_path, metrics=2)
    names = [f"params.depth {MARKUP}", f"params.mixed {MARKUP}"]
    figures = plots.all_figures(data, 0)
    figures += [plots.slice_of(data, name) for name in names]
    assert {figure.key for figure in figures} == set(SHOWN)
    (tmp_path / "report.html").write_text(to_html("made", "# made", figures))
    page.goto((tmp_path / "report.html").as_uri())
    shown: dict[str, list[str]] = {}
    for at, figure in enumerate(figures):
        place = page.locator(f"[data-figure='{at}']")
        place.scroll_into_view_if_needed()
        page.wait_for_selector(f"[data-figure='{at}'].js-plotly-plot .main-svg", timeout=WAIT)
        assert page.locator("svg a, .plot a[href]").count() == 0
        shown.setdefault(figure.key, []).extend(place.evaluate(TEXTS))
        if figure.key != "parallel":
            shown[figure.key] += place.evaluate(HOVER)
            assert page.locator("svg a, .plot a[href]").count() == 0
    for key, expected in SHOWN.items():
        for name in expected:
            assert any(f"{name}{MARKUP}" in text for text in shown[key]), (key, name, shown[key])
    assert any(text.startswith("trial 0") and f"0 {MARKUP} 0." in text for text in shown["history"])
    assert not [text for texts in shown.values() for text in texts if "&amp;" in text]
