"""Start MLflow's server for a test, and end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def listens(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def start(folder: Path, port: int, store: str | None = None) -> subprocess.Popen[bytes]:
    """Start the server. It takes some seconds until the server listens.

    Args:
        folder: The server's working folder, to which it writes `server.log` and its artifacts.
        port: Port to listen on.
        store: URI of the database. By default, an SQLite file in the folder.
    """
    typed = [
        "-m",
        "mlflow",
        "server",
        "--port",
        str(port),
        "--backend-store-uri",
        store or f"sqlite:///{folder / 'server.db'}",
    ]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("a") as log:
        full = [sys.executable, *typed, "--workers", "1"]
        return subprocess.Popen(
            full, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )


def end(server: subprocess.Popen[bytes]) -> None:
    """Kill the server and its workers."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)
