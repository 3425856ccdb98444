"""Record the environment of a sweep.

It consists of the git commit, uncommitted changes, package versions, platform, seed, and hash of
the data.
"""

import datetime
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from sweeps.core import installed_package
from sweeps.core.text.secrets import masked

from .atomic_files import write_text
from .json_files import read_json
from .sweep_folder import PROVENANCE

# The packages whose versions are recorded.
PACKAGES = (
    "ray",
    "torch",
    "xgboost",
    "lightgbm",
    "catboost",
    "optuna",
    "mlflow",
    "pandas",
    "numpy",
    "scikit-learn",
    "pyarrow",
)
# Diffs are cut at this many bytes. A diff is meant to show edits of code, and not to store large
# data files.
MOST_DIFF_BYTES = 2**20
MOST_UNTRACKED_FILES = 200


def git_state(folder: Path) -> dict[str, str]:
    """Return the commit of a folder's git repository, and whether there are uncommitted changes.

    Returns:
        A dict with two keys. `commit` is the id of the current commit. `dirty` is "yes" if there
        are uncommitted changes or untracked files, else "no". {} if the folder is not in a git
        repository.
    """
    commit = _run_git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    return {
        "commit": commit.strip(),
        "dirty": "yes" if _run_git(folder, "status", "--porcelain") else "no",
    }


def _run_git(folder: Path, *args: str) -> str | None:
    """Run a git command in a folder, and return its output; None if the command fails."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def diff(folder: Path) -> str:
    """Return the uncommitted changes in a folder's git repository as a diff.

    The names of the folder's untracked files follow. A diff of more than `MOST_DIFF_BYTES` is cut
    off, and at most `MOST_UNTRACKED_FILES` names are listed. Return "" if there are neither changes
    nor untracked files. Secrets are masked, because a change of the space file may contain one.
    """
    changes = _run_git(folder, "diff", "HEAD", "--no-color", "--no-ext-diff") or ""
    encoded = masked(changes).encode()
    text = encoded[:MOST_DIFF_BYTES].decode(errors="ignore")
    if len(encoded) > MOST_DIFF_BYTES:
        text += f"\n# cut here, at {MOST_DIFF_BYTES} bytes\n"
    untracked = (_run_git(folder, "ls-files", "--others", "--exclude-standard") or "").splitlines()
    return text + "".join(f"# not in git: {name}\n" for name in untracked[:MOST_UNTRACKED_FILES])


def record(sweep: Path, base: Path, seed: int, fingerprint: str, now: float) -> dict[str, str]:
    """Add an entry for this start or resume of a sweep to its `provenance.json`.

    Uncommitted changes of the user's code are written to a file in the same folder.

    Args:
        sweep: The sweep's folder.
        base: The folder from which the space file was read. Its git repository is recorded.
        seed: The sweep's seed.
        fingerprint: Hash of the data; if the space names no data, hash of the loop's code.
        now: The time in seconds since the epoch.

    Returns:
        The texts of the files that were written, by file name, such as `provenance.json` and
        `code.diff`.
    """
    earlier = read_entries(sweep)
    repository = git_state(base)
    files: dict[str, str] = {}
    began = datetime.datetime.fromtimestamp(now).astimezone().isoformat(timespec="seconds")
    entry: dict[str, Any] = {
        "began": began,
        "seed": seed,
        "data_fingerprint": fingerprint,
        "git": repository,
        "versions": versions(),
        "platform": platform.platform(),
    }
    if repository and (text := diff(base)):
        entry["diff"] = f"code-{len(earlier) + 1}.diff" if earlier else "code.diff"
        files[entry["diff"]] = text
    files[PROVENANCE] = json.dumps([*earlier, entry], indent=1) + "\n"
    for name, text in files.items():
        write_text(sweep / name, text)
    return files


def last_git_state(sweep: Path) -> dict[str, str]:
    """Return what `git_state` returned when the sweep was last started or resumed.

    Return {} if this is unknown.
    """
    entries = read_entries(sweep)
    state = entries[-1].get("git") if entries else None
    if not isinstance(state, dict):
        return {}
    is_valid = all(isinstance(state.get(key), str) for key in ("commit", "dirty"))
    return state if is_valid else {}


def read_entries(sweep: Path) -> list[dict[str, Any]]:
    """Return the entries of `provenance.json`, ordered from the oldest to the newest.

    [] if the file cannot be read.
    """
    entries = read_json(sweep / PROVENANCE)
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        return entries
    return []


def versions() -> dict[str, str]:
    """Return the versions of Python, sweeps and the installed packages that influence results."""
    numbers = {"python": platform.python_version(), "sweeps": installed_package.VERSION}
    for name in PACKAGES:
        try:
            numbers[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return numbers
