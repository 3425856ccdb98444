"""Draw the imports between the folders of sweeps: `python -m docs.generate.import_graph` writes
docs/internals/architecture.svg.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from html import escape

from docs.generate.docstrings import summary
from docs.generate.markdown import table
from docs.generate.paths import DOCS, ROOT

FILE = DOCS / "internals" / "architecture.svg"
WIDTH, ROW, BOX_WIDTH, BOX_HEIGHT = 880, 84, 124, 34
Graph = Mapping[str, frozenset[str]]


@functools.cache
def graph() -> Graph:
    """Map each folder of `sweeps` to the other folders that it imports from."""
    folders = sorted(path.name for path in (ROOT / "sweeps").iterdir() if any(path.glob("*.py")))
    return {folder: frozenset(imports(folder, folders)) - {folder} for folder in folders}


def imports(folder: str, folders: list[str]) -> set[str]:
    """Return the folders that the modules of a folder import from."""
    found: set[str] = set()
    for file in (ROOT / "sweeps" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "sweeps":
                found |= {"core" if alias.name == "trial" else alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sweeps."):
                found.add(str(node.module).split(".")[1])
            elif isinstance(node, ast.Import):
                found |= {
                    alias.name.split(".")[1]
                    for alias in node.names
                    if alias.name.startswith("sweeps.")
                }
    return found & set(folders)


def layers(imported: Graph) -> list[list[str]]:
    """Return the folders by layer.

    A folder is one layer above the highest folder that it imports from.
    """
    depth: dict[str, int] = {}

    def of(folder: str) -> int:
        if folder not in depth:
            depth[folder] = 1 + max((of(other) for other in imported[folder]), default=-1)
        return depth[folder]

    rows: list[list[str]] = [[] for _ in range(1 + max(of(folder) for folder in imported))]
    for folder in sorted(imported):
        rows[depth[folder]].append(folder)
    return rows


def reduced(imported: Graph) -> Graph:
    """Return the graph without the arrows from a folder to a folder that it also imports
    indirectly.
    """

    def reached(folder: str) -> set[str]:
        return {other for direct in imported[folder] for other in {direct, *reached(direct)}}

    return {
        folder: frozenset(
            other
            for other in others
            if not any(other in reached(between) for between in others - {other})
        )
        for folder, others in imported.items()
    }


def svg(imported: Graph) -> str:
    """Return the diagram as SVG. An arrow points from a folder to a folder that it imports.

    See `reduced` for the arrows that are left " "out.
    """
    rows = layers(imported)
    height = ROW * len(rows) + 16
    place: dict[str, tuple[float, float]] = {}
    arrows = reduced(imported)
    for depth, row in enumerate(rows):
        y = height - ROW * depth - ROW / 2
        # Sort folders by the mean position of the folders that they import, so that fewer arrows
        # cross.
        if depth:
            row = sorted(
                row,
                key=lambda folder: (
                    sum(place[o][0] for o in arrows[folder]) / len(arrows[folder]),
                    folder,
                ),
            )
        shift = (
            0 if len(row) > 1 else (depth % 3 - 1) * 150
        )  # Shift a row with a single box, so that arrows do not cross the box.
        for i, folder in enumerate(row):
            place[folder] = (WIDTH * (i + 0.5) / len(row) * 0.9 + WIDTH * 0.05 + shift, y)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'font-family="sans-serif" font-size="15">'
        ),
        "<title>The folders of sweeps. An arrow points to a folder that is imported.</title>",
        '<defs><marker id="a" markerWidth="9" markerHeight="9" refX="8" refY="4.5" '
        'orient="auto"><path d="M0 1L8 4.5L0 8" fill="none" '
        'stroke="#8a94a6"/></marker></defs>',
    ]
    for folder in sorted(arrows):
        for other in sorted(arrows[folder]):
            (x1, y1), (x2, y2) = place[folder], place[other]
            lines.append(
                f'<path d="M{x1:.0f} {y1 + BOX_HEIGHT / 2:.0f}C{x1:.0f} {y1 + 50:.0f} {x2:.0f} '
                f"{y2 - 55:.0f} {x2:.0f} "
                f'{y2 - BOX_HEIGHT / 2 - 1:.0f}" fill="none" stroke="#8a94a6" stroke-width="1.4" '
                'marker-end="url(#a)"/>'
            )
    for folder, (x, y) in sorted(place.items()):
        lines.append(
            f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="6" '
            'fill="#e8edff" stroke="#4f63c6"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" '
            f'fill="#1c2540">{escape(folder)}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def folder_table(imported: Graph) -> str:
    """Return a table of the folders, lowest layer first, with the content of each folder and the
    folders that it imports from.
    """
    rows = []
    for folder in (folder for row in layers(imported) for folder in row):
        tree = ast.parse((ROOT / "sweeps" / folder / "__init__.py").read_text(encoding="utf-8"))
        about = summary(ast.get_docstring(tree))
        rows.append(
            (f"`{folder}`", about, ", ".join(f"`{other}`" for other in sorted(imported[folder])))
        )
    return table(("folder", "what it holds", "imports from"), rows)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(svg(graph()), encoding="utf-8")
    print(FILE.relative_to(ROOT))
