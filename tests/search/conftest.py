from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from sweeps.space import load


@pytest.fixture
def make_space(tmp_path: Path) -> Any:
    """Load a space from the body of its `space:` section."""

    def make(
        body: str,
        max_trials: int = 40,
        algorithm: str = "tpe",
        seed: int = 3,
        scheduler: str = "{name: asha, max_t: 9}",
        objective: str = "{metric: loss, goal: minimize}",
        points: str = "[]",
        extra: str = "",
        options: str = "{}",
    ) -> Any:
        text = f"""\
name: made
trainer: xgboost
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {objective}
search: {{algorithm: {algorithm}, seed: {seed}, initial_points: {points}, options: {options}}}
{extra}
scheduler: {scheduler}
limits: {{max_trials: {max_trials}}}
space:
{textwrap.indent(textwrap.dedent(body), "  ")}
"""
        file = tmp_path / "made.yaml"
        file.write_text(text)
        return load(file)

    return make
