"""The keys at the top of a space file: their names, and the name of the sweep."""

from __future__ import annotations

import re
from pathlib import Path

from sweeps.space.parse.nodes import Node
from sweeps.space.parse.section_checks import key_names, report_domains
from sweeps.space.parse.synonyms import our_name, suggest
from sweeps.space.sections.data_models import DataKeys
from sweeps.space.sections.runtime_env_section import KEY
from sweeps.space.sections.search_models import (
    BundleKeys,
    Checkpoints,
    Limits,
    Objective,
    Search,
)
from sweeps.space.sections.search_sections import (
    SEARCH_SECTIONS,
    scheduler_keys,
)
from sweeps.space.sections.trainer_models import RuntimeEnv

TOP = ("name", "trainer", "data", *SEARCH_SECTIONS, "runtime_env", "trackers", "space")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")


# Sections whose keys users may write at the top of the file by mistake.
_HOMES = {
    "data": DataKeys,
    "objective": Objective,
    "search": Search,
    "limits": Limits,
    "checkpoints": Checkpoints,
    "bundle": BundleKeys,
    KEY: RuntimeEnv,
}


def check_keys(root: Node) -> None:
    """Add a problem for each unknown key at the top of the file."""
    for key, child in root.items():
        if key not in TOP:
            child.wrong_key(f"unknown key; {_hint(str(key))}")


def _hint(key: str) -> str:
    """Return the hint of a message about an unknown key at the top of the file."""
    homes = [section for section, model in _HOMES.items() if key in key_names(model)]
    homes += ["scheduler"] * (key in scheduler_keys())
    if our_name("file", key) is None and len(homes) == 1:
        return f"move this key to the section `{homes[0]}`"
    return suggest("file", key, TOP)


def sweep_name(root: Node, path: Path) -> str:
    """Return the sweep's name: the key `name`, or else the file's name without its extension.

    The name of the sweep's folder starts with this name.
    """
    node = root.get("name")
    if node.value is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")[:100] or "sweep"
    is_valid = isinstance(node.value, str) and _NAME.match(node.value)
    if not report_domains(node) and not is_valid:
        text = (
            "must have 1 to 100 characters out of A-Z a-z 0-9 _ - . and must not begin with - or "
            f"., got {node.show()}"
        )
        if isinstance(node.value, (int, float)) and _NAME.match(node.raw):
            text = f"must be text, got {node.show()}; put quotes around it"
        node.wrong(text)
    if node.value == "latest":
        node.wrong("`latest` means the newest sweep in every command; choose another name")
    return str(node.value)
