"""Verify that the files of a bundle are the files that were exported.

A bundle contains a copy of this module, `code/sweeps_bundle.py`. This copy is MLflow's loader
module, so the bundle is verified before any other code or data of the bundle is loaded. The module
uses the standard library only. `manifest.json` has the SHA-256 of every other file, and
`manifest.sha256` has the SHA-256 of `manifest.json`.

The check finds damage and mistakes, not attacks. Someone who can write to a bundle can also replace
its manifest. To detect an attack, copy `manifest.sha256` to another place right after the export,
and compare the two files later.
"""

import hashlib
import importlib
import importlib.machinery
import json
import os
import sys
from pathlib import Path
from typing import NoReturn

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
CODE_FOLDER = "code"
LOADER_MODULE = "sweeps_bundle"
# The part of sweeps that a bundle needs; used if sweeps is not imported yet
SWEEPS_COPY = "code/_sweeps"
# A bundle has an empty file with the name of Python's bytecode folder. Python can then neither
# write nor read unverified bytecode there
NO_BYTECODE = f"{CODE_FOLDER}/__pycache__"
# MLflow adds this file to a model that it downloads from its registry
IGNORED_FILES = ("registered_model_meta",)


class IntegrityError(Exception):
    """Raised if a file of a bundle is not as it was exported.

    The file differs from the exported file, is missing or unexpected, or cannot be read or
    imported. The message names the file.
    """


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hex.

    Raises:
        IntegrityError: The file cannot be read.
    """
    try:
        with open(file, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        raise IntegrityError(f"{file}: cannot be read: {e.strerror}") from None


def files_of(bundle: Path) -> list[str]:
    """List the files of a bundle, except `manifest.json` and `manifest.sha256`.

    Args:
        bundle: The bundle's folder.

    Returns:
        Sorted POSIX paths relative to the bundle. Symbolic links are listed, too.
    """
    files = [path for path in bundle.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted({path.relative_to(bundle).as_posix() for path in files} - {MANIFEST, DIGEST})


def write_hashes(bundle: Path) -> str:
    """Write `manifest.sha256`, in the format that `sha256sum -c manifest.sha256` reads.

    Args:
        bundle: The bundle's folder, with its complete `manifest.json`.

    Returns:
        The SHA-256 of the manifest in hex.
    """
    digest = sha256(bundle / MANIFEST)
    (bundle / DIGEST).write_text(f"{digest}  {MANIFEST}\n", encoding="ascii")
    return digest


def verify_hashes(bundle: Path) -> dict[str, str]:
    """Compare every file with the SHA-256 that the export recorded.

    Args:
        bundle: The bundle's folder.

    Returns:
        The recorded SHA-256 of each file, by its path in the bundle.

    Raises:
        IntegrityError: A file differs from the manifest, is missing, or is not listed. The message
            names the first such file.
    """
    manifest = bundle / MANIFEST
    digest = bundle / DIGEST
    for file in (manifest, digest):
        if not os.path.lexists(file):
            raise IntegrityError(f"{bundle}: {file.name} is missing")
        _require_file(bundle, file.name)
    if digest.read_bytes() != f"{sha256(manifest)}  {MANIFEST}\n".encode():
        raise IntegrityError(
            f"{bundle}: {MANIFEST} is not the file that was exported: its SHA-256 differs from "
            f"the SHA-256 in {DIGEST}"
        )
    try:
        listed = {
            str(name): str(sha) for name, sha in json.loads(manifest.read_bytes())["files"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise IntegrityError(
            f"{bundle}: {MANIFEST} has no valid list of files: {type(e).__name__}: {e}"
        ) from None
    present = set(files_of(bundle))
    for name in sorted(listed):
        if name not in present:
            raise IntegrityError(f"{bundle}: {name} is missing")
        _require_file(bundle, name)
        if sha256(bundle / name) != listed[name]:
            raise IntegrityError(
                f"{bundle}: {name} is not the file that was exported: its SHA-256 differs from "
                "the SHA-256 in the manifest"
            )
    for name in sorted(present - set(listed)):
        if name not in IGNORED_FILES:
            raise IntegrityError(
                f"{bundle}: {name} was added after the export: the manifest does not list it"
            )
    return listed


def _require_file(bundle: Path, name: str) -> None:
    """Raise an `IntegrityError` unless a path of the bundle is a regular file."""
    if (bundle / name).is_symlink():
        raise IntegrityError(f"{bundle}: {name} is a link, but was a file when it was exported")
    if not (bundle / name).is_file():  # reading a pipe would block
        raise IntegrityError(
            f"{bundle}: {name} is not a regular file, but was one when it was exported"
        )


class _SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """Import modules from source files only.

    Python must not read bytecode, because it may differ from the verified source. It must not write
    bytecode either, because a new file that the manifest does not list makes the bundle invalid.
    """

    def path_stats(self, path: str) -> NoReturn:
        # Without the time and the size of the source, Python neither reads nor writes bytecode.
        raise OSError("bytecode is not used")


# The code folders of bundles whose import hook is in `sys.path_hooks`
_hooked: set[str] = set()


def use_bundle_code(bundle: Path, listed: dict[str, str]) -> None:
    """Make the code of a bundle importable.

    The bundle's modules take precedence over other modules with the same names.

    If `sweeps` is already imported, this installation of sweeps loads the bundle. Otherwise the
    copy of sweeps in the bundle loads it. The installation and the copy are never used together.

    Args:
        bundle: The bundle's folder.
        listed: The SHA-256 of each file, as `verify_hashes` returns them.

    Raises:
        IntegrityError: This process has already imported a module that has the name of a module in
            the bundle, but other contents.
    """
    code = str(bundle / CODE_FOLDER)
    for name, digest in listed.items():
        other = _imported_from(name)
        if other is None or other.is_relative_to(code):
            continue
        if sha256(other) != digest:
            raise IntegrityError(
                f"{bundle}: {name} cannot be used, because this process has already imported "
                f"another module of the same name, {other}; "
                "load the bundle in a new process"
            )

    def is_in_code(path: str) -> bool:
        return path == code or path.startswith(code + os.sep)

    def finder(path: str) -> importlib.machinery.FileFinder:
        if not is_in_code(path):
            raise ImportError  # Python then asks the next hook
        compiled = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
        return importlib.machinery.FileFinder(
            path, (_SourceOnlyLoader, importlib.machinery.SOURCE_SUFFIXES), compiled
        )

    if code not in _hooked:
        _hooked.add(code)
        sys.path_hooks.insert(0, finder)
        for path in list(filter(is_in_code, sys.path_importer_cache)):
            del sys.path_importer_cache[path]
    folders = [code]
    if "sweeps" not in sys.modules:
        folders.append(str(bundle / SWEEPS_COPY))
    for path in folders:
        if path not in sys.path:
            sys.path.insert(0, path)


def _imported_from(name: str) -> Path | None:
    """Return the source file of the imported module that has the name of a module in the bundle.

    Args:
        name: Path of a file in the bundle, such as `code/my_module.py`.

    Returns:
        The source file. None if no such module is imported, or if the file `name` is not a copy of
        a user's module.
    """
    if not name.startswith(f"{CODE_FOLDER}/") or not name.endswith(".py"):
        return None
    if name.startswith((f"{SWEEPS_COPY}/", f"{CODE_FOLDER}/{LOADER_MODULE}.py")):
        return None
    module_path = name.removeprefix(f"{CODE_FOLDER}/").removesuffix(".py").removesuffix("/__init__")
    file = getattr(sys.modules.get(module_path.replace("/", ".")), "__file__", None)
    if file and file.endswith(".py") and os.path.isfile(file):
        return Path(file).resolve()
    return None


def _load_pyfunc(data_path: str) -> object:
    """Verify the bundle and return its `Bundle`. MLflow passes the path of the data folder."""
    bundle = Path(data_path).resolve().parents[1]  # of `BUNDLE/data/sweep`
    try:
        use_bundle_code(bundle, verify_hashes(bundle))
    except IntegrityError:
        # MLflow made the bundle's code importable before this call.
        sys.path[:] = [path for path in sys.path if Path(path) != bundle / CODE_FOLDER]
        sys.modules.pop(LOADER_MODULE, None)
        raise
    return importlib.import_module("sweeps.bundle.bundle_model").load_verified(bundle)
