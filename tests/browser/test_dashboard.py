"""The page of `sweeps ui` and the report, with 1,000 trials, in a headless Chromium without a network.

With SWEEPS_SCREENSHOTS=docs the picture in `docs/` is taken anew.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeps.controller.commands import Stop, parse
from sweeps.core.folder_lock import FolderLock
from sweeps.core.result import SweepResult
from sweeps.core.sweep_folder import COMMANDS
from sweeps.space.saved_space import recorded_space
from sweeps.study import record
from tests.commands import REPO
from tests.dashboard.made import sweep_folder
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TRIALS, RUNNING = 1000, "0999"
WAIT = 60_000  # milliseconds


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
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("sweeps-runs") / "runs"
    folder = sweep_folder(root, TRIALS, running=1)
    lock = FolderLock(folder)
    typed = [sys.executable, "-m", "sweeps.cli", "ui", "--dir", str(root), "--port", "0", "--no-mlflow"]
    said = root / "said"
    with said.open("w") as log:
        ui = subprocess.Popen(typed, cwd=REPO, stdout=log, stderr=log)
    try:
        wait_until(lambda: "Ctrl-C" in said.read_text() or ui.poll() is not None, 60, "the address of the page")
        (url,) = re.findall(r"http://127.0.0.1:\d+", said.read_text())
        yield Served(folder, url)
    finally:
        ui.send_signal(signal.SIGTERM)
        assert ui.wait(20) == 0, said.read_text()
        lock.release()


@pytest.fixture
def page(browser):
    """Return a page of a new browser profile. Errors in the page's scripts fail the test."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    context.set_default_timeout(WAIT)
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda e: errors.append(str(e)))
    yield opened
    context.close()
    assert not errors


def drawn(page, key: str) -> str:
    """Wait until a figure is drawn, and return its selector."""
    selector = f"[data-figure={key}] .js-plotly-plot, [data-figure={key}].js-plotly-plot"
    page.locator(f"[data-figure={key}]").first.scroll_into_view_if_needed()
    page.wait_for_selector(selector)
    return selector


def rows(page) -> list[list[str]]:
    return page.eval_on_selector_all("#trials tbody tr", "all => all.map(row => [...row.cells].map(cell => cell.innerText))")


def test_the_table_is_filtered_sorted_and_paged(served, page):
    page.goto(served.url)
    page.get_by_role("link", name=served.folder.name).click()
    page.wait_for_selector("text=1–25 of 1,000 trials")
    page.get_by_label("Filter").fill("state=COMPLETE eta<0.1 dart")
    page.wait_for_selector("text=(1,000 in all)")
    page.locator("#trials th", has_text="mlogloss").click()
    shown = rows(page)
    assert {row[1] for row in shown} == {"COMPLETE"} and {row[-1] for row in shown} == {"dart"}
    assert all(float(row[7]) < 0.1 for row in shown)
    values = [float(row[2]) for row in shown]
    assert values == sorted(values)
    page.get_by_label("Filter").fill("")
    page.locator("#trials .next").click()
    page.wait_for_selector("text=26–50 of 1,000 trials")


def test_a_figure_is_zoomed_and_a_click_on_a_point_opens_its_trial(served, page):
    page.goto(f"{served.url}/#{served.folder.name}")
    history = drawn(page, "history")
    box = page.locator(f"{history} >> .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.9, steps=5)
    page.mouse.up()
    page.wait_for_function("selector => document.querySelector(selector).layout.xaxis.range?.[1] < 700", arg=history)
    at = page.eval_on_selector(
        history,
        """plot => { const trace = plot.data[0], {xaxis, yaxis, _size} = plot._fullLayout, box = plot.getBoundingClientRect();
            const i = trace.x.findIndex((x, i) => x > 400 && x < 500 && trace.y[i] > yaxis.range[0] && trace.y[i] < yaxis.range[1]);
            return [box.left + _size.l + xaxis.d2p(trace.x[i]), box.top + _size.t + yaxis.d2p(trace.y[i])]; }""",
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


def test_every_figure_is_drawn_on_a_wide_and_a_narrow_page(served, page):
    page.goto(f"{served.url}/#{served.folder.name}")
    drawn(page, "history")
    if folder := os.environ.get("SWEEPS_SCREENSHOTS"):
        page.wait_for_selector("[data-figure=curves] .js-plotly-plot")
        page.screenshot(path=REPO / folder / "dashboard.png", animations="disabled")
    for key in ("curves", "importance", "parallel", "slice", "contour", "cost", "edf", "timeline", "resources"):
        drawn(page, key)
    with page.expect_response(re.compile("figures/slice.*params.eta")):
        page.locator("[data-figure=slice] select").select_option("params.eta")
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 400")


def test_the_colors_follow_the_system_and_the_switch(served, page):
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


def test_a_trial_is_stopped_and_changes_appear_without_a_reload(served, page):
    page.goto(f"{served.url}/#{served.folder.name}")
    page.wait_for_selector(f"#trials tr[data-trial='{RUNNING}'] >> text=RUNNING")
    page.locator(f"#trials tr[data-trial='{RUNNING}']").click()
    page.get_by_role("button", name="Stop this trial").click()
    page.wait_for_selector("text=Sent: Stop trial 0999")
    (sent,) = (served.folder / COMMANDS).glob("*.json")
    assert parse(sent.read_text()) == Stop(RUNNING)
    page.get_by_role("button", name="Close").click()
    (served.folder / "stages.json").write_text(f'{{"{RUNNING}": "silent: rank 0 has not reported for 310 s"}}')
    page.wait_for_selector(f"#trials tr[data-trial='{RUNNING}'] >> text=silent")


def test_the_report_is_one_file_that_works_without_a_server(served, page, tmp_path):
    from sweeps.sweep_report.content import report

    result = SweepResult(served.folder.name, served.folder, {"completed": 1}, None, None, None, {}, 1, 1.0)
    study = record.read(served.folder)
    assert study is not None
    (tmp_path / "report.html").write_text(report(study, recorded_space(served.folder), result).html)
    page.goto(f"file://{tmp_path}/report.html")
    history = drawn(page, "'0'")
    assert page.eval_on_selector(history, "plot => plot.data.at(-1).name") == "best so far"
    titles = page.eval_on_selector_all(".modebar-btn", "all => all.map(button => button.dataset.title)")
    assert "Zoom in" in titles and not [title for title in titles if "Share" in title or "Cloud" in title]
    page.get_by_role("button", name="Dark mode").click()
    page.wait_for_selector("text=Light mode")
    page.locator("text=Empirical distribution").scroll_into_view_if_needed()
    page.wait_for_selector("h2:text('Empirical distribution') + .js-plotly-plot")
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 400")
