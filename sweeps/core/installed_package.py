"""Name and extras of the installed package."""

from __future__ import annotations

# On PyPI, the name `sweeps` belongs to Weights & Biases. This project still uses `sweeps` as its
# import name and command.
NAME = "sweeps-ray"


def install(extra: str) -> str:
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
