"""Find the code that a bundle needs to load its models, and copy it."""

import functools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps.core.plugins import references
from sweeps.data.preprocessing import step_files
from sweeps.space.sections.built_in_trainers import trainer_modules

from . import integrity
from .requirements import (
    find_requirements,
    owners_of_packages,
    pickled_modules,
    pin_versions,
)

# These modules and their imports are the part of sweeps that a bundle needs
BUNDLE_MODULES = ("sweeps.bundle.check", "sweeps.bundle.bundle_model")
# Every bundle contains these modules, even if it does not need them. If a process loads two
# bundles, it imports the modules of sweeps only from the first bundle, and the second bundle may
# need more of them
SHIPPED_MODULES = (*BUNDLE_MODULES, "sweeps.trial", *trainer_modules())
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "tests", "*.egg-info")


@dataclass(frozen=True)
class ModelCode:
    """The code that a bundle needs to load a model.

    Attributes:
        load: The trainer's function that loads a model from a checkpoint, in the form
            `module:attr`.
        roots: Folders that are searched for the user's modules before `sys.path`.
        left_out: Glob patterns of files in the checkpoint that are not copied.
        imports: Names of other modules that `load` may import. The bundle also contains the user's
            modules among them, and requires the packages among them.
    """

    load: str
    roots: Sequence[Path]
    left_out: Sequence[str] = ()
    imports: Sequence[str] = ()


@functools.cache
def find_shipped_modules() -> dict[str, Path]:
    """Return the files of sweeps that every bundle contains, by their path.

    The first call takes a second. A sweep calls this function while it waits for Ray, so that its
    export finds the result in the cache.
    """
    owners_of_packages()  # so that the export finds this result in its cache, too
    return find_requirements(SHIPPED_MODULES).sweeps_modules


def copy_code(
    codes: Sequence[ModelCode], folder: Path, models: Sequence[Path]
) -> tuple[list[Path], list[str]]:
    """Copy the local modules that are needed to load a bundle.

    Args:
        codes: The code of each model, at least one.
        folder: The folder to create.
        models: The folders of the models, with their preprocessors.

    Returns:
        The copied files and folders, and the pinned requirements of the packages that must be
        installed.
    """
    functions = [code.load for code in codes]
    modules = {*BUNDLE_MODULES, *(name for code in codes for name in code.imports)}
    roots = dict.fromkeys(root.resolve() for code in codes for root in code.roots)
    for model in models:
        for file in model.glob("*.pkl"):
            modules |= pickled_modules(file.read_bytes())
        if (model / step_files.FILE).is_file():
            functions += step_files.function_references(model)
    modules |= {references.parse(function)[0] for function in functions}
    needed = find_requirements(modules, list(roots))
    folder.mkdir()
    shutil.copyfile(integrity.__file__, folder / f"{integrity.LOADER_MODULE}.py")
    sweeps_copy = Path(integrity.SWEEPS_COPY).name
    files = {
        f"{sweeps_copy}/{name}": file
        for name, file in (find_shipped_modules() | needed.sweeps_modules).items()
    }
    for name, source in (files | needed.local_modules).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=IGNORED)
        else:
            shutil.copyfile(source, folder / name)
    return sorted(folder.iterdir()), pin_versions(needed.packages)
