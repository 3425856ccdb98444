"""`sweeps ui`: serve the page, with MLflow beside it, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.sweep_folder import ORIGIN
from sweeps.serving.access import Access, open_to_others
from sweeps.serving.server import listening, url_of, warn_if_open
from sweeps.tracking.mlflow import ui as mlflow_ui

if TYPE_CHECKING:
    import uvicorn

    from sweeps.dashboard.app import Dashboard

# Seconds between two looks for sweeps that MLflow has recorded meanwhile, and seconds in which open requests may end at a shutdown.
LINK_SECONDS, END_SECONDS = 10.0, 3
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Mlflow:
    """MLflow beside the page.

    Attributes:
        port: Port to listen on; 0 for any free port; None to start no MLflow.
        uri: MLflow's tracking URI; None for the default.
    """

    port: int | None = 5000
    uri: str | None = None


def serve(
    root: Path,
    host: str,
    port: int,
    say: Callable[[str], None],
    access: Access,
    mlflow: Mlflow,
    sweep: str | None,
    open_browser: bool,
) -> None:
    """Serve the page until SIGTERM or Ctrl-C.

    Args:
        root: Root folder of all sweeps.
        host: The host to listen on.
        port: The port to listen on; 0 for any free port.
        say: Function that prints a message.
        access: The allowed hosts and the token. If no hosts are given and the server listens on this machine only, names of this machine
            are allowed. Otherwise, a site could send requests under its own name with the address of this machine (DNS rebinding).
        mlflow: MLflow beside the page.
        sweep: The sweep whose page is named; None for the page of all sweeps.
        open_browser: True to open the page in a browser.

    Raises:
        InputError: The root does not exist, there is no such sweep, or the server cannot listen.
    """
    from sweeps.controller.sweep_lookup import find
    from sweeps.dashboard.app import Dashboard, make_app

    if not root.is_dir():
        raise InputError(
            Problem("--dir", f"the folder {root} does not exist; `sweeps run` creates it")
        )
    sweep = None if sweep is None else find(sweep, root).name
    shown = "" if sweep is None else f"/#{quote(sweep)}"
    is_open = open_to_others(host)
    if not access.hosts and not is_open:
        access = Access((*LOOPBACK, host.lower()), access.digest)
    warn_if_open(host, access, say)
    dashboard = Dashboard(root.resolve(), may_command=access.digest is not None or not is_open)
    with listening(host, port) as listener:
        server = _server(make_app(dashboard, access), dashboard)
        url = url_of(host, listener.getsockname()[1])
        say(f"the page of the sweeps is at {url}{shown}; press Ctrl-C to stop")
        stop = threading.Event()
        # MLflow knows no token, so only this machine can reach it if the page has one.
        of_mlflow = (
            dashboard.mlflow,
            root,
            host if access.digest is None else LOOPBACK[1],
            mlflow,
            sweep,
            say,
            stop,
        )
        beside = threading.Thread(target=_run_mlflow, args=of_mlflow)
        beside.start()
        if open_browser:
            webbrowser.open(f"{url}{shown}")
        # uvicorn raises the signal again when it ends, and then these handlers do nothing.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, server.handle_exit)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.run([listener])
        finally:
            stop.set()
            beside.join()


def _server(app: Any, dashboard: Dashboard) -> uvicorn.Server:
    """Return uvicorn's server, which ends the streams of events when it shuts down."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            dashboard.ended = True
            super().handle_exit(sig, frame)

    # uvicorn's own configuration of logging would close the handlers of all other loggers, and files that they write to.
    return Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="error",
            access_log=False,
            ws="none",
            timeout_graceful_shutdown=END_SECONDS,
        )
    )


def _run_mlflow(
    pages: dict[str, dict[str, str]],
    root: Path,
    host: str,
    mlflow: Mlflow,
    sweep: str | None,
    say: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Run MLflow's web interface until `stop` is set, and keep the addresses of all sweeps in `pages`. Print the links to one sweep."""
    if mlflow.port is None:
        return
    try:
        with mlflow_ui.running_server(root, host, mlflow.port, mlflow.uri, stop) as server:
            found = mlflow_ui.find_sweeps(server)
            pages.update(mlflow_ui.links_by_name(server, found))
            say(f"MLflow's web interface is at {server}")
            if (chosen := mlflow_ui.choose_sweep(found, sweep)) is not None:
                say(
                    "\n".join(
                        [
                            chosen.name,
                            *(
                                f"  {title:<19} {link}"
                                for title, link in pages[chosen.name].items()
                            ),
                        ]
                    )
                )
            while not stop.wait(LINK_SECONDS):
                if any(file.parent.name not in pages for file in root.glob(f"*/{ORIGIN}")):
                    pages.update(mlflow_ui.links_by_name(server, mlflow_ui.find_sweeps(server)))
    except SweepsError as e:
        if not stop.is_set():
            say(f"MLflow's web interface does not run: {e}")
