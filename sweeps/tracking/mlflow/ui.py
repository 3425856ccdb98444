"""MLflow's UI on the root of all sweeps: a server of our own while this lasts, and links that lead straight to a sweep's trials."""

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
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sweeps.core import logging_setup
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.secrets import without_password
from sweeps.core.suggestions import did_you_mean
from sweeps.core.sweep_folder import ORIGIN
from sweeps.tracking.mlflow import views
from sweeps.tracking.mlflow.tracker import default_uri

START_SECONDS = 60.0
# An open browser keeps connections alive, for which the server would wait.
END_SECONDS = 3.0
# In which a server that runs elsewhere says anything at all.
ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class Sweep:
    """A sweep as MLflow has it.

    Attributes:
        name: of the sweep.
        run, experiment: ids.
        began: seconds since the epoch.
        minimize: whether smaller is better.
        viewed: whether views of its trials and of all sweeps were saved.
    """

    name: str
    run: str
    experiment: str
    began: float
    minimize: bool
    viewed: bool


def _say(text: str) -> None:
    print(text, flush=True)


def serve_ui(
    root: Path,
    host: str = "127.0.0.1",
    port: int = 5000,
    open_browser: bool = False,
    sweep: str | None = None,
    uri: str | None = None,
    say: Callable[[str], None] = _say,
) -> int:
    """Serve MLflow's UI until Ctrl-C, and print links to the newest sweep.

    Args:
        root: of all sweeps.
        host: address to listen on.
        port: to listen on; 0 for any free one.
        open_browser: open the sweep's trials in a browser.
        sweep: the sweep to link to, in place of the newest; see `named`.
        uri: MLflow's; by default `MLFLOW_TRACKING_URI`, else SQLite in `root`. A server that runs already gets no other one beside it:
            the links lead to it.
        say: prints.

    Returns:
        An exit code: 0 after Ctrl-C.

    Raises:
        InputError: nothing to show, no such sweep, or host or port cannot be listened on.
        SweepsError: MLflow did not start, or does not answer.
    """
    logging_setup.set_environment()
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(root)
    if uri.startswith(("http://", "https://")):
        _reach(uri)
        _show(uri, f"MLflow runs at {uri}", sweep, open_browser, say)
        return 0
    if uri == default_uri(root):
        if not (root / "mlflow.db").is_file():
            raise InputError(Problem(str(root), "no sweeps here yet: it holds no mlflow.db"))
        if sweep is not None:  # known before the server is up
            named([file.parent.name for file in sorted(root.glob(f"*/{ORIGIN}"), reverse=True)], sweep)
    port = free_port(host, port)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    server = f"http://{shown}:{port}"
    with _ending_as_interrupt(), tempfile.TemporaryFile() as log:
        process = _start(uri, root, host, port, log)
        try:
            say(f"starting MLflow's UI on {root}, which takes some seconds")
            _await(process, server, log)
            _show(server, f"MLflow's UI is at {server}; Ctrl-C ends it", sweep, open_browser, say)
            process.wait()
            raise SweepsError(f"MLflow's server ended: {_last_line(log)}")
        except KeyboardInterrupt:
            return 0
        finally:
            _end(process)


def free_port(host: str, port: int) -> int:
    """The port, or a free one for 0.

    Raises:
        InputError: it cannot be listened on.
    """
    if not 0 <= port <= 65535:
        raise InputError(Problem("--port", f"{port}: must be from 0 to 65535"))
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as e:
        raise InputError(Problem("--host", f"`{host}`: no address of this machine: {e}")) from e
    with socket.socket(family, kind, protocol) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(address)
            return int(s.getsockname()[1])
        except OSError as e:
            if e.errno == errno.EADDRINUSE:
                raise InputError(Problem("--port", f"{port}: another process listens on it; take another, or 0 for any free one")) from e
            if e.errno == errno.EACCES:
                raise InputError(Problem("--port", f"{port}: only the superuser may listen on it; take one above 1023")) from e
            raise InputError(Problem("--host", f"`{host}`: no address of this machine")) from e


def choose(found: Sequence[Sweep], name: str | None) -> Sweep | None:
    """The sweep of that name, else the newest; None where there is none.

    Raises:
        InputError: no sweep has the name.
    """
    if name is None:
        return max(found, key=lambda s: s.began, default=None)
    known = sorted(found, key=lambda s: -s.began)
    return known[named([s.name for s in known], name)]


