"""Create a new SQLite file with all of MLflow's tables. If this fails, no file remains.

MLflow itself creates the tables in about fifty steps. If MLflow is killed between two steps, it
cannot use the file later.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def create(uri: str) -> None:
    """Create the database of a `sqlite:` URI if its file is missing.

    Another process may create the database at the same time.

    Args:
        uri: MLflow's tracking URI. Nothing is done for other kinds of URIs, or if the file exists.

    Raises:
        OSError: The folder cannot be written to, or the disk is full.
    """
    from mlflow.tracking import MlflowClient
    from sqlalchemy import make_url

    name = make_url(uri).database if uri.startswith("sqlite") else None
    if not name or name == ":memory:":
        return
    file = Path(name)
    if file.exists() or not file.parent.is_dir():
        return
    with tempfile.TemporaryDirectory(prefix="sweeps-mlflow-") as folder:
        complete = Path(folder) / "mlflow.db"
        # Creates the tables.
        MlflowClient(f"sqlite:///{complete}").search_experiments(max_results=1)
        copy = file.with_name(f".{file.name}-{os.getpid()}")
        try:
            shutil.copyfile(complete, copy)
            # An error means that another process was faster, or that the file system has no links.
            # In the second case, MLflow creates the tables.
            with contextlib.suppress(OSError):
                os.link(copy, file)
        finally:
            copy.unlink(missing_ok=True)
