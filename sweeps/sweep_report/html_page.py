"""The report as one HTML file that needs no other file and no network.

It contains the text, the figures and Plotly, compressed.
"""

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from .figures import Figure

STATIC = Path(__file__).parent / "static"
# Figures that take the whole width of the page.
WIDE = ("history", "curves", "parallel", "timeline")


def to_html(title: str, results: str, figures: Sequence[Figure], appendix: str = "") -> str:
    """Return a report as one HTML file.

    Args:
        title: Title of the window.
        results: The part of the report above the figures, in Markdown.
        figures: The figures between the two parts.
        appendix: The part of the report below the figures, in Markdown.
    """
    from jinja2 import Environment, FileSystemLoader
    from markdown_it import MarkdownIt  # no extra dependency, because Rich needs it too

    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    plots = json.dumps([figure.plot for figure in figures], separators=(",", ":"), allow_nan=False)
    templates = Environment(loader=FileSystemLoader(STATIC), autoescape=True, trim_blocks=True)
    return templates.get_template("report.html").render(
        title=title,
        files={file.name: file.read_text() for file in STATIC.iterdir()},
        results=render(results),
        figures=figures,
        wide=WIDE,
        appendix=render(appendix),
        plots=plots.replace("<", "\\u003c"),  # `<` could end the script element
        plotly=compressed_plotly() if figures else "",
    )


def plotly_file() -> Path:
    """Return the JavaScript file of Plotly, which is part of Plotly's Python package."""
    from importlib.resources import files

    return Path(str(files("plotly"))) / "package_data" / "plotly.min.js"


def compressed_plotly() -> str:
    """Return Plotly's JavaScript as Base64 text, compressed with gzip."""
    packed = gzip.compress(plotly_file().read_bytes(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode()