def named(known: Sequence[str], name: str) -> int:
    """Which sweep a user means by its name, by the beginning of that, by its folder, or by `latest`.

    Args:
        known: names, the newest first.
        name: as the user has it.

    Raises:
        InputError: none of them, or several.
    """
    asked = Path(name).name
    if asked == "latest" and known:
        return 0
    matching = [n for n in known if n == asked] or [n for n in known if n.startswith(asked)]
    if len(matching) > 1:
        raise InputError(Problem("--sweep", f"several sweeps begin with `{asked}`: {', '.join(matching[:5])}"))
    if not matching:
        raise InputError(Problem("--sweep", f"no sweep `{name}`; {did_you_mean(name, known[:20]) if known else 'there is none'}"))
    return known.index(matching[0])


def links(server: str, sweep: Sweep) -> dict[str, str]:
    """Where to look, the trials first."""
    if not sweep.viewed:  # by an earlier version
        trials = {"trials, best first": views.plain_link(server, sweep.experiment, sweep.name, sweep.minimize)}
        return {**trials, "the sweep": views.run_link(server, sweep.experiment, sweep.run)}
    return {
        "trials, best first": views.runs_link(server, sweep.experiment, sweep.name),
        "charts": views.runs_link(server, sweep.experiment, sweep.name, chart=True),
        "the sweep": views.run_link(server, sweep.experiment, sweep.run),
        "all sweeps": views.runs_link(server, sweep.experiment, views.ALL_SWEEPS),
    }


def _show(server: str, head: str, name: str | None, open_browser: bool, say: Callable[[str], None]) -> None:
    sweep = choose(_sweeps(server), name)
    say(head)
    if sweep is None:
        return
    told = links(server, sweep)
    say("\n".join([sweep.name, *(f"  {what:<19} {link}" for what, link in told.items())]))
    if open_browser:
        webbrowser.open(next(iter(told.values())))


def _reach(uri: str) -> None:
    """Say soon that nobody answers; MLflow's client would try for minutes.

    Raises:
        SweepsError: nobody does.
    """
    address = urllib.parse.urlsplit(uri)
    server = address._replace(netloc=address.netloc.rpartition("@")[2], query="", fragment="").geturl()
    try:
        urllib.request.urlopen(server, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # it answers, if only to say that it wants a password
    except (OSError, http.client.HTTPException) as e:
        why = getattr(e, "reason", e)
        if not isinstance(why, ssl.SSLError):  # MLflow's client knows how far to trust it
            raise SweepsError(f"MLflow at {without_password(uri)} does not answer: {why}") from e


def _sweeps(server: str) -> list[Sweep]:
    """All that a server knows, of every experiment."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient(server)
    found: list[Sweep] = []
    try:
        experiments: dict[str, Any] = {e.experiment_id: e.tags for e in client.search_experiments()}
        runs = client.search_runs(list(experiments), "tags.`sweeps.kind` = 'sweep'", max_results=1000) if experiments else []
    except MlflowException as e:
        raise SweepsError(f"MLflow at {server} does not answer: {str(e).splitlines()[0]}") from e
    for run in runs:
        name, experiment = run.data.tags["sweeps.sweep"], run.info.experiment_id
        minimize = run.data.params.get("objective.goal") != "maximize"
        viewed = views.VIEW_TAG + name in experiments[experiment]
        found.append(Sweep(name, run.info.run_id, experiment, run.info.start_time / 1000, minimize, viewed))
    return found


# ---- the server


def _start(uri: str, root: Path, host: str, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """MLflow's server, the leader of a process group, so that it and its workers can be ended together."""
    env = {name: value for name, value in os.environ.items() if name not in ("MLFLOW_TRACKING_URI", "MLFLOW_BACKEND_STORE_URI")}
    env |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # workers for language models
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host", host, "--port", str(port), "--workers", "1"]
    # in the root, where artifacts are: it makes a folder for them where it is started
    return subprocess.Popen(command, cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def _await(process: subprocess.Popen[bytes], server: str, log: IO[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"{server}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise SweepsError(f"MLflow's server did not start: {_last_line(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)


@contextlib.contextmanager
def _ending_as_interrupt() -> Iterator[None]:
    """While this lasts, being asked to end is what Ctrl-C is; only a main thread can hear of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"
