"""Parse the section `trackers`, which lists the trackers of a sweep and their options."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.core.plugins import plugin_registry
from sweeps.space.parse.nodes import Node
from sweeps.space.parse.section_checks import report_domains
from sweeps.space.yaml.scalars import Plain

KIND = "tracker"
_FORM = (
    'a name, or a mapping of one name to its options, such as {"my_mod:Tracker": {path: '
    "trials.csv}}"
)


@dataclass(frozen=True)
class TrackerSpec:
    """A tracker in the space file.

    Attributes:
        name: Name of a built-in tracker such as `jsonl`, or the `module:attr` of a user's class.
        options: Keyword arguments of a user's class.
    """

    name: str
    options: dict[str, Plain] = field(default_factory=dict, repr=False)  # options may hold a secret


MLFLOW = TrackerSpec("mlflow")
DEFAULT = (MLFLOW,)


def read_trackers(node: Node, roots: Iterable[Path]) -> tuple[TrackerSpec, ...]:
    """Parse the trackers of a space file. This function runs no user code.

    Args:
        node: The section. If the section is null, MLflow is the only tracker.
        roots: Folders to search for the user's modules before `sys.path`.
    """
    if node.value is None:
        return DEFAULT
    if report_domains(node):
        return ()
    if not node.is_list:
        node.wrong(f"must be a list, such as [mlflow, jsonl], got {node.show()}")
        return ()
    specs: list[TrackerSpec] = []
    for child in node.value:
        spec = _read_tracker(child, tuple(roots))
        if spec is not None and spec in specs:
            child.wrong(f"`{spec.name}` is listed twice with the same options")
        elif spec is not None:
            specs.append(spec)
    return tuple(specs)


def _read_tracker(node: Node, roots: tuple[Path, ...]) -> TrackerSpec | None:
    """Parse one tracker. Return None after a problem."""
    name = node.value
    if node.is_map and len(node.value) == 1:
        (name,) = node.value
    if not isinstance(name, str) or not name:
        node.wrong(f"must be {_FORM}, got {node.show()}")
        return None
    options = node.get(name)
    if (fault := plugin_registry.problem(KIND, name, roots)) is not None:
        node.wrong(fault, options.at)
        return None
    if plugin_registry.is_built_in(KIND, name) and options.value not in (None, {}):
        options.wrong_key(f"{name} has no options; write `{name}` alone")
        return None
    if options.value is not None and not (
        options.is_map and all(isinstance(key, str) for key in options.value)
    ):
        options.wrong(f"options must be a mapping with text as keys, got {options.show()}")
        return None
    return TrackerSpec(name, options.plain() or {})
