"""Hooks of mkdocs: add the generated pages, and files of the repository outside `docs/`."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mkdocs.structure.files import File, Files

from docs.generate.pages import PAGES, PARTS
from docs.generate.paths import ROOT

# Files outside `docs/` that the site contains. Their path on the site is their path in the
# repository.
OUTSIDE = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "reports/*.md"),
    *(
        "search_spaces/*.yaml",
        "search_spaces/*.py",
        "search_spaces/tutorials/*.yaml",
        "search_spaces/tutorials/*.py",
    ),
)
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    for pattern in OUTSIDE:
        for file in sorted(ROOT.glob(pattern)):
            files.append(
                File.generated(config, file.relative_to(ROOT).as_posix(), abs_src_path=str(file))
            )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Insert the generated parts, and replace links between files of the repository by links
    between pages of the site.
    """
    for name, part in PARTS.items():
        markdown = markdown.replace(f"<!-- generated: {name} -->", part())
    source = page.file.src_uri
    outside = not (ROOT / "docs" / source).exists() and source not in PAGES

    def site_link(found: re.Match[str]) -> str:
        place = posixpath.dirname(source if outside else f"docs/{source}")
        target = posixpath.normpath(posixpath.join(place, found[2]))
        on_site = target.removeprefix("docs/")
        if files.get_file_from_path(on_site) is None:
            return found[0]
        return found[1] + posixpath.relpath(on_site, posixpath.dirname(source) or ".") + found[3]

    return LINK.sub(site_link, markdown)
