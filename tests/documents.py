"""The Markdown documents of the repository: their blocks of code, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
# Pages that tests write, in which blocks and cells are input that is wrong on purpose.
TABLES_OF_TESTS = ("docs/bad_input.md", "docs/malformed_requests.md", "docs/tampered_bundles.md")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: Path of the document in the repository.
        language: Word after the opening fence.
        text: The code.
    """

    page: str
    language: str
    text: str


@dataclass(frozen=True)
class Document:
    """A Markdown file.

    Attributes:
        path: Path in the repository. For a generated page, `docs/` and the page's path on the site.
        text: The Markdown.
    """

    path: str
    text: str

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of code."""
        return [Block(self.path, language, text) for _, language, text in FENCE.findall(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without blocks of code."""
        return FENCE.sub("", self.text)

    @cached_property
    def links(self) -> list[str]:
        """Targets of links and pictures that are inside the repository."""
        prose = re.sub(r"`[^`\n]*`", "", self.prose)
        targets = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(
            r'(?:src|srcset|href)="([^"]+)"', prose
        )
        return [link for link in targets if "://" not in link and not link.startswith("mailto:")]

    @cached_property
    def anchors(self) -> set[str]:
        """The anchors that a link may name: explicit anchors, and the anchors that GitHub and
        mkdocs form from headings.
        """
        explicit = set(re.findall(r"\{ *#([\w-]+) *\}", self.text))
        headings = re.findall(r"^#+ (.+?)(?: *\{ *#[\w-]+ *\})?$", self.prose, re.MULTILINE)
        return explicit | {
            re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in headings
        }


def written() -> Iterator[Document]:
    """Yield the documents for readers that are files in the repository."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "reports").glob("*.md")]
    for path in sorted(paths):
        yield Document(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def generated() -> Iterator[Document]:
    """Yield the pages that are generated from the code."""
    from docs.generate.pages import PAGES

    for path, page in PAGES.items():
        yield Document(f"docs/{path}", page())


WRITTEN = list(written())
GENERATED = list(generated())
DOCUMENTS = {document.path: document for document in (*WRITTEN, *GENERATED)}
SPACE_FILE = DOCUMENTS["docs/reference/space-file.md"]
COMMAND_LINE = DOCUMENTS["docs/reference/command-line.md"]
# What users read: without the reports of measurements and the tables of tests.
MANUAL = [d for d in WRITTEN if not d.path.startswith("reports/") and d.path not in TABLES_OF_TESTS]
BLOCKS = [block for document in MANUAL for block in document.blocks]


def module_named(block: Block) -> str | None:
    """Return the file name in the first line of a Python block.

    Return None if this line has no file name.
    """
    title = re.match(r"# (\w+\.py)\n", block.text) if block.language == "python" else None
    return title[1] if title else None


def is_space(block: Block) -> bool:
    """Return whether a block is a complete space file."""
    return block.language == "yaml" and {"trainer", "space"} <= set(
        re.findall(r"^(\w+):", block.text, re.MULTILINE)
    )


def block_beginning(first_line: str) -> str:
    """Return the text of the only block of the manual that starts with this line."""
    texts = {block.text for block in BLOCKS if block.text.startswith(first_line + "\n")}
    assert len(texts) == 1, f"{len(texts)} blocks begin with {first_line!r}"
    return texts.pop()


def rows(document: Document) -> list[list[str]]:
    """Return the rows of the tables of a document."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in document.prose.splitlines()
        if line.startswith("|")
    ]


def row_of(document: Document, name: str) -> list[str]:
    """Return the row whose first cell is this name in code, maybe with arguments behind it."""
    matching = [
        row for row in rows(document) if re.match(rf"\[?`{re.escape(name)}(:[^`]*)?`", row[0])
    ]
    assert matching, f"`{name}` has no row in {document.path}"
    return matching[0]
