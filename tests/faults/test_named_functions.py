"""The tests of faults name functions of sweeps in strings; each name must exist."""

from __future__ import annotations

import functools
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.commands import REPO

NAME = re.compile(r'"(sweeps(?:\.\w+)+):(\w+(?:\.\w+)*)"')
FILES = [
    *(REPO / "tests" / "faults").glob("*.py"),
    REPO / "tests" / "soak.py",
    *(REPO / "tests" / "search").glob("*.py"),
]
NAMES = sorted({match for file in FILES for match in NAME.findall(Path(file).read_text())})


@pytest.mark.parametrize(("module", "function"), NAMES, ids=[":".join(name) for name in NAMES])
def test_a_function_that_a_fault_is_injected_into_exists(module: Any, function: Any) -> None:
    assert callable(functools.reduce(getattr, function.split("."), import_module(module)))


def test_named_functions_exist() -> None:
    assert len(NAMES) > 5
