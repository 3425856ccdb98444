"""The space files that ship, some of which need packages that are optional."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.space import Space, load

FOLDER = Path(__file__).parent.parent / "search_spaces"


def loadable() -> list[Path]:
    """Return the space files that ship, without those whose trainer needs a package that is not
    installed.
    """
    return [file for file in sorted(FOLDER.glob("*.yaml")) if missing_package(file) is None]


def load_or_skip(file: Path) -> Space:
    """Load a space file. Skip the test if the trainer needs a package that is not installed."""
    if (problem := missing_package(file)) is not None:
        pytest.skip(problem)
    return load(file)


def missing_package(file: Path) -> str | None:
    """Return the message that a package of the trainer is not installed.

    Return None if there is no such problem.
    """
    try:
        load(file)
    except InputError as e:
        return next(
            (
                str(problem)
                for problem in e.problems
                if "not installed; run `pip install" in problem.text
            ),
            None,
        )
    return None
