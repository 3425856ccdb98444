"""The name and the version of the installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core import installed_package
from sweeps.core.files import provenance
from sweeps.core.text import shell_text
from tests.commands import REPO

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python(*args: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run this interpreter on the repository, with another folder on its path."""
    env = {**os.environ, "PYTHONPATH": str(REPO)}
    return subprocess.run(
        [sys.executable, *args], env=env, capture_output=True, text=True, timeout=60, **how
    )


def test_the_project_has_the_name_and_the_version_that_the_code_says() -> None:
    assert (PROJECT["name"], PROJECT["version"]) == (installed_package.NAME, sweeps.__version__)
    assert provenance.versions()["sweeps"] == sweeps.__version__
    assert PROJECT["scripts"] == {"sweeps": "sweeps.cli:main"}


def test_no_hint_and_no_extra_names_the_other_package() -> None:
    files = [
        *REPO.glob("*.md"),
        *REPO.glob("*.toml"),
        *(f for d in ("sweeps", "docs", "tests") for f in (REPO / d).rglob("*.[pm][yd]")),
    ]
    hints = [
        hint
        for f in files
        for hint in re.findall(r"([\w-]*)\[(?:cmaes|postgresql)\b", f.read_text(encoding="utf-8"))
    ]
    assert "sweeps" not in hints and installed_package.NAME in hints
    extras = set(PROJECT["optional-dependencies"])
    assert (
        installed_package.install_command("cmaes") == f"pip install '{PROJECT['name']}[cmaes]'"
        and {"cmaes", "postgresql"} <= extras
    )


# ---- what `import sweeps` and `python -m sweeps` show


def test_only_public_names_are_listed() -> None:
    assert dir(sweeps) == sorted(sweeps.__all__)
    for name in sweeps.__all__:
        assert getattr(sweeps, name) is not None
    assert not {"annotations", "TYPE_CHECKING", "Any"} & set(dir(sweeps))


def test_python_m_sweeps_is_the_command(tmp_path: Path) -> None:
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


def test_a_next_step_can_be_typed_where_there_is_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(bare))
    monkeypatch.setenv("PATH", "/nowhere")
    assert shell_text.shell_command("sweeps") == f"{bare} -m sweeps"
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "sweeps").touch(mode=0o755)
    assert shell_text.shell_command("sweeps") == "sweeps"
