"""Find what a bundle needs on another machine: local modules to copy and packages to install.

The search parses source files and does not import them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import io
import pickle
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core.plugins import references
from sweeps.core.plugins.library_code import is_library_file

OWN_PACKAGE = "sweeps"
ALWAYS_REQUIRED = ("mlflow", "numpy", "pandas", "pyarrow", "pydantic")
# Packages that are installed with an extra
EXTRAS = {"ray": "ray[data]"}


@dataclass(frozen=True)
class Requirements:
    """Modules and packages that some modules need.

    Attributes:
        local_modules: Files and package folders to copy. Maps the name of each file or folder to
            its full path.
        sweeps_modules: Files of the package `sweeps` to copy. Maps each file's path relative to the
            package to its full path.
        packages: Import names of the packages that must be installed.
        files: Maps the dotted name of every local module to its source file.
    """

    local_modules: dict[str, Path]
    sweeps_modules: dict[str, Path]
    packages: frozenset[str]
    files: dict[str, Path]


def find_requirements(modules: Iterable[str], roots: Iterable[Path] = ()) -> Requirements:
    """Find all modules and packages that some modules need.

    Imports are followed through local modules, but not into installed packages.

    In a user's module, imports inside functions are followed, because a `load` function may import
    its framework there. Imports of Ray inside functions are skipped, because only the training loop
    needs Ray. In sweeps itself, imports inside functions are skipped, because a bundle does not
    need them.

    Args:
        modules: Dotted names of the modules.
        roots: Folders to search before `sys.path`.

    Returns:
        The requirements.
    """
    roots = tuple(roots)
    pending = list(modules)
    seen = set()
    local: dict[str, Path] = {}
    sweeps_modules: dict[str, Path] = {}
    packages: set[str] = set()
    files: dict[str, Path] = {}
    while pending:
        module = pending.pop()
        top = module.split(".")[0]
        if module in seen or top in sys.stdlib_module_names:
            continue
        seen.add(module)
        file = references.source_of(module, roots)
        if file is None:
            continue  # `module` is an attribute, or an optional module that is not installed
        if is_library_file(file) and top != OWN_PACKAGE:
            packages.add(top)
            continue
        if top == OWN_PACKAGE:
            suffix = "/__init__.py" if file.name == "__init__.py" else ".py"
            sweeps_modules[module.replace(".", "/") + suffix] = file.resolve()
        else:
            path = _path_to_copy(module, file.resolve(), references.source_of(top, roots))
            local[path.name] = path
            files[module] = file
        if "." in module:
            pending.append(module.rpartition(".")[0])
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        modified = file.stat().st_mtime_ns
        pending += _imports(file, package, lazy=top != OWN_PACKAGE, modified=modified)
    return Requirements(local, sweeps_modules, frozenset(packages), files)


def fingerprint(
    modules: Iterable[str], roots: Iterable[Path] = (), scripts: Iterable[Path] = ()
) -> str:
    """Hash the source of some modules and scripts, and of the local modules that they import.

    The hash does not depend on the location of the files.

    Args:
        modules: Dotted names of the modules.
        roots: Folders to search before `sys.path`.
        scripts: Other files to hash. A Python script imports modules from its own folder.

    Returns:
        The SHA-256 in hex.
    """
    modules = list(modules)
    roots = list(roots)
    digest = hashlib.sha256()
    sources = {}
    for module in modules:
        file = references.source_of(module, roots)
        if file is not None:
            sources[module] = file
    sources |= find_requirements(modules, roots).files
    for script in scripts:
        sources[script.name] = script
        if script.suffix == ".py":
            modified = script.stat().st_mtime_ns
            imported = _imports(script, "", lazy=True, modified=modified)
            sources |= find_requirements(imported, [script.parent, *roots]).files
    for name, file in sorted(sources.items()):
        with file.open("rb") as opened:
            digest.update(f"{name}\0{hashlib.file_digest(opened, 'sha256').hexdigest()}\0".encode())
    return digest.hexdigest()


def _path_to_copy(module: str, file: Path, top: Path | None) -> Path:
    """Return the path to copy for a user's module.

    It is the module's file, or the folder of its top-level package.

    Args:
        module: Dotted name of the module.
        file: Source file of the module.
        top: `__init__.py` of the module's top-level package. None if the top-level package is a
            namespace package, which has no `__init__.py`.
    """
    if top is not None:
        return top.resolve().parent if top.name == "__init__.py" else top.resolve()
    if "." not in module:
        return file
    # Go up from the file to the folder of the namespace package: one level for each package in the
    # module's name. `parents[0]` is the folder of the file.
    packages = module.split(".") if file.name == "__init__.py" else module.split(".")[:-1]
    return file.parents[len(packages) - 1]


def pickled_modules(pickle_bytes: bytes) -> set[str]:
    """Return the names of the modules that a pickle refers to.

    The function loads the pickle, which runs code. Call the function only for a pickle that this
    process wrote.
    """
    modules: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            modules.add(module)
            return super().find_class(module, name)

    Reader(io.BytesIO(pickle_bytes)).load()
    return modules


def owners_of_packages() -> Mapping[str, list[str]]:
    """Return the distributions that own each importable package.

    The first call takes a second, and so does the first one after an installation.
    """
    folders = [Path(entry) for entry in sys.path]
    # An installation changes the modification time of a folder, which is a key of the cache.
    return _cached_owners(tuple(each.stat().st_mtime_ns for each in folders if each.is_dir()))


@functools.lru_cache(maxsize=1)
def _cached_owners(modified: tuple[int, ...]) -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def pin_versions(packages: Iterable[str]) -> list[str]:
    """Pin packages to their installed versions. Packages that are not installed are left out.

    Args:
        packages: Import names of the packages. The packages in `ALWAYS_REQUIRED` are added.

    Returns:
        Sorted requirements, such as `numpy==2.1.0`.
    """
    owners = owners_of_packages()
    pinned = set()
    for name in {*ALWAYS_REQUIRED, *packages}:
        distributions = [owner for owner in owners.get(name, ()) if owner]
        if distributions:
            owner = name if name in distributions else distributions[0]
            # PyPI does not have local versions, such as `2.13.0+cpu`.
            version, _, _ = importlib.metadata.version(owner).partition("+")
            pinned.add(f"{EXTRAS.get(owner, owner)}=={version}")
    return sorted(pinned)


@functools.cache
def _imports(file: Path, package: str, lazy: bool, modified: int) -> list[str]:
    """List the modules that a source file imports.

    For `from a import b`, the list has `a` and `a.b`.

    Args:
        file: The source file.
        package: The package that relative imports start from.
        lazy: True to include imports inside functions, except imports of Ray.
        modified: Time at which the file was modified, so that a file that has changed is read
            again.
    """
    if (tree := references.parse_source(file)) is None:
        return []
    modules: list[str] = []
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, in_function = stack.pop()
        names: list[str] = []
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += [(child, in_function) for child in node.orelse]
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # a relative import: one dot is `package` itself, each other goes up
                parts = package.split(".")
                parents = parts[: len(parts) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        if not in_function:
            modules += names
        elif lazy:
            modules += [name for name in names if name.split(".")[0] != "ray"]
        in_function = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        stack += [(child, in_function) for child in ast.iter_child_nodes(node)]
    return modules
