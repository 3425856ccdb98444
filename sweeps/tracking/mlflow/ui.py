"""Run MLflow's web interface for all sweeps of a root folder, and make links to the pages of a sweep."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sweeps.core import logging_setup
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.secrets import without_password
from sweeps.core.suggestions import did_you_mean
from sweeps.tracking.mlflow import views
from sweeps.tracking.mlflow.tracker import default_uri

# Seconds to wait: until a new server has started, until a server has ended, and until a remote server answers.
# A server that ends would wait for open browsers.
START_SECONDS = 60.0
END_SECONDS = 3.0
ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Sweep:
    """A sweep in MLflow.

    Attributes:
        name: Name of the sweep.
        run: ID of the sweep's parent run.
        experiment: ID of the sweep's experiment.
        started: When the sweep started, in seconds since the epoch.
    """

    name: str
    run: str
    experiment: str
    started: float


@contextlib.contextmanager
def running_server(
    root: Path, host: str, port: int, uri: str | None, stop: threading.Event
) -> Iterator[str]:
    """Run MLflow's web interface while the `with` block runs, and yield its address.

    Args:
        root: Folder of all sweeps.
        host: Address to listen on.
        port: Port to listen on; 0 selects a free port.
        uri: MLflow's tracking URI. By default, the value of `MLFLOW_TRACKING_URI`, or else a SQLite file in `root`. If the URI names a
            running server, no new server is started.
        stop: Set by another thread to give up waiting for the start of the server.

    Raises:
        InputError: MLflow has recorded no sweep in the root, or the host and port are not available.
        SweepsError: MLflow did not start, or does not answer.
    """
    logging_setup.set_environment()
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(root)
    if uri.startswith(("http://", "https://")):
        _check_server(uri)
        yield uri
        return
    if uri == default_uri(root) and not (root / "mlflow.db").is_file():
        raise InputError(
            Problem(str(root), "the folder has no mlflow.db, so MLflow has recorded no sweep in it")
        )
    port = free_port(host, port)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    server = f"http://{shown}:{port}"
    with tempfile.TemporaryFile() as log:
        process = _start_server(uri, root, host, port, log)
        try:
            _wait_for_server(process, server, log, stop)
            yield server
        finally:
            _stop_server(process)


def free_port(host: str, port: int) -> int:
    """Return `port` if it is available, or a free port if `port` is 0.

    Raises:
        InputError: The port is out of range or in use, or the host is not an address of this machine.
    """
    if not 0 <= port <= 65535:
        raise InputError(
            Problem("--mlflow-port", f"{port} is not a port; a port must be from 0 to 65535")
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as e:
        raise InputError(
            Problem("--host", f"`{host}` is not an address of this machine: {e}")
        ) from e
    with socket.socket(family, kind, protocol) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(address)
            return int(s.getsockname()[1])
        except OSError as e:
            if e.errno == errno.EADDRNOTAVAIL:
                raise InputError(
                    Problem("--host", f"`{host}` is not an address of this machine")
                ) from e
            raise InputError(
                Problem(
                    "--mlflow-port",
                    f"{port}: {os.strerror(e.errno or 0)}; choose another port, or 0 for any free port",
                )
            ) from e


def choose_sweep(sweeps: Sequence[Sweep], name: str | None) -> Sweep | None:
    """Return the sweep that `name` selects. If `name` is None, return the newest sweep, or None if there are no sweeps.

    Raises:
        InputError: The name matches no sweep, or several sweeps.
    """
    if name is None:
        return max(sweeps, key=lambda s: s.started, default=None)
    known = sorted(sweeps, key=lambda s: -s.started)
    return known[index_of([s.name for s in known], name)]


def index_of(known: Sequence[str], name: str) -> int:
    """Return the index of the sweep that a name selects.

    Args:
        known: Names of sweeps, the newest first.
        name: A sweep's name, the start of its name, its folder, or `latest`.

    Raises:
        InputError: The name matches no sweep, or several sweeps.
    """
    start = Path(name).name
    if start == "latest" and known:
        return 0
    matching = [n for n in known if n == start] or [n for n in known if n.startswith(start)]
    if len(matching) > 1:
        raise InputError(
            Problem(
                "--sweep",
                f"the names of several sweeps start with `{start}`: {', '.join(matching[:5])}; give more of the name",
            )
        )
    if not matching:
        raise InputError(
            Problem(
                "--sweep",
                f"no sweep `{name}`; {did_you_mean(name, known[:20]) if known else 'there are no sweeps'}",
            )
        )
    return known.index(matching[0])


def links(server: str, sweep: Sweep) -> dict[str, str]:
    """Return the URLs of a sweep's pages by title. The page of the trials comes first."""
    return {
        "trials, best first": views.runs_link(server, sweep.experiment, sweep.name),
        "charts": views.runs_link(server, sweep.experiment, sweep.name, chart=True),
        "the sweep": views.run_link(server, sweep.experiment, sweep.run),
        "all sweeps": views.runs_link(server, sweep.experiment, views.ALL_SWEEPS),
    }


def links_by_name(server: str, sweeps: Iterable[Sweep]) -> dict[str, dict[str, str]]:
    """Return the URLs of the pages of each sweep (see `links`), by the name of the sweep."""
    return {sweep.name: links(server, sweep) for sweep in sweeps}


def _check_server(uri: str) -> None:
    """Check that a server answers within seconds. Without this check, MLflow's client would retry for minutes.

    Raises:
        SweepsError: The server does not answer.
    """
    address = urllib.parse.urlsplit(uri)
    server = address._replace(
        netloc=address.netloc.rpartition("@")[2], query="", fragment=""
    ).geturl()
    try:
        urllib.request.urlopen(server, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # The server answers, even if only to ask for a password.
    except (OSError, http.client.HTTPException) as e:
        reason = getattr(e, "reason", e)
        if not isinstance(
            reason, ssl.SSLError
        ):  # MLflow's client has its own settings for certificates.
            raise SweepsError(f"MLflow at {without_password(uri)} does not answer: {reason}") from e


def find_sweeps(server: str) -> list[Sweep]:
    """Return the sweeps in all experiments of a server.

    Raises:
        SweepsError: The server does not answer.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient(server)
    try:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = (
            client.search_runs(experiments, "tags.`sweeps.kind` = 'sweep'", max_results=1000)
            if experiments
            else []
        )
    except MlflowException as e:
        raise SweepsError(f"MLflow at {server} does not answer: {str(e).splitlines()[0]}") from e
    return [
        Sweep(
            run.data.tags["sweeps.sweep"],
            run.info.run_id,
            run.info.experiment_id,
            run.info.start_time / 1000,
        )
        for run in runs
    ]


# The server


def _start_server(
    uri: str, root: Path, host: str, port: int, log: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start MLflow's server as the leader of a process group, so that it can be stopped together with its workers."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MLFLOW_TRACKING_URI", "MLFLOW_BACKEND_STORE_URI")
    }
    env |= {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"
    }  # Job workers are only for language models.
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        uri,
        "--host",
        host,
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    # The server runs in the root, because MLflow creates a folder for artifacts in its working directory.
    return subprocess.Popen(
        command,
        cwd=root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _wait_for_server(
    process: subprocess.Popen[bytes], server: str, log: IO[bytes], stop: threading.Event
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline and not stop.wait(0.1):
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(f"{server}/health", timeout=2) as answer,
        ):
            if answer.status == 200:
                return
    raise SweepsError(f"MLflow's server did not start: {_last_line(log)}")


def _stop_server(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "the server printed nothing"
