"""Parse the section `runtime_env`, which describes the environment of the worker processes."""

from dataclasses import replace
from pathlib import Path

from sweeps.space.parse.nodes import Node
from sweeps.space.parse.section_checks import check

from .trainer_models import RuntimeEnv

KEY = "runtime_env"


def read_runtime_env(node: Node, folder: Path) -> RuntimeEnv:
    """Return the section with absolute paths. After a problem, return an empty section.

    Args:
        node: The section.
        folder: Folder to which relative paths refer.
    """
    section = check(RuntimeEnv, node)
    if section is None:
        return RuntimeEnv()
    for key in ("pip", "py_modules", "working_dir"):
        if section.image_uri and getattr(section, key):
            node.get(key).wrong(
                "cannot be combined with `image_uri`; put the packages and the files into the image"
            )
            break  # one message is enough
    modules = [_absolute(child, folder) for _, child in node.get("py_modules").items()]
    working_dir = section.working_dir and _absolute(node.get("working_dir"), folder)
    return replace(section, py_modules=tuple(modules), working_dir=working_dir)


def _absolute(node: Node, folder: Path) -> str:
    """Return a path as an absolute path; add a problem if it does not exist.

    URIs are returned unchanged.
    """
    path = str(node.value)
    if "://" in path:
        return path
    place = folder / Path(path).expanduser()
    if not (place.is_dir() or (place.suffix in (".whl", ".zip") and place.is_file())):
        node.wrong(
            f"there is no folder {path} in {folder}; give a folder, a wheel, or a URI such as "
            "s3://bucket/code.zip"
        )
    return str(place.resolve())
