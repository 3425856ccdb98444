"""`sweeps serve`: the application under uvicorn, until SIGTERM or Ctrl-C; what is in flight is answered first."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from sweeps.core.errors import InputError, Problem
from sweeps.core.installed_package import install
from sweeps.serving.access import Access, open_to_others
from sweeps.serving.limits import Limits

# Connections that the kernel accepts before this process does.
BACKLOG = 2048
# Files that the process has open besides connections.
FILES = 256


def serve(bundle: Path, host: str, port: int, say: Callable[[str], None], limits: Limits, access: Access) -> None:
    """Serve a bundle, in this process, without Ray.

    Args:
        bundle: its folder.
        host, port: to listen on; port 0 for any free one.
        say: prints where it listens, once it does.
        limits: of a request and of a client.
        access: who may ask.

    Raises:
        InputError: no bundle, no address to listen on, too few files for the connections, or the extra `serve` is not installed.
        BundleError: the bundle is broken.
    """
    try:
        from sweeps.serving.app import make_app
        from sweeps.serving.limited_server import Server
    except ImportError as e:
        raise InputError(Problem("serve", f"needs the package `{e.name}`: {install('serve')}")) from None
    from sweeps.bundle import load_bundle

    _need_files(limits.max_connections)
    app = make_app(load_bundle(bundle), limits, access)
    warn_of_strangers(host, access, say)
    with listening(host, port) as listener:
        server = Server(app, listener, limits)
        real = listener.getsockname()[1]
        say(f"serving {bundle} at {url_of(host, real)} (/predict, /schema, /health, /metrics, /docs); Ctrl-C ends it")
        # One that comes before uvicorn listens for it ends it as well. When it has drained, uvicorn raises the signal again that ended it
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        with contextlib.suppress(KeyboardInterrupt):
            server.run()


def warn_of_strangers(host: str, access: Access, say: Callable[[str], None]) -> None:
    """Say so if other machines can ask without a token."""
    if access.digest is None and open_to_others(host):
        say(f"--host: other machines can reach `{host}`, and whoever reaches it may ask: give --token-file, or put a proxy before it")


def _need_files(connections: int) -> None:
    """Raise this process's limit of open files, if there must be more.

    Raises:
        InputError: the limit cannot be raised so far.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # At the end, what is in the kernel's queue is accepted on top of the limit
    wanted, least = connections + BACKLOG + FILES, connections + FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    may = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if may < least:
        text = f"{connections}: this process may have {hard} files open, and {FILES} are for other things; `ulimit -Hn` shows the limit"
        raise InputError(Problem("--max-connections", text))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(may, soft), hard))


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
        listener.listen(BACKLOG)
    except OSError as e:
        listener.close()
        raise InputError(Problem("--port", f"{port} on `{host}` cannot be listened on: {e.strerror or e}")) from e
    return listener
