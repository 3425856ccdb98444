"""Name of the installed package, and a check for the package of Weights & Biases that has the same import name."""

from __future__ import annotations

import os
import sys
import warnings

# On PyPI, the name `sweeps` belongs to Weights & Biases. This project still uses `sweeps` as its
# import name and command.
NAME = "sweeps-ray"
WAY_OUT = f"run `pip uninstall sweeps`, then install {NAME} again"


def install(extra: str) -> str:
    """Return the command that installs this package with an extra, such as `pip install 'sweeps-ray[EXTRA]'`."""
    return f"pip install '{NAME}[{extra}]'"


def extras() -> list[str]:
    """Return the names of the extras of this package; [] if this package is not installed.

    The import takes 30 ms.
    """
    from importlib import metadata

    try:
        return metadata.metadata(NAME).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def warn_of_namesake() -> None:
    """Warn if the package `sweeps` of Weights & Biases is installed too.

    Both packages install their modules into a folder `sweeps`.
    """
    if (folder := namesake()) is not None:
        what = (
            f"the package `sweeps` of Weights & Biases is installed, too ({folder}), and its "
            f"files replace the files of {NAME}"
        )
        warnings.warn(f"{what}: {WAY_OUT}", stacklevel=4)  # points to the line that imports sweeps


def namesake() -> str | None:
    """Return the metadata folder of the package `sweeps` of Weights & Biases; None if that package is not installed.

    This function lists the folders on `sys.path`, which takes under 1 ms. `importlib.metadata`
    would take 30 ms to import.

    A folder belongs to that package if its metadata names Weights & Biases.
    """
    for entry in dict.fromkeys(sys.path):
        try:
            names = os.listdir(entry or os.curdir)
        except OSError:  # a zip archive, or a folder that does not exist
            continue
        for name in names:
            if (
                name.startswith("sweeps-")
                and name.endswith(".dist-info")
                and _is_theirs(os.path.join(entry, name))
            ):
                return os.path.join(entry, name)
    return None


def _is_theirs(folder: str) -> bool:
    """Return whether a metadata folder belongs to the package of Weights & Biases."""
    try:
        with open(os.path.join(folder, "METADATA"), encoding="utf-8", errors="replace") as file:
            head = file.read(8192).partition("\n\n")[0].lower()
    except OSError:
        return False
    return "github.com/wandb/" in head or "weights & biases" in head or "weights and biases" in head
