from __future__ import annotations

import pytest

from tests.commands import REPO


@pytest.fixture
def script_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let scripts import this checkout of sweeps, and hide the variables of an outer run."""
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    for name in ("RANK", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
