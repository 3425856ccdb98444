"""What sweeps is installed as, and what it says of another package of its import name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import sweeps
from sweeps.core import command_hints, installed_package, provenance
from tests.commands import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# As `pip install sweeps` leaves it: the head of its METADATA.
THEIRS = """\
Metadata-Version: 2.1
Name: sweeps
Version: 0.2.0
Summary: Weights and Biases Hyperparameter Sweeps Engine.
Home-page: https://github.com/wandb/sweeps
Author: Weights & Biases
"""
# As this project was installed before it had a name of its own; its text may speak of the others.
OURS = f"""\
Metadata-Version: 2.4
Name: sweeps
Version: 0.1.0
Summary: {PROJECT["description"]}

Not the engine of Weights & Biases, https://github.com/wandb/sweeps
"""


def python(*args: str, path: Path | None = None, **how) -> subprocess.CompletedProcess[str]:
    """Run this interpreter on the repository, with another folder on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (REPO, *([path] if path else []))))}
    return subprocess.run(
        [sys.executable, *args], env=env, capture_output=True, text=True, timeout=60, **how
    )


def installed(site: Path, metadata: str, version: str) -> None:
    folder = site / f"sweeps-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(metadata)


def test_the_project_has_the_name_and_the_version_that_the_code_says():
    assert (PROJECT["name"], PROJECT["version"]) == (installed_package.NAME, sweeps.__version__)
    assert provenance.versions()["sweeps"] == sweeps.__version__
    assert PROJECT["scripts"] == {"sweeps": "sweeps.cli:main"}


def test_no_hint_and_no_extra_names_the_other_package():
    files = [
        *REPO.glob("*.md"),
        *REPO.glob("*.toml"),
        *(f for d in ("sweeps", "docs", "tests") for f in (REPO / d).rglob("*.[pm][yd]")),
    ]
    hints = [
        hint
        for f in files
        for hint in re.findall(
            r"([\w-]*)\[(?:cmaes|postgresql)\b", f.read_text(encoding="utf-8")
        )
    ]
    assert "sweeps" not in hints and installed_package.NAME in hints
    extras = set(PROJECT["optional-dependencies"])
    assert (
        installed_package.install("cmaes") == f"pip install '{PROJECT['name']}[cmaes]'"
        and {"cmaes", "postgresql"} <= extras
    )


def test_the_import_warns_of_weights_and_biases_package(tmp_path):
    installed(tmp_path, THEIRS, "0.2.0")
    done = python("-c", "import sweeps; print(sweeps.SweepsError.__name__)", path=tmp_path)
    assert done.stdout == "SweepsError\n" and done.stderr.count("Warning") == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "Warning" in line]
    for part in (
        "<string>:1",
        str(tmp_path),
        "pip uninstall sweeps",
        f"install {installed_package.NAME}",
    ):
        assert part in line


@pytest.mark.parametrize("metadata", [OURS, None], ids=["ours of old", "none"])
def test_the_import_is_silent_of_our_own(tmp_path, metadata):
    if metadata is not None:
        installed(tmp_path, metadata, "0.1.0")
    done = python("-W", "error", "-c", "import sweeps", path=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_import_reads_no_metadata_by_its_library():
    done = python("-c", "import sys, sweeps; assert 'importlib.metadata' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_the_command_says_that_its_files_were_replaced(tmp_path):
    """The other package was installed over this one: its `__init__.py` stands where ours was."""
    package = tmp_path / "sweeps"
    package.mkdir()
    (package / "__init__.py").write_text(
        f'__version__ = "0.2.0"\n__path__.append({str(REPO / "sweeps")!r})\n'
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "from sweeps.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (
        done.returncode == 1
        and done.stderr.count("\n") == 1
        and "pip uninstall sweeps" in done.stderr
    ), done.stderr


# ---- what `import sweeps` and `python -m sweeps` show


def test_only_public_names_are_listed():
    assert dir(sweeps) == sorted(sweeps.__all__)
    for name in sweeps.__all__:
        assert getattr(sweeps, name) is not None
    assert not {"annotations", "TYPE_CHECKING", "Any"} & set(dir(sweeps))


def test_python_m_sweeps_is_the_command(tmp_path):
    assert python("-m", "sweeps", "--version").stdout == f"sweeps, version {sweeps.__version__}\n"
    for args, code in (
        (["--help"], 0),
        (["validate", "--help"], 0),
        (["validate"], 2),
        (["nothing"], 2),
    ):
        done = python("-m", "sweeps", *args, cwd=tmp_path)
        assert done.returncode == code and "__main__" not in done.stdout + done.stderr
        assert "python -m sweeps" in done.stdout + done.stderr
    assert python("-m", "sweeps", "ls", cwd=tmp_path).returncode == 2


def test_a_next_step_can_be_typed_where_there_is_no_script(tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.symlink_to(sys.executable)
    monkeypatch.setattr(command_hints.sys, "executable", str(bare))
    monkeypatch.setenv("PATH", "/nowhere")
    assert command_hints.shell_command("sweeps") == f"{bare} -m sweeps"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_hints.shell_command("sweeps") == "python -m sweeps"
    (tmp_path / "sweeps").touch(mode=0o755)
    assert command_hints.shell_command("sweeps") == "sweeps"
