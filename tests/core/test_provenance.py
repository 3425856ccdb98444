"""The record of a sweep's environment: commit, changes, versions, seed and data."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.files import provenance
from sweeps.core.files.sweep_folder import PROVENANCE
from sweeps.core.text.secrets import remember


@pytest.fixture
def repository(tmp_path: Path) -> Any:
    def git(*args: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *args], cwd=tmp_path / "code", check=True, capture_output=True)

    (tmp_path / "code").mkdir()
    git("init", "-q")
    (tmp_path / "code" / "loop.py").write_text("a = 1\n")
    git("add", ".")
    git("commit", "-qm", "x")
    return tmp_path / "code"


def test_a_clean_commit_has_no_diff(repository: Any, tmp_path: Path) -> None:
    files = provenance.record(tmp_path, repository, 7, "abc", 1e9)
    assert list(files) == [PROVENANCE]
    (entry,) = json.loads((tmp_path / PROVENANCE).read_text())
    assert (entry["seed"], entry["data_fingerprint"], entry["git"]["dirty"]) == (7, "abc", "no")
    assert len(entry["git"]["commit"]) == 40 and {"python", "ray", "optuna"} <= set(
        entry["versions"]
    )


def test_what_differs_is_kept_for_each_driver(repository: Any, tmp_path: Path) -> None:
    (repository / "loop.py").write_text("a = 2\n")
    (repository / "new.py").touch()
    files = provenance.record(tmp_path, repository, 7, "abc", 1e9)
    assert "-a = 1\n+a = 2\n" in files["code.diff"] and "# not in git: new.py" in files["code.diff"]
    again = provenance.record(tmp_path, repository, 7, "abc", 2e9)
    assert set(again) == {PROVENANCE, "code-2.diff"} and (tmp_path / "code-2.diff").is_file()
    assert [entry["diff"] for entry in json.loads(again[PROVENANCE])] == [
        "code.diff",
        "code-2.diff",
    ]


def test_a_diff_shows_no_secret(repository: Any, tmp_path: Path) -> None:
    remember("my-own-secret")
    (repository / "loop.py").write_text("key = 'my-own-secret'\n")
    provenance.record(tmp_path, repository, 7, "abc", 1e9)
    assert "+key = '***'" in (tmp_path / "code.diff").read_text()
