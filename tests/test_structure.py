"""The structure of the code: imports, sizes and names of files, and names in the code."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_LINES = 400
MOST_CHARACTERS = 70  # of the name of a test
# Most of these words say that something happened to a value, and not what the value is.
FORBIDDEN = ("told", "begun", "judged", "going", "made", "found", "news", "verdict", "book")
# `not_found` is a state of a file, as in `FileNotFoundError`.
FORBIDDEN_IDENTIFIER = re.compile(
    rf"\b(?:\w*_)?(?:{'|'.join(FORBIDDEN)})(?<!not_found)(?:_\w*)?\b", re.IGNORECASE
)
TEXT_OR_COMMENT = re.compile(
    r"""\"\"\".*?\"\"\"|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.DOTALL
)
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


def module_files() -> dict[str, Path]:
    """Return the file of each module of `sweeps` by the module's name."""
    modules = {}
    for file in [*files_below("sweeps"), *files_below("trainers")]:
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        modules[name if name.startswith("sweeps") else f"sweeps.{name}"] = file
    return modules


def package_of(file: Path) -> str:
    """Return the name of the package that contains a file of `sweeps` or `trainers`."""
    name = ".".join(file.relative_to(ROOT).parent.parts)
    return name if name.startswith("sweeps") else f"sweeps.{name}"


def imports_of(file: Path, modules: Iterable[str]) -> dict[str, int]:
    """Return the modules that a file imports, with the line of the first import of each.

    Imports inside functions and under `TYPE_CHECKING` count too.

    Args:
        file: The file.
        modules: Names of the modules to look for.
    """
    lines: dict[str, int] = {}
    for node in statements_of(file):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{place(file, node.lineno)}: `..` leads out of the folder"
            folder = package_of(file) if node.level else None
            module = ".".join(name for name in (folder, node.module) if name)
            for alias in node.names:
                submodule = f"{module}.{alias.name}"
                names.append(submodule if submodule in modules else module)
        for name in names:
            if name in modules:
                lines.setdefault(name, node.lineno)
    return lines


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = module_files()
    imports = {name: imports_of(file, modules) for name, file in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = error.args[1]  # Each module is imported by the next one.
        steps = [
            f"{place(modules[importer], imports[importer][imported])} imports {imported}"
            for imported, importer in itertools.pairwise(circle)
        ]
        pytest.fail("\n".join(["these modules import each other:", *steps]))


@pytest.mark.parametrize("folder", ["sweeps", "trainers"])
def test_no_file_is_too_long(folder: str) -> None:
    lengths = {place(file): len(file.read_text().splitlines()) for file in files_below(folder)}
    too_long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert not too_long, f"more than {MOST_LINES} lines"


def repeated(places: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that stand more than once, and where, given names with their places."""
    places_of_name = defaultdict(list)
    for name, where in places:
        places_of_name[name].append(where)
    return {name: where for name, where in places_of_name.items() if len(where) > 1}


def test_names_of_files_stand_once() -> None:
    files = [*files_below("sweeps"), *files_below("trainers")]
    names = [(file.name, place(file)) for file in files if not file.name.startswith("__")]
    assert not repeated(names)


def test_names_of_classes_stand_once() -> None:
    classes = [
        (node.name, place(file, node.lineno))
        for file in files_below("sweeps")
        for node in statements_of(file)
        if isinstance(node, ast.ClassDef) and node.name not in PLUGIN_CLASSES
    ]
    assert not repeated(classes)


def test_names_of_tests_are_short() -> None:
    names = {
        name: place(file)
        for file in files_below("tests")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    too_long = {name: where for name, where in names.items() if len(name) > MOST_CHARACTERS}
    assert not too_long, f"more than {MOST_CHARACTERS} characters"


def forbidden_identifiers(code: str) -> list[str]:
    """Return the identifiers that have a forbidden word. Texts and comments are ignored."""
    bare = TEXT_OR_COMMENT.sub(" ", code)
    names = set(FORBIDDEN_IDENTIFIER.findall(bare))
    return sorted(names)


@pytest.mark.parametrize("folder", ["sweeps", "trainers", "tests"])
def test_identifiers_say_what_they_hold(folder: str) -> None:
    wrong = []
    for file in files_below(folder):
        if names := forbidden_identifiers(file.read_text()):
            wrong.append(f"{place(file)}: {', '.join(names)}")
    assert not wrong, "choose nouns that say what these hold:\n" + "\n".join(wrong)
