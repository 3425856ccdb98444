"""Is a bundle what was exported? MLflow's loader module, which looks before anything else of the bundle is read.

Stands alone, on the standard library: a bundle carries a copy of this file, `code/sweeps_bundle.py`, and MLflow imports that first.
`manifest.json` has the SHA-256 of every other file, and `manifest.sha256` that of `manifest.json`.

It finds damage and mistakes. Who can write to a bundle can write a manifest to it, too: compare `manifest.sha256` with what
the export printed, kept elsewhere, to know that it is the same bundle.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.machinery
import json
import os
import sys
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
DIGEST = "manifest.sha256"
CODE_FOLDER = "code"
LOADER_MODULE = "sweeps_bundle"
SWEEPS_COPY = "code/_sweeps"  # what a bundle needs of sweeps, for a process that has no sweeps
# An empty file of this name keeps Python from writing bytecode beside the loader, which nobody could verify, and from reading any
NO_BYTECODE = f"{CODE_FOLDER}/__pycache__"
# MLflow writes this one into a model that it downloads from its registry
IGNORED_FILES = ("registered_model_meta",)


class IntegrityError(Exception):
    """A bundle is not the one that was exported; the message names the folder and the file."""


def sha256(file: Path) -> str:
    """The hex digest of a file.

    Raises:
        Broken: it cannot be read.
    """
    try:
        with open(file, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        raise IntegrityError(f"{file}: cannot be read: {e.strerror}") from None


def files_of(bundle: Path) -> list[str]:
    """Every file of a bundle but these two of the seal, by POSIX path inside it, sorted; links are files."""
    found = []
    for folder, folders, names in os.walk(bundle):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        found += [Path(folder, name).relative_to(bundle).as_posix() for name in (*names, *links)]
    return sorted(set(found) - {MANIFEST, DIGEST})


def write_hashes(bundle: Path) -> str:
    """Write `manifest.sha256`; returns the digest. `sha256sum -c manifest.sha256` checks it, too."""
    digest = sha256(bundle / MANIFEST)
    (bundle / DIGEST).write_text(f"{digest}  {MANIFEST}\n", encoding="ascii")
    return digest


def verify_hashes(bundle: Path) -> dict[str, str]:
    """Compare every file with the digests taken at export; returns these, by the file's name.

    Raises:
        Broken: a file differs, is missing, or is one too many; the first of them.
    """
    manifest, digest = bundle / MANIFEST, bundle / DIGEST
    for file in (manifest, digest):
        if not os.path.lexists(file):
            raise IntegrityError(f"{bundle}: {file.name} is missing")
        _require_file(bundle, file.name)
    if digest.read_bytes() != f"{sha256(manifest)}  {MANIFEST}\n".encode():
        raise IntegrityError(f"{bundle}: {MANIFEST} is not the file that was exported: {DIGEST} does not hold its SHA-256")
    try:
        listed = {str(name): str(sha) for name, sha in json.loads(manifest.read_bytes())["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise IntegrityError(f"{bundle}: {MANIFEST} lists no files: {type(e).__name__}: {e}") from None
    there = set(files_of(bundle))
    for name in sorted(listed):
        if name not in there:
            raise IntegrityError(f"{bundle}: {name} is missing")
        _require_file(bundle, name)
        if sha256(bundle / name) != listed[name]:
            raise IntegrityError(f"{bundle}: {name} is not the file that was exported: its SHA-256 differs from the manifest's")
    for name in sorted(there - set(listed)):
        if name not in IGNORED_FILES:
            raise IntegrityError(f"{bundle}: {name} is one file too many: the manifest does not list it")
    return listed


def _require_file(bundle: Path, name: str) -> None:
    if (bundle / name).is_symlink():
        raise IntegrityError(f"{bundle}: {name} is a link, and was a file when it was exported")
    if not (bundle / name).is_file():  # to read a pipe would wait for ever
        raise IntegrityError(f"{bundle}: {name} is no file, and was one when it was exported")


class _SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """Imports from source alone: bytecode beside it was never verified, and would be a file too many."""

    def path_stats(self, path: Any) -> Any:
        raise OSError("not asked")


_hooked: set[str] = set()


def use_bundle_code(bundle: Path, listed: dict[str, str]) -> None:
    """Let this process import the code that a bundle carries, before what else goes by those names.

    A process that has imported sweeps uses that: with a part of another beside it nothing would fit.

    Args:
        bundle: its folder.
        listed: what `verify` found.

    Raises:
        Broken: a module that the bundle carries was imported already, from elsewhere, and is another.
    """
    code = str(bundle / CODE_FOLDER)
    for name, digest in listed.items():
        if (other := _imported_from(name)) is not None and not other.is_relative_to(code) and sha256(other) != digest:
            said = f"this process has imported another one, {other}; load the bundle in a process of its own"
            raise IntegrityError(f"{bundle}: {name} cannot be used: {said}")

    def finder(path: str) -> Any:
        if path != code and not path.startswith(code + os.sep):
            raise ImportError
        compiled = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
        return importlib.machinery.FileFinder(path, (_SourceOnlyLoader, importlib.machinery.SOURCE_SUFFIXES), compiled)

    if code not in _hooked:
        _hooked.add(code)
        sys.path_hooks.insert(0, finder)
        for path in [p for p in sys.path_importer_cache if p == code or p.startswith(code + os.sep)]:
            del sys.path_importer_cache[path]
    for path in (code, *(() if "sweeps" in sys.modules else (str(bundle / SWEEPS_COPY),))):
        if path not in sys.path:
            sys.path.insert(0, path)


def _imported_from(name: str) -> Path | None:
    """The file from which a module was imported that has the name of one among a bundle's files; None if there is none."""
    if (
        not name.startswith(f"{CODE_FOLDER}/")
        or name.startswith(f"{SWEEPS_COPY}/")
        or not name.endswith(".py")
        or name == f"{CODE_FOLDER}/{LOADER_MODULE}.py"
    ):
        return None
    module = name.removeprefix(f"{CODE_FOLDER}/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).resolve() if file and file.endswith(".py") and os.path.isfile(file) else None


def _load_pyfunc(data_path: str) -> Any:
    """What MLflow calls with the data folder."""
    bundle = Path(data_path).resolve().parents[1]
    try:
        use_bundle_code(bundle, verify_hashes(bundle))
    except IntegrityError:  # MLflow has let this process import what is in there
        sys.path[:] = [path for path in sys.path if Path(path) != bundle / CODE_FOLDER]
        sys.modules.pop(LOADER_MODULE, None)
        raise
    return importlib.import_module("sweeps.bundle.model").load_verified(bundle)
