"""MLflow's tables in a new SQLite file, all or none: MLflow makes them in some fifty steps, and cannot go on where it was cut off."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def create(uri: str) -> None:
    """Make the database of a `sqlite:` URI where its file is missing; another process may do the same at any time.

    Args:
        uri: MLflow's tracking URI; one of another kind of store, or whose file is there, is left alone.

    Raises:
        OSError: its folder cannot be written to, or the disk is full.
    """
    from mlflow.tracking import MlflowClient
    from sqlalchemy import make_url

    if not uri.startswith("sqlite") or not (name := make_url(uri).database) or name == ":memory:":
        return
    file = Path(name)
    if file.exists() or not file.parent.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix="sweeps-mlflow-") as folder:
        made = Path(folder) / "mlflow.db"
        MlflowClient(f"sqlite:///{made}").search_experiments(max_results=1)  # which makes them
        beside = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            shutil.copyfile(made, beside)
            with contextlib.suppress(OSError):  # another process was first; or this file system has no links, and MLflow makes them there
                os.link(beside, file)
        finally:
            beside.unlink(missing_ok=True)
