"""What a bundle needs to load elsewhere: local modules to ship, and packages to install. Reads source, imports nothing."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import io
import pickle
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.core import references
from sweeps.core.library_code import is_library_file

OWN_PACKAGE = "sweeps"
ALWAYS_REQUIRED = ("mlflow", "numpy", "pandas", "pyarrow", "pydantic")
EXTRAS = {"ray": "ray[data]"}


@dataclass(frozen=True)
class Requirements:
    """What some modules pull in.

    Attributes:
        local: name -> the file or the package's folder to ship.
        ours: path -> file, of the modules of sweeps.
        packages: top-level names that must be installed.
        files: name -> source file of every local module that is imported.
    """

    local_modules: dict[str, Path]
    sweeps_modules: dict[str, Path]
    packages: frozenset[str]
    files: dict[str, Path] = field(default_factory=dict)


def find_requirements(modules: Iterable[str], roots: Iterable[Path] = ()) -> Requirements:
    """Follow the imports of modules through everything that is not installed.

    Imports inside functions count in a user's module, whose `load` may import its framework there; but not Ray's, which
    only the training loop needs, and not those of sweeps, which are lazy so that a bundle goes without them.

    Args:
        modules: dotted names.
        roots: folders searched before `sys.path`.
    """
    roots = tuple(roots)
    todo, seen = list(modules), set()
    local: dict[str, Path] = {}
    ours: dict[str, Path] = {}
    packages: set[str] = set()
    files: dict[str, Path] = {}
    while todo:
        module = todo.pop()
        top = module.split(".")[0]
        if module in seen or top in sys.stdlib_module_names:
            continue
        seen.add(module)
        file = references.source_of(module, roots)
        if file is None:
            continue  # an attribute, or an optional import that is not there
        if is_library_file(file) and top != OWN_PACKAGE:
            packages.add(top)
            continue
        if top == OWN_PACKAGE:
            place = module.replace(".", "/")
            ours[f"{place}/__init__.py" if file.name == "__init__.py" else f"{place}.py"] = file.resolve()
        else:
            whole = _path_to_ship(module, file.resolve(), references.source_of(top, roots))
            local[whole.name] = whole
            files[module] = file
        if "." in module:
            todo.append(module.rpartition(".")[0])
        if file.suffix == ".py":
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            todo += _imports(file, package, lazy=top != OWN_PACKAGE)
    return Requirements(local, ours, frozenset(packages), files)


def fingerprint(modules: Iterable[str], roots: Iterable[Path] = ()) -> str:
    """A SHA-256, in hex, over the source of modules and of the local modules that they import; where these lie does not count."""
    modules, roots, digest = list(modules), list(roots), hashlib.sha256()
    named = {module: file for module in modules if (file := references.source_of(module, roots)) is not None}
    for name, file in sorted((named | find_requirements(modules, roots).files).items()):
        digest.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


def _path_to_ship(module: str, file: Path, top: Path | None) -> Path:
    """What to ship of a user's module: its file, or the folder of the package at the top, which need not have an `__init__.py`."""
    if top is not None:
        return top.resolve().parent if top.name == "__init__.py" else top.resolve()
    return file.parents[module.count(".") - (file.name != "__init__.py")] if "." in module else file


def pickled_modules(pickle_bytes: bytes) -> set[str]:
    """The modules that a pickle names. Loads it, so only for one's own."""
    found: set[str] = set()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add(module)
            return super().find_class(module, name)

    Reader(io.BytesIO(pickle_bytes)).load()
    return found


def pin_versions(packages: Iterable[str]) -> list[str]:
    """Requirements for packages by import name, pinned to what is installed; unknown ones are left out."""
    owners = importlib.metadata.packages_distributions()
    out = set()
    for name in {*ALWAYS_REQUIRED, *packages}:
        owned = [d for d in owners.get(name, ()) if d]
        if owned:
            owner = name if name in owned else owned[0]
            version = importlib.metadata.version(owner).split("+")[0]  # `2.13.0+cpu` is on no index
            out.add(f"{EXTRAS.get(owner, owner)}=={version}")
    return sorted(out)


def _imports(file: Path, package: str, lazy: bool) -> list[str]:
    """The modules that a source file names in its imports; with `from a import b` also `a.b`."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:
        return []
    found: list[str] = []
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, inside = stack.pop()
        names: list[str] = []
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            stack += [(child, inside) for child in node.orelse]
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        if not inside:
            found += names
        elif lazy:
            found += [name for name in names if name.split(".")[0] != "ray"]
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found
