"""A headless Chromium for the tests of this folder, and pages that have no network but this
machine.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.commands import REPO
from tests.waiting import wait_until

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Chromium finds no host but this machine, so a page that needs the network fails.
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
WAIT = 60_000  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="the browser tests need playwright: pip install -e '.[dev]'"
    )
    if CHROMIUM is None:
        pytest.skip("the browser tests need Chromium, as `apt-get install chromium` brings it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", NO_NETWORK]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def asked_outside() -> list[str]:
    """Return the list of the addresses on other machines that `page` has asked for."""
    return []


@pytest.fixture
def page(browser: Any, asked_outside: Any) -> Iterator[Any]:
    """Return a page of a new browser profile.

    Errors in the page's scripts, and requests to other machines, fail the test.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, color_scheme="light")
    context.set_default_timeout(WAIT)

    def refuse(route: Any) -> None:
        asked_outside.append(route.request.url)
        route.abort()

    context.route(lambda url: not is_local(url), refuse)
    opened, errors = context.new_page(), []
    opened.on("pageerror", lambda e: errors.append(str(e)))
    yield opened
    context.close()
    assert not errors and not asked_outside


def is_local(url: str) -> bool:
    """Return whether the content of an address comes from this machine."""
    parts = urlsplit(url)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname == "127.0.0.1"


@contextlib.contextmanager
def page_server(root: Path) -> Iterator[str]:
    """Run `sweeps ui --no-token` for the sweeps in `root`, and yield the address of the page."""
    typed = [sys.executable, "-m", "sweeps.cli", "ui", "--dir", str(root), "--port", "0"]
    typed.append("--no-token")
    said = root / "said"
    with said.open("w") as log:
        ui = subprocess.Popen(typed, cwd=REPO, stdout=log, stderr=log)
    try:
        wait_until(lambda: "Ctrl-C" in said.read_text() or ui.poll() is not None, 90, "the page")
        url = re.search(r"http://127.0.0.1:\d+", said.read_text())
        assert url is not None, said.read_text()
        yield url[0]
    finally:
        ui.send_signal(signal.SIGTERM)
        assert ui.wait(20) == 0, said.read_text()


def drawn(page: Any, key: str) -> str:
    """Wait until a figure is drawn, and return its selector."""
    selector = f"[data-figure={key}] .js-plotly-plot, [data-figure={key}].js-plotly-plot"
    page.locator(f"[data-figure={key}]").first.scroll_into_view_if_needed()
    page.wait_for_selector(selector)
    return selector


def zoom(page: Any, figure: str) -> None:
    """Drag over the middle of a figure, given its selector."""
    box = page.locator(f"{figure} >> .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.9, steps=5)
    page.mouse.up()
