from __future__ import annotations

import json
from pathlib import Path

import psutil

from sweeps.core.plugins.library_code import is_library_file


def test_python_and_installed_packages_are_libraries() -> None:
    assert is_library_file(Path(json.__file__)) and is_library_file(Path(psutil.__file__))


def test_a_package_of_another_environment_is_a_library(tmp_path: Path) -> None:
    assert is_library_file(tmp_path / "lib" / "site-packages" / "x.py")


def test_the_users_code_is_not_a_library(tmp_path: Path) -> None:
    assert not is_library_file(tmp_path / "train.py") and not is_library_file(Path(__file__))
