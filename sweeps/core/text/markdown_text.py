"""Texts for Markdown, which a reader sees as they are. A stranger's name may contain markup."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

# Punctuation that Markdown reads as markup. For some readers, `://` and `www.` begin a link, `~`
# strikes a text out, and `$` begins a formula.
_MARKUP = re.compile(
    r"[\\`*\[\]>|#~$]|:(?=//)|(?<=www)\.|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", re.IGNORECASE
)


def cell(value: Any) -> str:
    """Return a value as text in one line, with its markup escaped.

    The text can be part of a sentence, or a cell of a table.
    """
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKUP.sub(r"\\\g<0>", text)


def code(text: str) -> str:
    """Return a text in one line as code. A `|` in it must still be escaped in a table."""
    line = " ".join(text.split())
    marks = _fence(line, 1)
    space = " " if "`" in (line[:1], line[-1:]) else ""
    return f"{marks}{space}{line}{space}{marks}" if line else ""


def code_block(language: str, text: str) -> str:
    """Return a text of several lines as code."""
    marks = _fence(text, 3)
    return f"{marks}{language}\n{text}\n{marks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of cells that are already escaped; see `cell` and `code`."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _fence(text: str, least: int) -> str:
    """Return at least `least` backticks, and more than the text has in a row."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, 1 + longest)
