"""`sweeps ui`: serve the page until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import html
import secrets
import signal
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import quote

from sweeps.core.errors import InputError
from sweeps.serving.access import Access, open_to_others
from sweeps.serving.prediction_server import listening, server_config, url_of, warn_if_open

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from .dashboard_app import Dashboard

# Seconds in which open requests may end at a shutdown.
END_SECONDS = 3


@dataclass(frozen=True)
class PageOptions:
    """Options of the page.

    Attributes:
        host: The host to listen on.
        port: The port to listen on; 0 for any free port.
        allowed_hosts: The allowed Host headers, separated by commas. With None, a page that only
            this machine can reach allows the names of this machine. Otherwise, a site could send
            requests under its own name with the address of this machine (DNS rebinding).
        token: The token that requests must have. None for a new one, or for no token if `host` is
            open to other machines. The page then takes no commands.
        needs_token: False for a page without a token if `token` is None.
        sweep: The sweep to show first; None for the list of all sweeps.
        open_browser: True to open the page in a browser.
    """

    host: str = "127.0.0.1"
    port: int = 5050
    allowed_hosts: str | None = None
    token: str | None = None
    needs_token: bool = True
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
    from sweeps.stored.sweep_lookup import find

    from .dashboard_app import Dashboard, make_app

    if root.exists() and not root.is_dir():
        raise InputError("--dir", f"{root} is not a folder")
    root = root.resolve()
    fragment = "" if options.sweep is None else f"#{quote(find(options.sweep, root).name)}"
    is_open = open_to_others(options.host)
    token = options.token
    # On an open host, only a token that the user has chosen allows commands.
    if token is None and options.needs_token and not is_open:
        token = secrets.token_urlsafe(24)
    access = _access_of(options, token)
    dashboard = Dashboard(root, may_command=token is not None or not is_open)
    with listening(options.host, options.port) as listener:
        warn_if_open(options.host, access, say)
        if not dashboard.may_command:
            say("so the page takes no commands")
        server = _server(make_app(dashboard, access), dashboard, say)
        url = url_of(options.host, listener.getsockname()[1])
        without_token = f"{url}/{fragment}"
        with_token = without_token if token is None else f"{url}/?token={token}{fragment}"
        # A token that the user has chosen is not printed.
        printed = with_token if options.token is None else without_token
        say(f"the page of the sweeps is at {printed}; press Ctrl-C to stop")
        if not root.exists():
            say(
                f"{root} does not exist yet; the page shows its sweeps as soon as `sweeps run` "
                "creates it"
            )
        # uvicorn raises the signal again when it ends, and then these handlers do nothing.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, server.handle_exit)
        browser = _browser(with_token) if options.open_browser else contextlib.nullcontext()
        with browser, contextlib.suppress(KeyboardInterrupt):
            server.run([listener])


def _access_of(options: PageOptions, token: str | None) -> Access:
    """Return who may use the page: requests with the token, and with an allowed Host header."""
    access = Access.of(options.allowed_hosts, token)
    if access.hosts or open_to_others(options.host):
        return access
    return Access(("localhost", "127.0.0.1", "[::1]", options.host.lower()), access.digest)


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


def _server(app: ASGIApp, dashboard: Dashboard, say: Callable[[str], None]) -> uvicorn.Server:
    """Return uvicorn's server, which ends the streams of events when it shuts down."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not dashboard.ended:
                say("stopping")
            dashboard.ended = True
            super().handle_exit(sig, frame)

    return Server(server_config(app, END_SECONDS))
