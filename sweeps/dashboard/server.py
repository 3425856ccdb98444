"""`sweeps ui`: serve the page, with MLflow behind it, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import signal
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sweeps.core import logging_setup
from sweeps.core.errors import InputError, SweepsError
from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import ORIGIN
from sweeps.serving.access import Access, open_to_others
from sweeps.serving.server import listening, url_of, warn_if_open
from sweeps.tracking.mlflow.tracker import default_uri
from sweeps.tracking.mlflow.ui import check_server, find_links
from sweeps.tracking.mlflow.uris import check_uri

if TYPE_CHECKING:
    import uvicorn

    from sweeps.dashboard.app import Dashboard
    from sweeps.dashboard.mlflow_pages import MlflowPages

# Seconds between two looks for sweeps that MLflow has recorded meanwhile.
LINK_SECONDS = 10.0
# Seconds in which open requests may end at a shutdown.
END_SECONDS = 3
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class PageOptions:
    """Options of the page.

    Attributes:
        host: The host to listen on.
        port: The port to listen on; 0 for any free port.
        allowed_hosts: The allowed Host headers, separated by commas. With None, a page that only
            this machine can reach allows the names of this machine. Otherwise, a site could send
            requests under its own name with the address of this machine (DNS rebinding).
        token: The token that requests must have; None for a new one.
        needs_token: False for a page without a token.
        mlflow: True to show MLflow's web interface.
        tracking_uri: MLflow's tracking URI; None for the default.
        sweep: The sweep to show first; None for the list of all sweeps.
        open_browser: True to open the page in a browser.
    """

    host: str = "127.0.0.1"
    port: int = 5050
    allowed_hosts: str | None = None
    token: str | None = None
    needs_token: bool = True
    mlflow: bool = True
    tracking_uri: str | None = None
    sweep: str | None = None
    open_browser: bool = False


def serve(root: Path, options: PageOptions, say: Callable[[str], None]) -> None:
    """Serve the page until SIGTERM or Ctrl-C.

    Args:
        root: Root folder of all sweeps. It may not exist yet.
        options: Options of the page.
        say: Function that prints a message.

    Raises:
        InputError: The root is not a folder, there is no such sweep, or the server cannot listen.
    """
    from sweeps.controller.sweep_lookup import find
    from sweeps.dashboard.app import Dashboard, make_app
    from sweeps.dashboard.mlflow_pages import MlflowPages

    if root.exists() and not root.is_dir():
        raise InputError("--dir", f"{root} is not a folder")
    if options.tracking_uri is not None:
        check_uri(options.tracking_uri, "--tracking-uri")
    root = root.resolve()
    shown = "" if options.sweep is None else f"#{quote(find(options.sweep, root).name)}"
    is_open = open_to_others(options.host)
    token = options.token
    if token is None and options.needs_token and not is_open:
        token = secrets.token_urlsafe(24)
    access = Access.of(options.allowed_hosts, token)
    if not access.hosts and not is_open:
        access = Access((*LOOPBACK, options.host.lower()), access.digest)
    dashboard = Dashboard(root, may_command=token is not None or not is_open)
    pages = MlflowPages(root, access) if options.mlflow else None
    with listening(options.host, options.port) as listener:
        warn_if_open(options.host, access, say)
        if not dashboard.may_command:
            say("so the page takes no commands, and MLflow can only be read")
        server = _server(make_app(dashboard, access, pages), dashboard, say)
        url = url_of(options.host, listener.getsockname()[1])
        with_token = f"{url}/?token={token}{shown}" if token is not None else f"{url}/{shown}"
        # A token that the user has chosen is not printed.
        printed = with_token if options.token is None else f"{url}/{shown}"
        say(f"the page of the sweeps is at {printed}; press Ctrl-C to stop")
        if not root.exists():
            say(
                f"{root} does not exist yet; the page shows its sweeps as soon as `sweeps run` "
                "creates it"
            )
        stop = threading.Event()
        if pages is not None:
            uri = options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
            loading = (dashboard, pages, uri or default_uri(root), url, say, stop)
            # A daemon, because the import of MLflow cannot be interrupted.
            threading.Thread(target=_run_mlflow, args=loading, daemon=True).start()
        # uvicorn raises the signal again when it ends, and then these handlers do nothing.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, server.handle_exit)
        opened = _browser(with_token) if options.open_browser else contextlib.nullcontext()
        with opened, contextlib.suppress(KeyboardInterrupt):
            server.run([listener])
        stop.set()


@contextlib.contextmanager
def _browser(url: str) -> Iterator[None]:
    """Open a URL in a browser. Within the `with` block, a file leads the browser there.

    Other accounts can read the command line of a browser, so it must not have the token.
    """
    with tempfile.NamedTemporaryFile("w", prefix="sweeps-", suffix=".html") as file:
        target = html.escape(url)
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">')
        file.flush()
        webbrowser.open(Path(file.name).as_uri())
        yield


def _server(app: Any, dashboard: Dashboard, say: Callable[[str], None]) -> uvicorn.Server:
    """Return uvicorn's server, which ends the streams of events when it shuts down."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not dashboard.ended:
                say("stopping")
            dashboard.ended = True
            super().handle_exit(sig, frame)

    # uvicorn's own configuration of logging would close the handlers of all other loggers, and
    # files that they write to.
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
    dashboard: Dashboard,
    pages: MlflowPages,
    uri: str,
    url: str,
    say: Callable[[str], None],
    stop: threading.Event,
) -> None:
    """Load MLflow's pages, and keep the links to all sweeps in the dashboard until `stop` is set.

    Args:
        dashboard: The endpoints of the page, which get the links.
        pages: MLflow's pages. They are not loaded if `uri` names a running server.
        uri: MLflow's tracking URI.
        url: Address of the page.
        say: Function that prints a message.
        stop: Set by another thread to end this function.
    """
    logging_setup.set_environment()  # before MLflow is imported
    own = default_uri(dashboard.root)
    said = ""
    while not stop.is_set():
        if uri == own and not (dashboard.root / "mlflow.db").is_file():
            pages.state = "MLflow has recorded no sweep in this folder yet."
            stop.wait(1.0)
            continue
        try:
            _update_mlflow(dashboard, pages, uri, is_own=uri == own)
            new = f"MLflow's web interface is at {_address_of_mlflow(uri, url)}"
        except (SweepsError, ImportError) as e:
            new = pages.state = f"MLflow's web interface does not run: {e}"
        if new != said:
            say(new)
            said = new
        stop.wait(LINK_SECONDS)


def _update_mlflow(dashboard: Dashboard, pages: MlflowPages, uri: str, is_own: bool) -> None:
    """Find the links to sweeps that have none yet, and load MLflow's pages if they are not loaded.

    Raises:
        SweepsError: The server does not answer, or the database cannot be read.
    """
    from sweeps.dashboard import mlflow_pages

    names = [file.parent.name for file in dashboard.root.glob(f"*/{ORIGIN}")]
    if any(name not in dashboard.mlflow for name in names):
        if _is_server(uri):
            check_server(uri)
        dashboard.mlflow.update(find_links(uri, _address_of_mlflow(uri, "")))
    if pages.app is None and not _is_server(uri):
        pages.state = "MLflow is starting."
        pages.app = mlflow_pages.load(dashboard.root, uri, is_own)


def _is_server(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _address_of_mlflow(uri: str, url: str) -> str:
    """Return the address of MLflow's pages, given the address of the page; relative for ""."""
    from sweeps.dashboard.mlflow_pages import PATH

    if _is_server(uri):
        return without_password(uri)
    return f"{url}/{PATH}/" if url else PATH
