"""The page `/docs` of `sweeps serve` in a headless Chromium that has no network but the server."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from sweeps.serving.example import EXAMPLE_FILE
from sweeps.serving.prediction_app import make_app
from tests.serving import served
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """Serve a bundle with example rows. Yield the URL."""
    bundle = served.bundle()
    rows = served.raw(3).to_json(orient="split", index=False, date_format="iso")
    (tmp_path / EXAMPLE_FILE).write_text(rows)
    bundle.path = tmp_path
    running = uvicorn.Server(
        uvicorn.Config(make_app(bundle), port=0, log_config=None, log_level="warning")
    )
    thread = threading.Thread(target=running.run)
    thread.start()
    wait_until(lambda: running.started, 30, "the server")
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join(30)


def test_the_form_sends_the_example_and_shows_the_answer(server: Any) -> None:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install -e '.[dev]'"
    )
    if CHROMIUM is None:
        pytest.skip("the browser tests need Chromium, as `apt-get install chromium` brings it")
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        page.goto(server)
        assert page.url == f"{server}/docs"
        page.click("text=Predict rows")
        page.click("text=Try it out")
        page.click("text=Execute")
        page.wait_for_selector("text=probability_yes")
        browser.close()
    assert all(url.startswith((server, "data:")) for url in asked), asked
    assert not errors
