"""MLflow's pages of a sweep in a headless Chromium, opened by the links of the page of `sweeps ui`.

The saved views and the description are read by MLflow's pages alone, so nothing but a browser can tell that they are right. With
SWEEPS_SCREENSHOTS=docs the pictures in `docs/` are taken anew.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.browser.conftest import page_server
from tests.commands import REPO, command

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

TRIALS = 12
WAIT = 30_000  # milliseconds
# MLflow opens its assistant over a fifth of the page on the first visit.
SEEN = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"


@dataclass(frozen=True)
class Shown:
    """A finished sweep, and the address of its UI.

    Attributes:
        result: what `--json` printed.
        url: address of the page, with the token.
        links: the links to MLflow's pages, by title.
    """

    result: dict[str, Any]
    url: str
    links: dict[str, str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Run the quickstart once, and serve MLflow's UI on its root."""
    root = tmp_path_factory.mktemp("sweeps-runs")
    run = command(
        "run",
        REPO / "search_spaces" / "quickstart.yaml",
        "--dir",
        root,
        "--set",
        f"limits.max_trials={TRIALS}",
        "--json",
    )
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0, err
    with page_server(root, mlflow=True) as url:
        yield Shown(json.loads(out), url, links_of_newest(url))


def links_of_newest(url: str) -> dict[str, str]:
    """Return the links to MLflow's pages that the page shows, by title, as whole addresses."""
    address, token = url.split("/?token=")
    asked = Request(f"{address}/api/sweeps", headers={"Authorization": f"Bearer {token}"})
    with urlopen(asked, timeout=20) as answer:
        links = json.load(answer)["sweeps"][0]["mlflow"]
    return {title: f"{address}/{link}" for title, link in links.items()}


@pytest.fixture
def page(browser, shown):
    """Return a page of a new browser profile, which has a session of MLflow's pages."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(SEEN)
    context.set_default_timeout(WAIT)
    opened = context.new_page()
    with opened.expect_response("**/mlflow/session"):
        opened.goto(shown.url)
    yield opened
    context.close()


def picture(page, name: str) -> None:
    if folder := os.environ.get("SWEEPS_SCREENSHOTS"):
        page.screenshot(path=REPO / folder / name, animations="disabled")


def table(page, columns: str) -> list[dict[str, str]]:
    """Return the rows of MLflow's table in order, by column. The page has only the cells that are visible."""
    page.wait_for_selector(f".ag-center-cols-container [role=gridcell][col-id='{columns}']")
    rows = page.eval_on_selector_all(
        "[role=row][row-index]",
        """rows => rows.map(row => [Number(row.getAttribute('row-index')),
            [...row.querySelectorAll('[role=gridcell]')].map(cell => [cell.getAttribute('col-id'), cell.innerText])])""",
    )
    merged: dict[int, dict[str, str]] = {}
    for (
        index,
        cells,
    ) in rows:  # a row is there twice: its name stands in a part of its own, which does not scroll
        merged.setdefault(index, {}).update(cells)
    return [merged[index] for index in sorted(merged)]


def test_the_runs_are_sorted_and_show_preprocessor_workers_and_params(shown, page):
    page.goto(shown.links["trials, best first"])
    table(page, "metrics.`objective`")
    picture(page, "mlflow-runs.png")
    page.set_viewport_size({"width": 2000, "height": 1200})
    rows = table(page, "params.`params.max_depth`")
    values = [float(row["metrics.`objective`"]) for row in rows]
    assert len(values) == TRIALS and values == sorted(values)
    best, first = shown.result["best"], rows[0]
    assert values[0] == best["value"] and best["trial"] in first["attributes.`Run Name`"]
    assert first["params.`preprocessor`"] == best["preprocessor"]
    assert first["params.`scaling.num_workers`"] == str(best["scaling"]["num_workers"])
    assert {name: first[f"params.`params.{name}`"] for name in best["params"]} == {
        name: str(v) for name, v in best["params"].items()
    }
    assert {row["tags.`sweeps.state`"] for row in rows} == {"COMPLETE", "PRUNED"}


def test_parallel_coordinates_have_preprocessor_workers_params_and_the_objective_as_axes(
    shown, page
):
    page.goto(shown.links["charts"])
    page.wait_for_selector(".parcoords .dimension")
    axes = dict(
        page.eval_on_selector_all(
            ".parcoords .dimension",
            """all => all.map(one => [one.querySelector('.label').textContent,
                [...one.querySelectorAll('.tick text')].map(tick => tick.textContent)])""",  # of a long one the whole, too
        )
    )
    assert list(axes) == [
        "preprocessor",
        "scaling.num_workers",
        "log10 params.eta",
        "params.subsample",
        "params.max_depth",
        "objective",
    ]
    assert {"StandardScaler", "MinMaxScaler"} <= set(axes["preprocessor"])
    assert all(float(tick.replace("−", "-")) < 0 for tick in axes.pop("log10 params.eta"))
    assert all(float(tick) > 0 for name in list(axes)[1:] for tick in axes[name])
    page.wait_for_selector("text=valid-logloss")
    picture(page, "mlflow-parallel.png")


def test_the_parent_shows_the_best_the_space_file_and_the_report(shown, page):
    best = shown.result["best"]
    page.goto(shown.links["the sweep"])
    page.wait_for_selector("text=Report with figures")
    text = page.inner_text("body")
    assert (
        f"valid-logloss {best['value']:.6g}; on the test rows {best['test']:.6g}: trial "
        f"{best['trial']} with {best['preprocessor']}" in text
    )
    for link, expected in (
        ("Space file", "Lesson 1: tune everything that"),
        (f"Trial {best['trial']}", str(best["value"])),
    ):
        with page.expect_popup() as opened:
            page.get_by_role("link", name=link, exact=True).click()
        opened.value.wait_for_selector(f"text={expected}")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Report with figures").click()
    report = opened.value.frame_locator("iframe").locator("body")
    report.locator(
        ".plot"
    ).first.scroll_into_view_if_needed()  # a figure is drawn when the reader sees it
    report.locator(".js-plotly-plot").first.wait_for()
    assert (
        "Parallel coordinates" in report.inner_text()
        and "Importance of the dimensions" in report.inner_text()
    )
    page.get_by_text("Show more").click()
    page.wait_for_selector(f"text=The best 10 of {TRIALS} trials")
    page.get_by_text("Load more").wait_for()  # of the children's links
    picture(page, "mlflow-parent.png")


def test_sweeps_are_compared_with_each_other(shown, page):
    page.goto(shown.links["all sweeps"])
    (row,) = table(page, "metrics.`best`")
    assert float(row["metrics.`best`"]) == shown.result["best"]["value"]
    assert row["tags.`best.preprocessor`"] == shown.result["best"]["preprocessor"]
    assert row["params.`search.algorithm`"] == "gp" and row["params.`trainer`"].startswith(
        "sweeps.trainers.xgboost:"
    )


def test_a_link_without_a_session_leads_over_the_token(shown, browser):
    context = browser.new_context()
    context.add_init_script(SEEN)
    opened = context.new_page()
    opened.goto(shown.links["trials, best first"])
    opened.get_by_label("Token").fill(shown.url.split("token=")[1])
    opened.get_by_role("button", name="Continue").click()
    table(opened, "metrics.`objective`")
    assert "/mlflow/#/experiments/" in opened.url
    context.close()
