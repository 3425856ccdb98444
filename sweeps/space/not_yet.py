"""What a space file may ask for and the engine does not do yet: refused in one line, and never taken silently.

An entry goes when the engine has learnt it.
"""

from __future__ import annotations

from sweeps.space.checks import Problems
from sweeps.space.nodes import Node

# `key` for a key that is given, `key=value` for one value of it.
NOT_YET: tuple[str, ...] = ("scheduler.name=pbt",)


def refuse(root: Node, problems: Problems) -> None:
    """Note what of `NOT_YET` a file asks for."""
    for entry in NOT_YET:
        path, _, value = entry.partition("=")
        node: Node | None = root
        for part in path.split("."):
            inside = node.value if node else None
            if isinstance(inside, list):
                node = inside[int(part)] if part.isdigit() and int(part) < len(inside) else None
            else:
                node = inside.get(part) if isinstance(inside, dict) else None
        if node is None or node.value is None or (value and node.value != value):
            continue
        what = "several objectives are" if path == "objective.1" else f"{value} is" if value else "is"
        problems.add(node.mark, path.partition(".1")[0], f"{what} not there yet")
