"""The built documentation site in a headless Chromium: the search works, nothing is loaded from
elsewhere, no page is too wide.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import REPO

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

EXTERNAL = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"'](?:https?:)?//[^\"']+", re.IGNORECASE
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the site as `make docs` does. If SWEEPS_SITE names a folder, the site is there
    already.
    """
    if built := os.environ.get("SWEEPS_SITE"):
        return Path(REPO, built)
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=350,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Any) -> None:
    for page in site.rglob("*.html"):
        assert not EXTERNAL.findall(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\([\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet
        )


def test_the_search_works_from_files(site: Any, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(f"file://{site}/index.html")
    page.click(".md-search__input")
    page.keyboard.type("grace_period")  # the theme listens for keys
    link = page.wait_for_selector(".md-search-result__item a", timeout=30_000)
    assert link is not None and link.get_attribute("href")


def test_no_page_is_wider_than_the_window(site: Any, browser: Any) -> None:
    width = 400
    page = browser.new_page(viewport={"width": width, "height": 900})
    for file in sorted(site.rglob("*.html")):
        page.goto(f"file://{file}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file.relative_to(
            site
        )
