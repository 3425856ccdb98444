"""Pack the user's code and the package `sweeps` for the nodes of a cluster.

The result is Ray's runtime environment of a sweep.
"""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError
from sweeps.core.files.sweep_folder import ORIGIN
from sweeps.core.plugins import references
from sweeps.core.text.shell_text import DEFAULT_ROOT
from sweeps.space import Space
from sweeps.space.model.space_model import command_files, user_references

# Limits in bytes on the code that is sent to a cluster, in total and for each file.
MOST_BYTES = 50 * 2**20
LARGEST_FILE = 2 * 2**20
# Names of folders that are not sent. Files and folders whose names start with a dot are not sent
# either.
GENERATED_FOLDERS = (
    "__pycache__",
    "node_modules",
    "site-packages",
    DEFAULT_ROOT,
    "mlruns",
    "mlartifacts",
    "venv",
    "build",
    "dist",
)
# Suffixes of data files, which are not sent.
DATA_SUFFIXES = (
    ".csv",
    ".csv.gz",
    ".tsv",
    ".tsv.gz",
    ".parquet",
    ".pq",
    ".db",
    ".pt",
    ".bin",
    ".npy",
    ".npz",
    ".zip",
    ".gz",
)
# Ray sets this variable for the command of a Ray job (`ray job submit`).
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def environment(space: Space, roots: Iterable[Path], stage: Path) -> dict[str, Any]:
    """Return Ray's runtime environment for a cluster.

    It has the space's `runtime_env`, the package `sweeps`, and the user's modules and scripts. If
    `runtime_env` has an `image_uri`, no code is sent, because Ray does not combine an image with
    code.

    Args:
        space: The search space. It has the `runtime_env` and refers to the user's modules.
        roots: Folders that may contain the user's modules and scripts. Only folders with files that
            the space refers to are sent.
        stage: An empty folder, to which the user's code is copied.

    Raises:
        InputError: The code is larger than `MOST_BYTES`, or the `working_dir` in `runtime_env` is a
            URI.
    """
    runtime_env = space.runtime_env.for_ray()
    if "image_uri" in runtime_env:
        return runtime_env
    if folder := runtime_env.pop("working_dir", None):
        if "://" in folder:
            text = (
                "must be a folder on this machine, because sweeps adds your code to this folder, "
                f"got {folder}"
            )
            key = "runtime_env.working_dir"
            raise InputError(space.place(key), f"{key}: {text}")
        shutil.copytree(folder, stage, dirs_exist_ok=True)
    roots = tuple(roots)
    needed = {*roots_needed(user_references(space), roots), *command_files(space, roots).values()}
    # A file of an earlier root replaces a file of the same name.
    for root in reversed(roots):
        if root in needed:
            copy_code(root, stage)
    size = sum(f.stat().st_size for f in stage.rglob("*") if f.is_file())
    if size > MOST_BYTES:
        text = (
            f"the code in the folder of the space file has {size / 2**20:.0f} MB, but at most "
            f"{MOST_BYTES >> 20} MB can be sent to the nodes"
        )
        advice = (
            "move the space file and its code to a separate folder, or install the code on the "
            "cluster"
        )
        raise InputError("--address", f"{text}; {advice}")
    package = references.source_of("sweeps")
    modules = [] if package is None else [str(package.parent)]
    return {
        **runtime_env,
        "working_dir": str(stage),
        "py_modules": [*modules, *runtime_env.get("py_modules", ())],
        "excludes": ["__pycache__"],
    }


def with_job_modules(shipped: dict[str, Any]) -> dict[str, Any]:
    """Return a runtime environment with the `py_modules` of the Ray job, if there is a job.

    Ray itself adds the other keys of the job's runtime environment.

    Args:
        shipped: Runtime environment with the code; see `environment`. It already contains the
            modules in the job's working directory, because the job's command runs in this
            directory.
    """
    if "image_uri" in shipped:  # Ray does not combine an image with modules.
        return shipped
    job = json.loads(os.environ.get(JOB_CONFIG) or "{}").get("runtime_env") or {}
    return {**shipped, "py_modules": [*shipped["py_modules"], *job.get("py_modules", ())]}


def roots_needed(names: Iterable[str], roots: tuple[Path, ...]) -> list[Path]:
    """Return the folders that contain the user's modules, in the order of `roots`.

    No folder is returned for an installed module.

    Args:
        names: References to the modules, of the form `module:attr`.
        roots: Folders to search.
    """
    needed = set()
    for package in {references.parse(name)[0].split(".")[0] for name in names} - {"sweeps"}:
        for root in roots:
            folder = root / package
            if folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file():
                needed.add(root)
                break
    return [root for root in roots if root in needed]


def copy_code(root: Path, stage: Path) -> None:
    """Copy the code in `root` to `stage`.

    Large files, data files, hidden files and generated folders are left out.
    """

    def find_others(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if not _is_code(Path(folder, name))}

    shutil.copytree(
        root, stage, ignore=find_others, dirs_exist_ok=True, ignore_dangling_symlinks=True
    )


def _is_code(path: Path) -> bool:
    """Return whether a file or a folder may contain code that a cluster needs."""
    name = path.name
    if name.startswith(".") or name in GENERATED_FOLDERS:
        return False
    if name.endswith((".egg-info", *DATA_SUFFIXES)):
        return False
    if path.is_dir():
        # A virtual environment, a sweep, a folder of sweeps, a bundle.
        markers = ("pyvenv.cfg", ORIGIN, "mlflow.db", "MLmodel")
        return not any((path / marker).exists() for marker in markers)
    return path.is_file() and path.stat().st_size <= LARGEST_FILE
