"""Where a sweep's code came from and what it ran on: git commit, versions of packages."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path

PACKAGES = ("sweeps", "ray", "torch", "xgboost", "lightgbm", "optuna", "mlflow", "pandas", "numpy", "scikit-learn", "pyarrow")


def git(folder: Path) -> dict[str, str]:
    """The commit that a folder stands at and whether it has changes since; empty outside a repository."""

    def ask(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if not commit:
        return {}
    return {"commit": commit, "dirty": "yes" if ask("status", "--porcelain") else "no"}


def versions() -> dict[str, str]:
    """Python's version and those of the packages that decide a result, where installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
