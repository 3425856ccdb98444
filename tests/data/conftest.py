from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.space import Space, load
from tests.bad_input import ROWS, top


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Space]:
    """Load the base of the bad input with other data, in a folder with `rows.csv`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)

    def do(
        data: str = "{train: rows.csv, label: y, valid: 0.25}", *overrides: str, **changes: str
    ) -> Space:
        trainer = {} if "label:" in data else {"trainer": "{loop: json:load}"}  # ours need a label
        (tmp_path / "space.yaml").write_text(top(data=data, **trainer, **changes))
        return load("space.yaml", overrides)

    return do


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Write `rows_module.py` beside the space file, and unload it after the test."""

    def write(code: str) -> str:
        (tmp_path / "rows_module.py").write_text(
            "import numpy as np, pandas as pd, pyarrow as pa\n" + code
        )
        sys.modules.pop("rows_module", None)
        return "rows_module:load"

    yield write
    sys.modules.pop("rows_module", None)
