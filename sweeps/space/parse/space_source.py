"""The source of a space: its text, its tree, and the overrides that change the tree."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.space.yaml.yaml12 import MAX_DEPTH, TOO_DEEP, parse

from .nodes import Mark, Node, Problems


@dataclass(frozen=True)
class SpaceSource:
    """Text from which a space is loaded.

    Attributes:
        path: Absolute path of the space file, or of the script that takes its place.
        text: The text.
        root: The tree of the text.
        base: Folder for relative paths.
        overrides: Overrides that belong to the text.
        functions: Folder of a module with functions that a script passed; None if there is none.
        tables: Tables that a script passed, by their key of the section `data`.
        notes: Messages for the user.
    """

    path: Path
    text: str
    root: Node
    base: Path
    overrides: tuple[str, ...] = ()
    functions: Path | None = None
    tables: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def overridden_tree(root: Node, overrides: Iterable[str], problems: Problems) -> Node:
    """Return the tree of a space file with `--set` overrides.

    Add a problem for each override that is invalid.

    Args:
        root: The tree of the file.
        overrides: Overrides of the form `key.path=YAML value`, in the order to apply them.
        problems: Collects the problems.
    """
    for override in overrides:
        root = _override(root, override, problems)
    return root


def _override(root: Node, override: str, problems: Problems) -> Node:
    """Apply one `--set` override to the tree of nodes, and return the new tree.

    Add a problem and return the same tree if the override is invalid.
    """
    one_line = " ".join(override.split())
    mark = Mark("--set " + (one_line if len(one_line) <= 60 else one_line[:59] + "…"))
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        problems.add(mark, "", "must be key.path=value, such as limits.max_trials=8")
        return root
    if len(parts) > MAX_DEPTH:
        problems.add(mark, "", TOO_DEEP)
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
    part = parts[depth]
    here = ".".join(parts[:depth])  # path of `node`
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
    # A part of the path is text, but a key may also be a number.
    key = next((key for key in inside if str(key) == part), part)
    inside[key] = _put(inside.get(key, Node(None, mark)), parts, depth + 1, value, mark)
    return replace(node, value=inside)
