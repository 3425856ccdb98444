"""A small valid space file, and fixtures that load variations of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.space import Space, load

HEAD = """\
trainer: xgboost
data: {train: d.csv, valid: 0.2, label: y}
objective: {metric: valid-logloss, goal: minimize}
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write `space.yaml` into a new folder, change to this folder, and return the file's relative
    path.
    """
    monkeypatch.chdir(tmp_path)

    def do(text: str) -> Path:
        path = Path("space.yaml")
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    return do


@pytest.fixture
def space(write: Write) -> Callable[..., Space]:
    """Load the space file with another `space:` section.

    The section is given without its first line and without indentation.
    """

    def do(section: str, *overrides: str, limits: str = "max_trials: 50") -> Space:
        body = "".join(f"  {line}\n" for line in section.strip("\n").splitlines())
        return load(write(f"{HEAD}limits: {{{limits}}}\nspace:\n{body}"), overrides)

    return do


@pytest.fixture
def lines(write: Write) -> Callable[..., list[str]]:
    """Return the problems of a file as lines, without the file's name."""

    def do(text: str, *overrides: str) -> list[str]:
        with pytest.raises(InputError) as e:
            load(write(text), overrides)
        return [str(problem).removeprefix("space.yaml:") for problem in e.value.problems]

    return do
