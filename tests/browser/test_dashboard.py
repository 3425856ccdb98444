"""The page of `sweeps ui` and the report, with 300 trials, in a headless Chromium without a
network.

With SWEEPS_SCREENSHOTS=docs the picture in `docs/` is taken anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.commands import Stop, parse
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import COMMANDS
from sweeps.core.result import SweepResult
from sweeps.space.python.saved_space import recorded_space
from sweeps.study import record_reader
from tests.browser.conftest import drawn, page_server, zoom
from tests.commands import REPO
from tests.dashboard.sweep_folders import sweep_folder

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TRIALS, RUNNING = 300, "0299"


@dataclass(frozen=True)
class Served:
    """The page of a sweep, which this process seems to run.

    Attributes:
        folder: The sweep's folder.
        url: The address of the page.
    """

    folder: Path
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve a sweep of recorded trials."""
    root = tmp_path_factory.mktemp("sweeps-runs") / "runs"
    folder = sweep_folder(root, TRIALS, running=1)
    lock = FolderLock(folder)
    with page_server(root) as url:
        yield Served(folder, url)
    lock.release()


def rows(page: Any) -> list[list[str]]:
    cells: list[list[str]] = page.eval_on_selector_all(
        "#trials tbody tr", "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return cells


def test_the_table_is_filtered_sorted_and_paged(served: Any, page: Any) -> None:
    page.goto(served.url)
    page.get_by_role("link", name=served.folder.name).click()
    page.wait_for_selector("text=1–25 of 300 trials")
    page.get_by_label("Filter").fill("state=COMPLETE eta<0.1 dart")
    page.wait_for_selector("text=(300 in all)")
    page.locator("#trials th", has_text="mlogloss").click()
    page.wait_for_selector("#trials th[aria-sort=ascending] >> text=mlogloss")
    shown = rows(page)
    assert {row[1] for row in shown} == {"COMPLETE"} and {row[-1] for row in shown} == {"dart"}
    assert all(float(row[7]) < 0.1 for row in shown)
    values = [float(row[2]) for row in shown]
    assert values == sorted(values)
    page.get_by_label("Filter").fill("")
    page.locator("#trials .next").click()
    page.wait_for_selector("text=26–50 of 300 trials")


def test_an_address_that_is_not_encoded_well_names_no_sweep(served: Any, page: Any) -> None:
    page.goto(f"{served.url}/#%ZZ")
    page.wait_for_selector("text=no sweep `%ZZ`")


def test_a_figure_is_zoomed_and_a_click_on_a_point_opens_its_trial(served: Any, page: Any) -> None:
    page.goto(f"{served.url}/#{served.folder.name}")
    history = drawn(page, "history")
    zoom(page, history)
    page.wait_for_function(
        "selector => document.querySelector(selector).layout.xaxis.range?.[1] < 210", arg=history
    )
    at = page.eval_on_selector(
        history,
        """plot => { const trace = plot.data[0], {xaxis, yaxis, _size} = plot._fullLayout, \
box = plot.getBoundingClientRect();
            const i = trace.x.findIndex((x, i) => x > 120 && x < 150 \
&& trace.y[i] > yaxis.range[0] && trace.y[i] < yaxis.range[1]);
            return [box.left + _size.l + xaxis.d2p(trace.x[i]), \
box.top + _size.t + yaxis.d2p(trace.y[i])]; }""",
    )
    page.mouse.move(*at)
    page.wait_for_selector(".hoverlayer .hovertext")
    page.mouse.click(*at)
    page.wait_for_selector("dialog[open] >> text=Configuration")
    trial = page.inner_text("dialog h2").removeprefix("Trial ")
    assert page.url.endswith(f"/{trial}")
    assert page.inner_text("dialog pre.log").startswith(f"training trial {trial} <b>")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


def test_every_figure_is_drawn_on_a_wide_and_a_narrow_page(served: Any, page: Any) -> None:
    page.goto(f"{served.url}/#{served.folder.name}")
    drawn(page, "history")
    if folder := os.environ.get("SWEEPS_SCREENSHOTS"):
        page.wait_for_selector("[data-figure=curves] .js-plotly-plot")
        page.screenshot(path=REPO / folder / "dashboard.png", animations="disabled")
    for key in ("curves", "importance", "parallel", "slice", "cost", "timeline"):
        drawn(page, key)
    with page.expect_response(re.compile("figures/slice.*params.eta")):
        page.locator("[data-figure=slice] select").select_option("params.eta")
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 400")


def test_the_colors_follow_the_system_and_the_switch(served: Any, page: Any) -> None:
    page.goto(f"{served.url}/#{served.folder.name}")
    history = drawn(page, "history")
    color = "selector => document.querySelector(selector)._fullLayout.font.color"
    light = page.evaluate(color, history)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"given => ({color})(given[0]) !== given[1]", arg=[history, light])
    page.get_by_role("button", name="Light mode").click()
    page.wait_for_function(f"given => ({color})(given[0]) === given[1]", arg=[history, light])
    page.reload()
    page.wait_for_selector("text=Dark mode")  # the choice is remembered


def test_a_trial_is_stopped_and_changes_appear_without_a_reload(served: Any, page: Any) -> None:
    page.goto(f"{served.url}/#{served.folder.name}")
    page.wait_for_selector(f"#trials tr[data-trial='{RUNNING}'] >> text=RUNNING")
    page.locator(f"#trials tr[data-trial='{RUNNING}']").click()
    page.get_by_role("button", name="Stop this trial").click()
    page.wait_for_selector("text=Sent: Stop trial 0299")
    (sent,) = (served.folder / COMMANDS).glob("*.json")
    assert parse(sent.read_text()) == Stop(RUNNING)
    page.get_by_role("button", name="Close").click()
    (served.folder / "stages.json").write_text(
        f'{{"{RUNNING}": "silent: rank 0 has not reported for 310 s"}}'
    )
    page.wait_for_selector(f"#trials tr[data-trial='{RUNNING}'] >> text=silent")


def open_report(served: Any, page: Any, folder: Any) -> None:
    """Write the report of the served sweep into a folder, and open it without a server."""
    from sweeps.sweep_report.content import report

    result = SweepResult(
        served.folder.name, served.folder, {"completed": 1}, None, None, None, {}, 1, 1.0
    )
    study = record_reader.read(served.folder)
    assert study is not None
    (folder / "report.html").write_text(report(study, recorded_space(served.folder), result).html)
    page.goto(f"file://{folder}/report.html")


def test_report_is_one_file_and_prints_light_figures(
    served: Any, page: Any, tmp_path: Path
) -> None:
    open_report(served, page, tmp_path)
    history = drawn(page, "'0'")
    assert page.eval_on_selector(history, "plot => plot.data.at(-1).name") == "best so far"
    buttons = page.eval_on_selector_all(".modebar-btn", "all => all.map(one => one.dataset.title)")
    assert "Zoom in" in buttons and not [title for title in buttons if "Cloud" in title]
    page.get_by_role("button", name="Dark mode").click()
    empty = (
        "[...document.querySelectorAll('.plot')].filter(plot => "
        "!plot.querySelector('svg.main-svg')).length"
    )
    assert page.evaluate(empty), "the figures below the window are not drawn yet"
    seen = f"window.printed = [{empty}, document.documentElement.dataset.theme]"
    page.evaluate(f"() => addEventListener('beforeprint', () => {{ {seen} }})")
    page.pdf(path=tmp_path / "report.pdf")
    assert page.evaluate("printed") == [0, "light"]
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.emulate_media(media="print")
    assert not page.get_by_role("button", name="Light mode").is_visible()
