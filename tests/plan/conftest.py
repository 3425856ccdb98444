from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeps.space import Space, load

Make = Callable[..., Space]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that loads a space from the body of its `space:` section."""

    def do(
        body: str = "{}",
        trials: int = 12,
        scheduler: str = "{name: asha, max_t: 9}",
        limits: str = "",
        data: str = "{train: d.csv, label: y, valid: 0.2}",
        trainer: str = "xgboost",
        repeats: int = 1,
    ) -> Space:
        file = tmp_path / "made.yaml"
        file.write_text(
            f"trainer: {trainer}\ndata: {data}\nobjective: {{metric: loss, goal: minimize}}\n"
            f"scheduler: {scheduler}\nrepeats: {repeats}\n"
            f"limits: {{max_trials: {trials}{', ' * bool(limits)}{limits}}}\n"
            f"space:\n{textwrap.indent(textwrap.dedent(body), '  ')}\n"
        )
        return load(file)

    return do
