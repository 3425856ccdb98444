from __future__ import annotations

import shutil

import pytest

from tests.commands import mlflow_database


@pytest.fixture
def database():
    """Return an empty MLflow database."""
    return mlflow_database()


@pytest.fixture
def empty_database(database, tmp_path):
    """Copy an empty MLflow database into the test's folder."""
    shutil.copy(database, tmp_path)
