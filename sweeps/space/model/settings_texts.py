"""The settings that a space file gives, as texts, for comparisons and for MLflow."""

from collections.abc import Iterator

from sweeps.core.text.secrets import masked
from sweeps.space.parse.nodes import Node

from .space_model import Space

# Keys of the section `data` that change neither the valid rows nor their labels.
SAME_VALID_ROWS = (
    "data.drop",
    "data.rows",
    "data.weight",
    "data.class_weight",
    "data.drop_missing_label",
    "data.drop_duplicates",
    "data.ingest",
)
# Longest text of a setting.
LONGEST = 200


def settings_of(space: Space) -> dict[str, str]:
    """Return the settings of a space by their keys, such as `scheduler.max_t` and `params.eta`.

    A setting is written as in the file, with the overrides applied. The algorithm is the chosen
    one, and the values of variables are settings of their own.
    """
    texts = _settings("", space.tree_with_overrides, depth=2)
    settings = {name: masked(space.public(text)) for name, text in texts}
    settings.pop("name", None)
    settings |= {"search.algorithm": space.search.algorithm, "search.seed": str(space.search.seed)}
    settings |= {f"variables.{name}": value for name, value in space.variables.items()}
    return settings


def _settings(path: str, node: Node, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each setting in a tree.

    A value that is no mapping is a setting. A mapping `depth` levels below the node is a single
    setting. The level `space` does not count.
    """
    if not node.is_map or depth == 0:
        text = node.value if isinstance(node.value, str) else node.show(LONGEST)
        yield path.removeprefix("space."), text
        return
    for key, inner in node.value.items():
        inner_path = f"{path}.{key}" if path else str(key)
        yield from _settings(inner_path, inner, depth if inner_path == "space" else depth - 1)
