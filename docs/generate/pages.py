"""The generated pages, keyed by their path on the site."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docs.generate import (
    command_line,
    errors_page,
    import_graph,
    python_api,
    space_file,
    sweep_files,
    trainers_page,
)

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/space-file.md": space_file.page,
    "reference/command-line.md": command_line.page,
    "reference/python-api.md": python_api.page,
    "reference/trainers.md": trainers_page.page,
    "reference/errors.md": errors_page.page,
    "reference/sweep-files.md": sweep_files.page,
}
# Text that replaces the line `<!-- generated: NAME -->` in a page.
PARTS: Mapping[str, Callable[[], str]] = {
    "folders": lambda: import_graph.folder_table(import_graph.graph())
}
