from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands import mlflow_database


@pytest.fixture
def database() -> Any:
    """Return an empty MLflow database."""
    return mlflow_database()


@pytest.fixture
def empty_database(database: Any, tmp_path: Path) -> None:
    """Copy an empty MLflow database into the test's folder."""
    shutil.copy(database, tmp_path)
