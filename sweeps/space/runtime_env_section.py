"""Parse the section `runtime_env`, which describes the environment of the worker processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sweeps.space.problems import SpaceFile, check
from sweeps.space.section_models import RuntimeEnv

KEY = "runtime_env"


def read_runtime_env(file: SpaceFile, folder: Path) -> RuntimeEnv:
    """Return the section with absolute paths. After a problem, return an empty section.

    Args:
        file: The space file.
        folder: Folder to which relative paths refer.
    """
    node = file.node(KEY)
    given = check(RuntimeEnv, node, KEY, file.at(KEY), file.problems)
    if given is None:
        return RuntimeEnv()
    if given.image_uri and (
        other := next(
            (key for key in ("pip", "py_modules", "working_dir") if getattr(given, key)), None
        )
    ):
        file.wrong(
            f"{KEY}.{other}",
            "cannot be combined with `image_uri`; put the packages and the files into the image",
        )
    modules = [
        _absolute(file, f"{KEY}.py_modules.{i}", path, folder)
        for i, path in enumerate(given.py_modules)
    ]
    working_dir = given.working_dir and _absolute(
        file, f"{KEY}.working_dir", given.working_dir, folder
    )
    return replace(given, py_modules=tuple(modules), working_dir=working_dir)


def _absolute(file: SpaceFile, key: str, path: str, folder: Path) -> str:
    """Return a path as an absolute path; add a problem if it does not exist.

    URIs are returned unchanged.
    """
    if "://" in path:
        return path
    found = folder / Path(path).expanduser()
    if not (found.is_dir() or (found.suffix in (".whl", ".zip") and found.is_file())):
        file.wrong(
            key,
            f"there is no folder {path} in {folder}; give a folder, a wheel, or a URI such as "
            "s3://bucket/code.zip",
        )
    return str(found.resolve())
