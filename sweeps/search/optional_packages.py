"""What an algorithm needs that is not always installed; looked up without importing it."""

from __future__ import annotations

import importlib.util

from sweeps.core.errors import Problem
from sweeps.core.installed_package import install

# The package that an algorithm needs, which is also the extra of ours that installs it.
NEEDED = {"cmaes": "cmaes"}


def missing(algorithm: str) -> list[Problem]:
    """What to say of an algorithm that cannot run here; [] if it can."""
    package = NEEDED.get(algorithm)
    if package is None or importlib.util.find_spec(package) is not None:
        return []
    text = f"{algorithm} needs the package `{package}`, which is not installed: {install(package)}"
    return [Problem("search.algorithm", text)]
