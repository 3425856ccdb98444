"""Read the data file of a built-in trainer.

For example, `trainers/xgboost.yaml` describes `trainers/xgboost.py`. The file has the keys of a
`TRAINER` literal; see `sweeps.space.sections.trainer_definition`. If `metrics` is a list, the
trainer reports these metrics for each task, besides the usual ones of the task on valid.
"""

import functools
from pathlib import Path
from typing import Any

from sweeps.core import installed_package
from sweeps.core.label_columns import SEVERAL_COLUMNS
from sweeps.core.metrics import USUAL

PACKAGE = "sweeps.trainers"
FOLDER = installed_package.FOLDER / "trainers"


def file_of(module: str) -> Path | None:
    """Return the data file of a module; None if the module is no built-in trainer."""
    package, _, name = module.rpartition(".")
    file = FOLDER / f"{name}.yaml"
    return file if package == PACKAGE and file.is_file() else None


@functools.cache
def read(trainer: str) -> dict[str, Any]:
    """Return the content of a built-in trainer's data file. The caller must not change it."""
    import yaml

    # The loader in C is ten times as fast. Only a build of PyYAML without libyaml lacks it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (FOLDER / f"{trainer}.yaml").read_bytes()
    content: dict[str, Any] = yaml.load(text, loader)
    own_metrics = content.get("metrics")
    if isinstance(own_metrics, list):
        content["metrics"] = {
            task: [*(f"valid-{name}" for name in names), *own_metrics]
            for task, names in USUAL.items()
            if task not in SEVERAL_COLUMNS or content.get("several_labels")
        }
    return content
