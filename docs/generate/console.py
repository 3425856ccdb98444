"""Renew the output of `sweeps validate` and `sweeps plan` that the pages show: `python -m docs.generate.console`.

A block shows some sections of the output. Each section is a line that starts at the left margin, and the indented lines below that line.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.generate.paths import DOCS, ROOT
from sweeps.cli import main

BLOCK = re.compile(r"^```console\n\$ (sweeps (?:validate|plan) [^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@contextlib.contextmanager
def folder_of_examples() -> Iterator[None]:
    """Change to a temporary folder that contains the space files named by the commands on the pages."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "search_spaces").symlink_to(ROOT / "search_spaces")
        text = (DOCS / "get-started.md").read_text(encoding="utf-8")
        (wine,) = re.findall(r"^```yaml\n(name: wine\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
        Path(folder, "wine.yaml").write_text(wine, encoding="utf-8")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def output_of(command: str) -> str:
    """Return what a command prints."""
    printed = io.StringIO()
    with folder_of_examples(), contextlib.redirect_stdout(printed):
        main(shlex.split(command)[1:], standalone_mode=False)
    return printed.getvalue()


def sections(output: str) -> dict[str, str]:
    """Return the sections of an output, keyed by their first word. Blank lines are left out."""
    found: dict[str, str] = {}
    word = ""
    for line in output.splitlines():
        if line and not line.startswith(" "):
            word = line.split()[0]
        if line.strip():
            found[word] = found.get(word, "") + line.rstrip() + "\n"
    return found


def renewed(page: str) -> str:
    """Return a page with the current output of its commands. If a section no longer exists in the output, it is removed from the page."""

    def block(found: re.Match[str]) -> str:
        now = sections(output_of(found[1]))
        shown = "".join(now.get(word, "") for word in sections(found[2]))
        return f"```console\n$ {found[1]}\n{shown}```"

    return BLOCK.sub(block, page)


def pages() -> Iterator[Path]:
    """Yield the paths of the pages that show output of `sweeps validate` or `sweeps plan`."""
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        if BLOCK.search(path.read_text(encoding="utf-8")):
            yield path


if __name__ == "__main__":
    for path in pages():
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(path.relative_to(ROOT))
