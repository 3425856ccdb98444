"""`sweeps serve`: run the application under uvicorn until SIGTERM or Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError

from .access import Access, open_to_others
from .limits import RequestLimits

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

# Length of the kernel's queue of connections.
BACKLOG = 2048
# Seconds in which requests that have arrived are still answered after SIGTERM.
GRACE_SECONDS = 25


@dataclass(frozen=True)
class ServerOptions:
    """Options of `sweeps serve`.

    Attributes:
        host: The host to listen on.
        port: The port to listen on; 0 for any free port.
        limits: Limits on requests and connections.
        access: The allowed hosts and the token.
        example: True to show one of the bundle's example rows; see `make_app`.
    """

    host: str
    port: int
    limits: RequestLimits
    access: Access
    example: bool


def serve(bundle: Path, options: ServerOptions, say: Callable[[str], None]) -> None:
    """Serve a bundle in this process until SIGTERM or Ctrl-C.

    Args:
        bundle: The bundle's folder.
        options: Options of the server.
        say: Function that prints a message, such as the address once the server listens.

    Raises:
        InputError: The folder is not a bundle, or the server cannot listen.
        BundleError: The bundle is broken.
    """
    from sweeps.bundle.bundle_model import load_bundle

    from .example import curl_command, example_of
    from .prediction_app import make_app

    loaded = load_bundle(bundle)
    app = make_app(loaded, options.limits, options.access, options.example)
    warn_if_open(options.host, options.access, say)
    with listening(options.host, options.port) as listener:
        server = make_server(app, options.limits)
        # This handler is for a SIGTERM that arrives before uvicorn has set its own handler.
        # uvicorn raises the signal again when it ends.
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        url = url_of(options.host, listener.getsockname()[1])
        paths = "/predict, /schema, /health, /metrics, /docs"
        say(f"serving {bundle} at {url} ({paths}); press Ctrl-C to stop")
        body = example_of(loaded) if options.example else None
        if body is not None:
            say(f"try it:\n  {curl_command(url, body, options.access.digest is not None)}")
        with contextlib.suppress(KeyboardInterrupt):
            server.run([listener])


def make_server(app: ASGIApp, limits: RequestLimits) -> uvicorn.Server:
    """Return uvicorn's server of an application."""
    import uvicorn

    config = server_config(
        app, GRACE_SECONDS, lifespan="off", limit_concurrency=limits.max_connections
    )
    return uvicorn.Server(config)


def server_config(app: ASGIApp, grace_seconds: int, **settings: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for an application.

    Args:
        app: The application.
        grace_seconds: Seconds in which open requests may end at a shutdown.
        settings: Other settings of `uvicorn.Config`.
    """
    import uvicorn

    # uvicorn's own configuration of logging would close the handlers of all other loggers, and
    # files that they write to.
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="error",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=grace_seconds,
        **settings,
    )


def warn_if_open(host: str, access: Access, say: Callable[[str], None]) -> None:
    """Print a warning if other machines can send requests without a token."""
    if access.digest is None and open_to_others(host):
        say(
            f"--host: other machines can reach `{host}`, and no token is required; add"
            " --token-file, or use a proxy with access control"
        )


def url_of(host: str, port: int) -> str:
    """Return the URL of a server that listens on `host`."""
    if host in ("0.0.0.0", "::", ""):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a host and a port.

    Raises:
        InputError: The server cannot listen on this host or this port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as e:
        raise InputError("--host", f"`{host}` is not an address of this machine: {e}") from e
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as e:
        listener.close()
        text = f"cannot listen on port {port} of `{host}`: {e.strerror or e}"
        raise InputError("--port", text) from e
    return listener
