"""The report as one HTML file that needs no other file and no network: the text, the figures and Plotly, compressed."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

from sweeps.sweep_report.figures import Figure

STATIC = Path(__file__).parent / "static"
# Figures that take the whole width of the page.
WIDE = ("history", "curves", "parallel", "timeline")
NO_SCRIPT = '<noscript><p class="note">The figures need JavaScript.</p></noscript>'


def to_html(results: str, figures: Sequence[Figure] | None = None, appendix: str = "") -> str:
    """Return a report as one HTML file.

    Args:
        results: The part of the report above the figures, in Markdown.
        figures: The figures between the two parts; None for a report that never has figures.
        appendix: The part of the report below the figures, in Markdown.
    """
    from markdown_it import MarkdownIt  # no extra dependency, because Rich needs it too

    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    heading = re.sub(r"\\(.)", r"\1", results.split("\n", 1)[0].removeprefix("# "))
    title = html.escape(html.unescape(heading))
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><title>{title}</title>'
    )
    head += f"<style>{(STATIC / 'look.css').read_text()}</style>"
    body = [render(results), *(() if figures is None else _figures(figures)), render(appendix)]
    body += [*_scripts(figures)] if figures else []
    switch = '<button class="theme" type="button">Dark mode</button>\n' if figures else ""
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body>\n{switch}{chr(10).join(body)}\n</body></html>\n"
    )


def _figures(figures: Sequence[Figure]) -> list[str]:
    """Return places for the figures, with titles and captions."""
    if not figures:
        return ['<p class="note">There are no figures, because no trial has a value.</p>']
    places = []
    for at, figure in enumerate(figures):
        wide = ' class="wide"' if figure.key in WIDE else ""
        plot = f'<div class="plot" data-figure="{at}"></div>' if figure.plot else ""
        note = f'<p class="note">{html.escape(figure.note)}</p>'
        places.append(f"<section{wide}><h2>{html.escape(figure.title)}</h2>{plot}{note}</section>")
    return [NO_SCRIPT, '<div class="figures">', *places, "</div>"]


def _scripts(figures: Sequence[Figure]) -> list[str]:
    # `<` could end the script element.
    plots = json.dumps(
        [figure.plot for figure in figures], separators=(",", ":"), allow_nan=False
    ).replace("<", "\\u003c")
    return [
        f'<script type="application/json" id="figures">{plots}</script>',
        f'<script type="text/plain" id="plotly">{compressed_plotly()}</script>',
        *(
            f"<script>\n{(STATIC / name).read_text()}</script>"
            for name in ("figures.js", "report.js")
        ),
    ]


def plotly_file() -> Path:
    """Return the JavaScript file of Plotly, which is part of Plotly's Python package."""
    import importlib.util

    found = importlib.util.find_spec("plotly")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "package_data" / "plotly.min.js"


def compressed_plotly() -> str:
    """Return Plotly's JavaScript as Base64 text, compressed with gzip."""
    return base64.b64encode(
        gzip.compress(plotly_file().read_bytes(), compresslevel=6, mtime=0)
    ).decode()
