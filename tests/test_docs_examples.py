"""Space files, Python and JSON that the documentation shows can be used."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.space import load
from tests.documents import (
    BLOCKS,
    ROOT,
    Block,
    block_beginning,
    is_space,
    module_named,
)
from tests.shipped_spaces import load_or_skip

SPACES = sorted((ROOT / "search_spaces").rglob("*.y*ml"))
# What these blocks show runs with other tools, or is not complete on purpose.
FOREIGN = ("docs/coming-from/",)


def spaces() -> list[Any]:
    return [
        pytest.param(block, id=f"{block.page}: {block.text.split()[1]}")
        for block in BLOCKS
        if is_space(block)
    ]


def write_modules(folder: Any, page: str) -> None:
    """Write the modules beside the space files that ship, and those that the manual shows, of which
    those of this page come last.
    """
    for module in (ROOT / "search_spaces").glob("*.py"):
        (folder / module.name).write_text(module.read_text())
    for block in sorted(BLOCKS, key=lambda block: block.page == page):
        if (name := module_named(block)) is not None:
            (folder / name).write_text(block.text)


@pytest.mark.parametrize("block", spaces())
def test_every_space_file_shown_loads(block: Any, tmp_path: Path) -> None:
    write_modules(tmp_path, block.page)
    file = tmp_path / "space.yaml"
    file.write_text(block.text)
    assert load_or_skip(file).shapes


def test_there_are_space_files_to_check() -> None:
    assert len(spaces()) >= 15


def test_the_quickstart_of_the_tutorial_is_the_one_that_ships(tmp_path: Path) -> None:
    for name in ("quickstart", "digits-mlp"):
        (tmp_path / "shown.yaml").write_text(block_beginning(f"name: {name}"))
        shown = load(tmp_path / "shown.yaml")
        ships = load(ROOT / "search_spaces" / f"{name.replace('-', '_')}.yaml")
        assert shown.scheduler == ships.scheduler and shown.limits == ships.limits
        assert {d.name: d for d in shown.dimensions}.items() <= {
            d.name: d for d in ships.dimensions
        }.items()


@pytest.mark.parametrize(
    "block",
    [b for b in BLOCKS if b.language == "python" and not b.page.startswith(FOREIGN)],
    ids=lambda b: b.page,
)
def test_every_piece_of_python_compiles(block: Block) -> None:
    tree = compile(block.text, block.page, "exec", ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):  # public names that are used exist
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "sweeps"
        ):
            assert node.attr in sweeps.__all__


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "json"], ids=lambda b: b.page)
def test_every_piece_of_json_parses(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("file", SPACES, ids=lambda f: f.stem)
def test_every_shipped_space_validates(file: Any) -> None:
    assert load_or_skip(file).shapes


def test_spaces_are_shipped() -> None:
    assert len(SPACES) >= 4
