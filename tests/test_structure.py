"""The structure of the code: names of files, classes and tests."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_CHARACTERS = 70  # of the name of a test
# Each plug-in names its classes so.
PLUGIN_CLASSES = {"Options", "Model"}


@functools.cache
def files_below(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@functools.cache
def statements_of(file: Path) -> list[ast.stmt]:
    """Return all statements of a file, those inside of functions and classes too."""
    statements = []
    bodies = [ast.parse(file.read_text()).body]
    while bodies:
        for node in bodies.pop():
            statements.append(node)
            for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    bodies.append(getattr(part, field, []))
    return statements


def place(file: Path, line: int | None = None) -> str:
    """Return a file, and a line of it, as text."""
    name = str(file.relative_to(ROOT))
    return name if line is None else f"{name}:{line}"


def repeated(places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that stand more than once, and where, given names with their places."""
    places_of_name = defaultdict(list)
    for name, where in places:
        places_of_name[name].append(where)
    return {name: where for name, where in places_of_name.items() if len(where) > 1}


def test_names_of_files_stand_once():
    files = [*files_below("sweeps"), *files_below("trainers")]
    names = [(file.name, place(file)) for file in files if not file.name.startswith("__")]
    assert not repeated(names)


def test_names_of_classes_stand_once():
    classes = [
        (node.name, place(file, node.lineno))
        for file in files_below("sweeps")
        for node in statements_of(file)
        if isinstance(node, ast.ClassDef) and node.name not in PLUGIN_CLASSES
    ]
    assert not repeated(classes)


def test_names_of_tests_are_short():
    names = {
        name: place(file)
        for file in files_below("tests")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    too_long = {name: where for name, where in names.items() if len(name) > MOST_CHARACTERS}
    assert not too_long, f"more than {MOST_CHARACTERS} characters"
