"""sweeps warns once about a Ray that the contract test has not passed, and pyproject.toml excludes
such versions.
"""

from __future__ import annotations

import re
import tomllib

import pytest

from sweeps.execution.cluster import ray_version
from tests.commands import REPO


@pytest.mark.parametrize("version", ["2.60.0", "2.60.3", "2.60.0rc1", "2.60"])
def test_a_tested_version_brings_no_warning(version: str) -> None:
    assert ray_version.warning_for(version) is None


@pytest.mark.parametrize("version", ["2.59.2", "2.61.0", "2.6.0", "3.0.0.dev0"])
def test_another_version_is_named_beside_those_that_are_tested(version: str) -> None:
    text = ray_version.warning_for(version)
    assert text is not None and version in text and "2.60.*" in text and "pip install" in text


def test_a_process_warns_once(capsys: pytest.CaptureFixture[str]) -> None:
    ray_version.warn_once.cache_clear()
    ray_version.warn_once("9.9.0")
    ray_version.warn_once("9.9.0")
    assert capsys.readouterr().err.count("9.9.0") == 1


def test_the_bounds_of_the_package_are_the_versions_that_are_tested() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    every = [*project["dependencies"], *project["optional-dependencies"]["rllib"]]
    lines = [line for line in every if re.match(r"ray\b", line)]
    first, last = ray_version.TESTED[0], ray_version.TESTED[-1]
    major, minor = last.split(".")
    assert len(lines) == 2 and all(
        line.endswith(f">={first},<{major}.{int(minor) + 1}") for line in lines
    )
    assert f"\nray=={last}." in (REPO / "constraints.txt").read_text()
