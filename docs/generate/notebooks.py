"""Run the example notebooks, and store their outputs in them: `python -m docs.generate.notebooks
[NAME ...]`.

Each notebook runs in an empty folder, and writes the files that it needs itself. Plotly's figures
are stored as JSON, which JupyterLab and VS Code draw; Plotly's JavaScript (5 MB) is not stored.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from docs.generate.paths import DOCS, ROOT

NOTEBOOKS = tuple(sorted((DOCS / "notebooks").glob("*.ipynb")))
# Longest time of one cell, in seconds.
TIMEOUT = 600


def executed(file: Path, folder: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of its cells.

    The first cell that raises an error ends the run with an error.

    Args:
        file: The notebook.
        folder: Working directory of the notebook.
    """
    notebook = nbformat.read(file, as_version=4)
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PLOTLY_RENDERER")}
    os.environ |= {"PYTHONPATH": str(ROOT), "PLOTLY_RENDERER": "plotly_mimetype"}
    try:
        client = NotebookClient(
            notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False
        )
        client.execute(cwd=str(folder))
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    notebook.metadata.pop("language_info", None)
    for data in (
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ):
        if "text/html" in data:
            data.pop("text/plain", None)  # It is long, and no notebook shows it.
            data["text/html"] = data["text/html"].replace(f"{folder.resolve()}/", "")
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the kinds of the outputs of each code cell, such as `text/html` or `stderr`: the
    richest format of each output.
    """
    return [
        [_kind(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _kind(output: nbformat.NotebookNode) -> str:
    if output.output_type in ("stream", "error"):
        return str(output.get("name") or output.ename)
    formats = ("application/vnd.plotly.v1+json", "text/html", "text/plain")
    return next(name for name in formats if name in output.data)


if __name__ == "__main__":
    for file in NOTEBOOKS:
        if not sys.argv[1:] or file.stem in sys.argv[1:]:
            with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
                nbformat.write(executed(file, Path(folder)), file)
            print(file.relative_to(ROOT))
