"""Name, version, folder and extras of the installed package."""

from pathlib import Path

VERSION = "0.1.0"
# Folder of the package `sweeps`. It contains the trainers.
FOLDER = Path(__file__).parents[1]

# On PyPI, the name `sweeps` belongs to Weights & Biases. This project still uses `sweeps` as its
# import name and command.
NAME = "sweeps-ray"


def install_command(extra: str) -> str:
    """Return the command that installs this package with an extra.

    An example is `pip install 'sweeps-ray[EXTRA]'`.
    """
    return f"pip install '{NAME}[{extra}]'"


def extras() -> list[str]:
    """Return the names of the extras of this package; [] if this package is not installed."""
    from importlib import metadata  # takes 30 ms

    try:
        return metadata.metadata(NAME).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []
