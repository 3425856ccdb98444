"""The page of `sweeps ui` beside a sweep that really runs, in a headless Chromium without a
network.

The trials wait for a file after two steps, so that the test decides when the sweep continues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.study import record_reader
from sweeps.study.record_reader import STOPPED
from tests.browser.conftest import drawn, page_server, zoom
from tests.commands import command, end_all, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

TABLE = "#trials tbody tr"


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Any]:
    """Start a sweep of three trials, of which two run at a time. Return its process."""
    file = space_of(tmp_path, "held", limits="max_trials: 3, max_concurrent_trials: 2")
    (tmp_path / "runs").mkdir()
    yield command("run", file, "--dir", tmp_path / "runs", "--json")
    end_all()


def state(trial: str, name: str) -> str:
    """Return the selector of a row of the table: a trial in a state."""
    return f"{TABLE}[data-trial='{trial}'] .state.{name}"


def test_the_page_follows_a_sweep_and_stops_one_of_its_trials(
    sweep: Any, page: Any, tmp_path: Path
) -> None:
    with page_server(tmp_path / "runs") as url:
        page.goto(url)
        page.get_by_role("link", name="own-").click(
            timeout=300_000
        )  # the list shows the sweep as soon as it exists
        page.evaluate("window.isFirst = true")
        for trial in ("0000", "0001"):
            page.wait_for_selector(state(trial, "RUNNING"), timeout=300_000)
        wait_until(lambda: len(list(tmp_path.glob("own-*.two"))) == 2, 120, "two trials to wait")
        page.wait_for_function(
            f"[...document.querySelectorAll('{TABLE}')].every(row => row.cells[3].innerText === "
            "'2')"
        )

        curves = drawn(page, "curves")
        zoom(page, curves)
        page.wait_for_function(
            "selector => document.querySelector(selector).layout.xaxis.range?.[1] < 2", arg=curves
        )
        zoomed = page.eval_on_selector(curves, "plot => [...plot.layout.xaxis.range]")

        page.get_by_role("button", name="Pause").click()
        page.wait_for_selector("h1 .state.paused")
        page.get_by_role("button", name="Pause").wait_for(state="detached")
        page.get_by_role("button", name="Resume").click()
        page.wait_for_selector("h1 .state.running")

        page.locator(f"{TABLE}[data-trial='0000']").click()
        page.get_by_role("button", name="Stop this trial").click()
        page.wait_for_selector("text=Stop trial 0000: trial 0000 is stopped, after 2 steps.")
        page.wait_for_selector(f"dialog >> text={STOPPED}")
        page.get_by_role("button", name="Stop this trial").wait_for(state="detached")
        page.get_by_role("button", name="Close").click()
        page.wait_for_selector(state("0000", "PRUNED"))
        assert page.locator(state("0001", "RUNNING")).is_visible()

        (tmp_path / "go").touch()
        page.wait_for_selector("h1 .state.finished", timeout=300_000)
        for trial in ("0001", "0002"):
            page.wait_for_selector(state(trial, "COMPLETE"))
        page.wait_for_function(
            "selector => document.querySelector(selector).data.length === 3", arg=curves
        )
        assert (
            page.eval_on_selector(curves, "plot => plot.layout.xaxis.range") == zoomed
        )  # new values keep the reader's zoom
        assert page.evaluate("window.isFirst"), "the page was loaded again"
        assert not page.locator("dialog[open]").count(), (
            "a change has opened the closed trial again"
        )
        page.get_by_role("button", name="Stop the sweep").wait_for(state="detached")

    assert sweep.wait(120) == 0, sweep.stderr.read()
    folder = Path(json.loads(sweep.stdout.read())["dir"])
    study = record_reader.read(folder)
    assert study is not None
    states = [(t.result.state, t.result.steps, t.reason) for t in study.trials]
    assert states == [
        (State.PRUNED, 2, STOPPED),
        (State.COMPLETE, 5, None),
        (State.COMPLETE, 5, None),
    ]
    page.goto(f"file://{folder}/report.html")
    drawn(page, "'0'")
    assert "sweeps stop: 0000" in page.inner_text("body")
