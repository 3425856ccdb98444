"""The report as one HTML file."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re

from sweeps.core.text.markdown_text import cell
from sweeps.sweep_report.figures import Figure
from sweeps.sweep_report.html_page import to_html

FIGURE = Figure(
    "history", "Best <so> far", {"data": [{"name": "</script><b>"}], "layout": {}}, "of <all>"
)


def test_the_file_needs_no_other_file() -> None:
    page = to_html(
        "made-1",
        "# made-1\n\ntext",
        [FIGURE, Figure("edf", "Distribution", {}, "no ink")],
        "## Files",
    )
    assert (
        page.index("made-1")
        < page.index("Best &lt;so&gt; far")
        < page.index("of &lt;all&gt;")
        < page.index("no ink")
        < page.index("Files")
    )
    packed = re.search(r'id="plotly">([^<]*)<', page)
    assert packed and gzip.decompress(base64.b64decode(packed[1])).startswith(b"/**\n* plotly.js v")
    shown = re.search(r'id="figures">([^<]*)</script>', page)
    assert shown and json.loads(shown[1]) == [FIGURE.plot, {}]
    assert not re.search(r"""(src|href)=|@import|url\(""", page[: page.index('id="plotly"')])
    assert 'name="viewport"' in page and "prefers-color-scheme" in page
    assert page.count('class="plot"') == 1


def test_a_report_without_figures_has_no_scripts() -> None:
    page = to_html("made-1", "# made-1", [], "")
    assert "<script" not in page and "no trial has a value" in page and len(page) < 10_000


def test_the_title_of_the_window_is_escaped_once() -> None:
    name = r"<b>a\b_ &lt; x</b>"
    page = to_html(name, f"# {cell(name)}\n\ntext", [])
    title = re.search("<title>(.*)</title>", page)
    assert title and html.unescape(title[1]) == name
