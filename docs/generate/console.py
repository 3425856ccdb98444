"""Renew the output of `sweeps validate` and `sweeps plan` that the pages show: `python -m
docs.generate.console`.

A block shows some sections of the output. Each section is a line that starts at the left margin,
and the indented lines below that line.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.generate.paths import DOCS, ROOT
from sweeps.cli import main

BLOCK = re.compile(
    r"^```console\n\$ (sweeps (?:validate|plan) [^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
SPACE = re.compile(r"^```yaml\n(name: ([\w-]+)\n.*?)^```$", re.DOTALL | re.MULTILINE)
MODULE = re.compile(r"^```python\n(# (\w+\.py)\n.*?)^```$", re.DOTALL | re.MULTILINE)


@functools.cache
def examples() -> Mapping[str, str]:
    """Return the space files and the modules that the pages show, keyed by file name.

    A space file is named after its `name`.
    """
    found: dict[str, str] = {}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        found |= {f"{name}.yaml": block for block, name in SPACE.findall(text)}
        found |= {name: block for block, name in MODULE.findall(text)}
    return found


@contextlib.contextmanager
def folder_of_examples() -> Iterator[None]:
    """Change to a temporary folder that contains `search_spaces/`, and the space files and modules
    that the pages show.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "search_spaces").symlink_to(ROOT / "search_spaces")
        for name, text in examples().items():
            Path(folder, name).write_text(text, encoding="utf-8")
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
    """Return a page with the current output of its commands.

    If a section no longer exists in the output, it is removed from the page.
    """

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
