"""MLflow's pages of a sweep in a headless Chromium.

MLflow's pages alone read the description of a run, so nothing but a browser can tell that its links
are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sweeps.core.trial import Result, State
from sweeps.study.events import ArtifactSaved, SweepEnded
from sweeps.tracking import Destination, MlflowTracker, default_uri
from tests import mlflow_server
from tests.dashboard.sweep_folders import sweep_folder
from tests.ports import free_port
from tests.tracking.tracker_events import START, begin, end, sweep_result, sweep_started, trial
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

# MLflow opens its assistant over a fifth of the page on the first visit.
SEEN = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
REPORT = "# sweep-1\n\n**loss 0.1**: trial 0001\n\n## Space file"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Serve MLflow's pages of a recorded sweep. Yield the address and the tracker."""
    root = tmp_path_factory.mktemp("sweeps-runs") / "runs"
    sweep_folder(root, 3)
    tracker = MlflowTracker(Destination(default_uri(root), root, "made", "sweep-1", START))
    tracker.handle(sweep_started(root))
    for number in range(3):
        tracker.handle(begin(trial(number)))
        tracker.handle(end(number, Result(State.COMPLETE, number / 10)))
    tracker.handle(ArtifactSaved(START, "report.html", "<h1>The report</h1>"))
    tracker.handle(SweepEnded(START + 200, sweep_result(root), trial(1), REPORT))
    assert tracker.close() and tracker.error is None
    port = free_port()
    server = mlflow_server.start(root, port, default_uri(root))
    try:
        wait_until(lambda: mlflow_server.listens(port), 90, "MLflow's server listens")
        yield f"http://127.0.0.1:{port}", tracker
    finally:
        mlflow_server.end(server)


def test_the_page_of_a_sweep_leads_to_its_trials_and_its_report(served: Any, browser: Any) -> None:
    address, tracker = served
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(SEEN)
    page = context.new_page()
    run = f"experiments/{tracker.writer.experiment_id}/runs/{tracker.parent}"
    page.goto(f"{address}/#/{run}")
    page.wait_for_selector("text=Report with figures")
    assert "trial 0001" in page.inner_text("body")
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Report with figures").click()
    opened.value.frame_locator("iframe").locator("text=The report").wait_for()
    with page.expect_popup() as opened:
        page.get_by_role("link", name="All trials, best first").click()
    trials = opened.value
    trials.wait_for_selector("[role=gridcell] >> text=0001")
    names = trials.eval_on_selector_all(
        "[role=gridcell][col-id*='Run Name']",
        """all => all.sort((a, b) => a.closest('[row-index]').getAttribute('row-index')
            - b.closest('[row-index]').getAttribute('row-index')).map(cell => cell.innerText)""",
    )
    assert [name.split()[-1] for name in names] == ["0002", "0001", "0000"]  # acc@5 is to be large
    context.close()
