"""Where a sweep's code and data came from and what it ran on: git commit and what differs from it, versions of packages, seed."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from sweeps import __version__
from sweeps.core.atomic_files import write_text
from sweeps.core.json_files import read_json
from sweeps.core.sweep_folder import PROVENANCE

PACKAGES = ("ray", "torch", "xgboost", "lightgbm", "optuna", "mlflow", "pandas", "numpy", "scikit-learn", "pyarrow")
# A diff is cut here, in bytes: it is to tell what was edited, not to carry data.
MOST_DIFF = 2**20
MOST_NAMES = 200


def git(folder: Path) -> dict[str, str]:
    """The commit that a folder stands at and whether it has changes since; empty outside a repository."""

    commit = _ask(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    return {"commit": commit.strip(), "dirty": "yes" if _ask(folder, "status", "--porcelain") else "no"}


def _ask(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def diff(folder: Path) -> str:
    """What differs from the commit that a folder stands at, and the names of files that git does not know; empty if nothing does."""
    changed = (_ask(folder, "diff", "HEAD", "--no-color", "--no-ext-diff") or "").encode()
    cut = f"\n# cut here, at {MOST_DIFF} bytes\n" if len(changed) > MOST_DIFF else ""
    unknown = (_ask(folder, "ls-files", "--others", "--exclude-standard") or "").splitlines()[:MOST_NAMES]
    return changed[:MOST_DIFF].decode(errors="ignore") + cut + "".join(f"# not in git: {name}\n" for name in unknown)


def record(sweep: Path, base: Path, seed: int, fingerprint: str, now: float) -> dict[str, str]:
    """Write into a sweep's folder what a driver runs on; the files, by name.

    Args:
        sweep: its folder.
        base: the folder of the space file.
        seed: the sweep's.
        fingerprint: of its data.
        now: seconds since the epoch.
    """
    before = read_entries(sweep)
    made, files = git(base), {}
    began = datetime.datetime.fromtimestamp(now).astimezone().isoformat(timespec="seconds")
    entry: dict[str, Any] = {"began": began, "seed": seed, "data_fingerprint": fingerprint, "git": made, "versions": versions()}
    entry["platform"] = platform.platform()
    if made and (text := diff(base)):
        entry["diff"] = f"code-{len(before) + 1}.diff" if before else "code.diff"
        files[entry["diff"]] = text
    files[PROVENANCE] = json.dumps([*before, entry], indent=1) + "\n"
    for name, text in files.items():
        write_text(sweep / name, text)
    return files


def last_git_state(sweep: Path) -> dict[str, str]:
    """What `git` said when a sweep's last driver began; empty if that is not known."""
    found = read_entries(sweep)[-1:]
    git = found[0].get("git") if found else None
    return git if isinstance(git, dict) and all(isinstance(git.get(key), str) for key in ("commit", "dirty")) else {}


def read_entries(sweep: Path) -> list[dict[str, Any]]:
    """What is kept of a sweep's drivers, the first first; none if that cannot be read."""
    found = read_json(sweep / PROVENANCE)
    return found if isinstance(found, list) and all(isinstance(entry, dict) for entry in found) else []


def versions() -> dict[str, str]:
    """Python's version and those of the packages that decide a result, where installed."""
    found = {"python": platform.python_version(), "sweeps": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
