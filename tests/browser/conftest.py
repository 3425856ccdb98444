"""A headless Chromium for the tests of this folder."""

from __future__ import annotations

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Chromium finds no host but this machine, so a page that needs the network fails.
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright: pip install -e '.[dev]'")
    if CHROMIUM is None:
        pytest.skip("the browser tests need Chromium, as `apt-get install chromium` brings it")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", NO_NETWORK])
        yield chromium
        chromium.close()
