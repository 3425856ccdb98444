"""The page `/docs` of `sweeps serve` in a headless Chromium that has no network but the server."""

from __future__ import annotations

import os
import shutil
import threading

import pytest
import uvicorn

from sweeps.bundle.manifest import CHECK_ROWS, DATA_FOLDER
from sweeps.serving.app import make_app
from tests.commands import REPO
from tests.serving import served
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture
def server(tmp_path):
    """Serve a bundle with example rows. Yield the URL."""
    bundle = served.bundle()
    (tmp_path / DATA_FOLDER).mkdir(parents=True)
    served.raw(3).to_parquet(tmp_path / DATA_FOLDER / CHECK_ROWS)
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


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_the_form_sends_the_example_and_shows_the_answer(server, width, scheme):
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
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        errors: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        page.goto(server)
        assert page.url == f"{server}/docs" and page.title() == "houses"
        page.click("#send")
        page.wait_for_selector("text=probability_yes")
        assert "200 OK" in page.inner_text("#answer")
        if folder := os.environ.get("SWEEPS_SCREENSHOTS"):
            page.screenshot(path=REPO / folder / f"serve-docs-{width}.png", full_page=True)
        page.fill("#body", '[{"rooms": "x"}]')
        page.click("#send")
        page.wait_for_selector("text=must be a number or null")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert all(url.startswith(server) or url.endswith("/favicon.ico") for url in asked), asked
    assert all("422" in error or "favicon" in error or "404" in error for error in errors), errors
