"""Create MLflow's tables in a new SQLite file, all or none.

MLflow creates them in some fifty steps and cannot continue if it is killed in between.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def create(uri: str) -> None:
    """Create the database of a `sqlite:` URI if its file is missing. Another process may do the same at the same time.

    Args:
        uri: MLflow's tracking URI. URIs of other stores, and files that exist, are left alone.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    from mlflow.tracking import MlflowClient
    from sqlalchemy import make_url

    if not uri.startswith("sqlite") or not (name := make_url(uri).database) or name == ":memory:":
        return
    file = Path(name)
    if file.exists() or not file.parent.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix="sweeps-mlflow-") as folder:
        complete = Path(folder) / "mlflow.db"
        MlflowClient(f"sqlite:///{complete}").search_experiments(max_results=1)  # creates the tables
        copy = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            shutil.copyfile(complete, copy)
            with contextlib.suppress(
                OSError
            ):  # another process was faster, or the file system has no links; MLflow then creates the tables
                os.link(copy, file)
        finally:
            copy.unlink(missing_ok=True)
