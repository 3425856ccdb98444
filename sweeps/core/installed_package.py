"""The name that sweeps is installed by, and the older package of Weights & Biases that has the same import name."""

from __future__ import annotations

import os
import sys
import warnings

# On PyPI, `sweeps` is an engine of Weights & Biases. The import name and the command are still `sweeps`.
NAME = "sweeps-ray"
WAY_OUT = f"run `pip uninstall sweeps`, then install {NAME} again"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{NAME}[{extra}]'"


def warn_of_namesake() -> None:
    """Warn whoever imports sweeps if the package of Weights & Biases is installed, too: both have a folder `sweeps`."""
    if (folder := namesake()) is not None:
        what = f"the package `sweeps` of Weights & Biases is installed, too ({folder}), and its files replace those of {NAME}"
        warnings.warn(f"{what}: {WAY_OUT}", stacklevel=4)  # the line that imports sweeps


def namesake() -> str | None:
    """Return the metadata folder of Weights & Biases' `sweeps`; None if it is not installed.

    `importlib.metadata` would find it as well, but takes some 30 ms to import. The names of the folders on `sys.path` take under 1 ms.
    This project was once installed as `sweeps`, too. Only the other package's metadata names Weights & Biases.
    """
    for entry in dict.fromkeys(sys.path):
        try:
            names = os.listdir(entry or os.curdir)
        except OSError:  # a zip archive, or a folder that is not there
            continue
        for name in names:
            if name.startswith("sweeps-") and name.endswith(".dist-info") and _is_theirs(os.path.join(entry, name)):
                return os.path.join(entry, name)
    return None


def _is_theirs(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "METADATA"), encoding="utf-8", errors="replace") as file:
            head = file.read(8192).partition("\n\n")[0].lower()
    except OSError:
        return False
    return "github.com/wandb/" in head or "weights & biases" in head or "weights and biases" in head
