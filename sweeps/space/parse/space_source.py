"""Read a search space, which is a file, a dict or a `Space`, and apply overrides to its tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.space.model.space_model import Space
from sweeps.space.parse.nodes import Mark, Node, SpaceSource
from sweeps.space.parse.problems import Problems
from sweeps.space.python.passed_space import PLACE, read_passed
from sweeps.space.sections.search_sections import SEARCH_SECTIONS
from sweeps.space.yaml.yaml12 import MAX_DEPTH, parse, read_text

TOP = ("name", "trainer", "data", *SEARCH_SECTIONS, "runtime_env", "trackers", "space")


def source_of(space: Any) -> SpaceSource:
    """Return the text of a space that was given to `load`, and its tree.

    Raises:
        InputError: The file cannot be read, is not YAML, or is not a mapping.
    """
    if isinstance(space, Mapping):
        return read_passed(space)
    if isinstance(space, Space):
        return SpaceSource(
            path=space.path,
            text=space.text,
            root=space.tree,
            base=space.data.base,
            overrides=space.overrides,
            functions=space.functions,
            tables=space.tables,
            notes=space.notes,
        )
    if isinstance(space, SpaceSource):
        return space
    if not isinstance(space, (str, os.PathLike)):
        raise InputError(
            PLACE,
            "must be the path of a space file, a dict or a sweeps.Space, or a table and `label=`, "
            f"got {type(space).__name__}",
        )
    path = Path(space).absolute()
    text = read_text(Path(space), str(space))
    tree = parse(text, str(space))
    if not tree.is_map:
        rule = f"a space file must be a mapping with keys {', '.join(TOP)}"
        raise InputError(str(tree.mark), f"{rule}, got {tree.show()}")
    return SpaceSource(path, text, tree, path.parent)


def tree_of(space: Space) -> Node:
    """Return the tree of a space's text, with the overrides applied."""
    problems = Problems()
    root = space.tree
    for override in space.overrides:
        root = override_tree(root, override, problems)
    return root


def override_tree(root: Node, override: str, problems: Problems) -> Node:
    """Apply one `--set` override to the tree of nodes, and return the new tree.

    Add a problem and return the same tree if the override is invalid.
    """
    shown = " ".join(override.split())
    mark = Mark("--set " + (shown if len(shown) <= 60 else shown[:59] + "…"))
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        problems.add(mark, "", "must be key.path=value, such as limits.max_trials=8")
        return root
    if len(parts) > MAX_DEPTH:
        problems.add(
            mark, "", f"the values are nested too deep; at most {MAX_DEPTH} levels are allowed"
        )
        return root
    try:
        value = parse(text, mark.source, override=True)
    except InputError as e:
        problems.extend(e.problems)
        return root
    try:
        return _put(root, parts, 0, value, mark)
    except LookupError as e:
        problems.add(mark, "", str(e.args[0]))
        return root


def _put(node: Node, parts: list[str], depth: int, value: Node, mark: Mark) -> Node:
    """Return a copy of the tree in which `value` is at the path `parts`.

    The nodes on the path are copied, because a YAML alias puts the same node at several places.

    Raises:
        LookupError: The path leads through a value that has no such key or index. The message says
            which.
    """
    if depth == len(parts):
        return value
    part, here = parts[depth], ".".join(parts[:depth])
    if node.is_list:
        if not part.isdigit() or int(part) >= len(node.value):
            raise LookupError(
                f"{here} is a list of {len(node.value)} values, so `{part}` must be an index from "
                f"0 to {len(node.value) - 1}"
            )
        items = list(node.value)
        items[int(part)] = _put(items[int(part)], parts, depth + 1, value, mark)
        return replace(node, value=items)
    if node.value is not None and not node.is_map:
        raise LookupError(
            f"{here} is {node.show()}, which has no key `{part}`; set all of {here} instead"
        )
    inside = dict(node.value or {})
    key = next((k for k in inside if str(k) == part), part)
    inside[key] = _put(inside.get(key, Node(None, mark)), parts, depth + 1, value, mark)
    return replace(node, value=inside)
