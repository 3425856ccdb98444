"""A sweep's folder and a bundle whose `format` is not the one that this version reads are refused
in one line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.bundle import integrity
from sweeps.bundle.manifest import Manifest
from sweeps.core.errors import InputError
from sweeps.core.files.file_format import FORMAT, format_problem
from sweeps.core.files.sweep_folder import MANIFEST, ORIGIN, PROVENANCE
from tests.commands import invoke

MISSING = object()
# A wrong `format`, and the text about it.
WRONG = {
    "1": (1, "`format` is 1"),
    "missing": (MISSING, "has no key `format`"),
    "a text": ("1", '`format` is "1"'),
    "true": (True, "`format` is true"),
    "null": (None, "`format` is null"),
}
RULE = (
    f"but this version of sweeps reads only format {FORMAT}; install the version of sweeps that "
    "wrote this file"
)
wrong = pytest.mark.parametrize(("value", "text"), WRONG.values(), ids=WRONG)


def set_format(file: Path, value: Any) -> None:
    """Change the key `format` of a JSON file, or remove the key."""
    content = json.loads(file.read_text())
    content.pop("format")
    file.write_text(json.dumps(content if value is MISSING else {**content, "format": value}))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def folder(finished_sweep: Path) -> Path:
    """A finished sweep that sweeps 7.8.9 wrote."""
    entries = json.loads((finished_sweep / PROVENANCE).read_text())
    entries[-1]["versions"]["sweeps"] = "7.8.9"
    (finished_sweep / PROVENANCE).write_text(json.dumps(entries))
    return finished_sweep


@pytest.fixture
def bundle(finished_sweep: Path) -> Path:
    """A bundle that sweeps 7.8.9 wrote."""
    bundle = finished_sweep / "bundle"
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["training"]["versions"]["sweeps"] = "7.8.9"
    (bundle / MANIFEST).write_text(json.dumps(manifest))
    return bundle


@wrong
def test_every_command_refuses_a_folder_of_another_format(
    folder: Any, value: Any, text: Any
) -> None:
    set_format(folder / ORIGIN, value)
    before = contents(folder)
    rows = folder / "bundle" / "data" / "sweep" / "check.parquet"
    for command in (
        ("show", folder),
        ("show", folder.name, "--dir", folder.parent),
        ("compare", folder, folder),
        ("logs", folder, "0000"),
        ("resume", folder, "--trust"),
        ("rerun", folder, "0002", "--trust"),
        ("export", folder, "--trust"),
        ("predict", folder, rows),
        ("serve", folder),
        ("gc", folder, "--top", 1),
        ("repair", folder),
        ("pause", folder),
    ):
        done = invoke(*command)
        assert (done.exit_code, done.stdout) == (2, ""), (command, done.output)
        assert done.stderr == f"{folder / ORIGIN}: {text}, {RULE}\n", command
    assert contents(folder) == before


@wrong
def test_ls_shows_a_folder_of_another_format_and_says_why_it_is_unreadable(
    folder: Any, value: Any, text: Any
) -> None:
    set_format(folder / ORIGIN, value)
    before = contents(folder)
    done = invoke("ls", "--dir", folder.parent)
    assert done.exit_code == 0 and folder.name in done.stdout and "unreadable" in done.stdout
    assert done.stderr == f"{folder / ORIGIN}: {text}, {RULE}\n"
    (listed,) = json.loads(invoke("ls", "--dir", folder.parent, "--json").stdout)
    assert listed["state"] == "unreadable" and listed["problems"]
    assert contents(folder) == before


@wrong
def test_a_new_sweep_does_not_learn_from_a_folder_of_another_format(
    folder: Any, tmp_path: Path, value: Any, text: Any
) -> None:
    set_format(folder / ORIGIN, value)
    space = tmp_path / "space.yaml"
    old = (folder / "space.yaml").read_text()
    space.write_text(old.replace("search: {", f"search: {{from: [{folder}], "))
    done = invoke("plan", space)
    assert done.exit_code == 2 and done.stdout == ""
    assert f"{folder / ORIGIN}: {text}, {RULE}\n" in done.stderr


@wrong
def test_every_command_refuses_a_bundle_of_another_format(
    bundle: Any, value: Any, text: Any
) -> None:
    set_format(bundle / MANIFEST, value)
    integrity.write_hashes(bundle)
    before = contents(bundle)
    rows = bundle / "data" / "sweep" / "check.parquet"
    for place in (bundle, bundle.parent):
        for command in (("predict", place, rows), ("serve", place)):
            done = invoke(*command)
            assert (done.exit_code, done.stdout) == (2, ""), (command, done.output)
            assert done.stderr == f"{bundle / MANIFEST}: {text}, {RULE}\n", command
    for read in (sweeps.load_bundle, Manifest.read):
        with pytest.raises(InputError) as refused:
            read(bundle)
        assert str(refused.value) == f"{bundle / MANIFEST}: {text}, {RULE}"
    assert contents(bundle) == before


def test_a_long_format_is_cut() -> None:
    problem = format_problem(Path("origin.json"), {"format": ["\n" * 5000]})
    assert problem is not None and len(str(problem)) < 200 and "\n" not in str(problem)
