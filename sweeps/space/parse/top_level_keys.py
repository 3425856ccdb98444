"""The keys at the top of a space file: their names, and the name of the sweep."""

import re
from pathlib import Path

from sweeps.space.sections.data_models import DataKeys
from sweeps.space.sections.runtime_env_section import KEY
from sweeps.space.sections.search_models import BundleKeys, Checkpoints, Limits, Objective, Search
from sweeps.space.sections.search_sections import scheduler_keys
from sweeps.space.sections.trainer_models import RuntimeEnv

from .key_suggestions import our_name, suggest
from .nodes import Node
from .section_checks import key_names, report_domains

# Descriptions of the top-level keys, which the reference page of the space file shows as well.
TOP_LEVEL = {
    "name": "The name of the sweep. The sweep's folder and its MLflow experiment also have this "
    "name. The default is the file's name.",
    "trainer": "The training loop: the name of a built-in trainer, or a mapping that names your "
    "own loop. A grid or choice of several trainers is a dimension.",
    "data": "The data and its splits. Leave this section out if your own loop reads its own data.",
    "objective": "The metric to optimize: one mapping, or a list of mappings for several "
    "objectives.",
    "constraints": "Conditions that the metrics of a feasible trial satisfy, "
    'such as `{latency_ms: "<= 5"}`.',
    "search": "The sampler, its seed, and configurations to start with.",
    "scheduler": "The rule that stops trials early. A step is one report of the loop.",
    "repeats": "How often each configuration is trained. Each time, the trial has another seed.",
    "limits": "Limits of trials, time, cost and failures. Some limits end the sweep, others end a "
    "trial.",
    "checkpoints": "The rules that decide which checkpoints of ended trials are kept.",
    "bundle": "The model that the sweep exports at its end.",
    "runtime_env": "The environment of the workers: variables, packages, modules, an image. Ray "
    "sets it up.",
    "trackers": "The trackers that record the sweep. The default is `[mlflow]`.",
    "space": "The dimensions to tune, and constants: the preprocessor, the workers (`scaling`), "
    "and the trainer's parameters (`params`).",
}
TOP = tuple(TOP_LEVEL)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")


# Sections whose keys users may write at the top of the file by mistake.
_SECTION_MODELS = {
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
    sections = [name for name, model in _SECTION_MODELS.items() if key in key_names(model)]
    if key in scheduler_keys():
        sections.append("scheduler")
    if our_name("file", key) is None and len(sections) == 1:
        return f"move this key to the section `{sections[0]}`"
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
