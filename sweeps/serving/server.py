"""`sweeps serve`: the application under uvicorn, until SIGTERM or Ctrl-C; what is in flight is answered first."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from sweeps.distribution import install
from sweeps.errors import InputError, Problem

# How long what is in flight may take once the server is told to end.
DRAIN_SECONDS = 30


def serve(bundle: Path, host: str, port: int, say: Callable[[str], None], max_bytes: int, max_rows: int) -> None:
    """Serve a bundle, in this process, without Ray.

    Args:
        bundle: its folder.
        host, port: to listen on; port 0 for any free one.
        say: prints where it listens, once it does.
        max_bytes, max_rows: of a request.

    Raises:
        InputError: no bundle, no address to listen on, or the extra `serve` is not installed.
        BundleError: the bundle is broken.
    """
    try:
        import uvicorn

        from sweeps.serving.app import make_app
    except ImportError as e:
        raise InputError(Problem("serve", f"needs the package `{e.name}`: {install('serve')}")) from None
    from sweeps.bundle import load_bundle

    app = make_app(load_bundle(bundle), max_bytes, max_rows)
    with listening(host, port) as listener:
        config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_SECONDS)
        server = uvicorn.Server(config)
        real = listener.getsockname()[1]
        say(f"serving {bundle} at {url_of(host, real)} (/predict, /schema, /health, /metrics, /docs); Ctrl-C ends it")
        # One that comes before uvicorn listens for it ends it as well. When it has drained, uvicorn raises the signal again that ended it
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        with contextlib.suppress(KeyboardInterrupt):
            server.run([listener])


def url_of(host: str, port: int) -> str:
    """Where a server is reached that listens on `host`."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        InputError: it cannot.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as e:
        raise InputError(Problem("--host", f"`{host}`: no address of this machine: {e}")) from e
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as e:
        listener.close()
        raise InputError(Problem("--port", f"{port} on `{host}` cannot be listened on: {e.strerror or e}")) from e
    return listener
