"""`sweeps serve`: run the application under uvicorn until SIGTERM or Ctrl-C.

Requests that have arrived by then are still answered.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core.errors import InputError
from sweeps.core.installed_package import install
from sweeps.serving.access import Access, open_to_others
from sweeps.serving.limits import Limits

if TYPE_CHECKING:
    from sweeps.bundle.model import Bundle

# Length of the kernel's queue of connections.
BACKLOG = 2048
# Number of files that the process may have open in addition to its connections.
OTHER_FILES = 256


def serve(
    bundle: Path,
    host: str,
    port: int,
    say: Callable[[str], None],
    limits: Limits,
    access: Access,
    example: bool = True,
) -> None:
    """Serve a bundle in this process, without Ray, until SIGTERM or Ctrl-C.

    Args:
        bundle: The bundle's folder.
        host: The host to listen on.
        port: The port to listen on; 0 for any free port.
        say: Function that prints a message, such as the address once the server listens.
        limits: Limits on requests and connections.
        access: The allowed hosts and the token.
        example: True to show one of the bundle's example rows; see `make_app`.

    Raises:
        InputError: The folder is not a bundle, the server cannot listen, the limit on open files is
            too low, or the extra `serve` is not installed.
        BundleError: The bundle is broken.
    """
    try:
        from sweeps.serving.app import make_app
        from sweeps.serving.limited_server import Server
    except ImportError as e:
        raise InputError("serve", f"needs the package `{e.name}`: {install('serve')}") from None
    from sweeps.bundle.model import load_bundle

    _raise_file_limit(limits.max_connections)
    loaded = load_bundle(bundle)
    app = make_app(loaded, limits, access, example=example)
    warn_if_open(host, access, say)
    with listening(host, port) as listener:
        server = Server(app, listener, limits)
        real = listener.getsockname()[1]
        say(
            f"serving {bundle} at {url_of(host, real)} (/predict, /schema, /health, /metrics, "
            "/docs); press Ctrl-C to stop"
        )
        if example:
            say_example(loaded, url_of(host, real), access, say)
        # This handler is for a SIGTERM that arrives before uvicorn has set its own handler. uvicorn
        # raises the signal again when it ends.
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
        with contextlib.suppress(KeyboardInterrupt):
            server.run()


def say_example(bundle: Bundle, url: str, access: Access, say: Callable[[str], None]) -> None:
    """Print a curl command that sends one of the bundle's example rows, if there is one."""
    from sweeps.serving.example import curl_command, example_of

    if (body := example_of(bundle)) is not None:
        say(f"try it:\n  {curl_command(url, body, access.digest is not None)}")


def warn_if_open(host: str, access: Access, say: Callable[[str], None]) -> None:
    """Print a warning if other machines can send requests without a token."""
    if access.digest is None and open_to_others(host):
        say(
            f"--host: other machines can reach `{host}`, and no token is required; add "
            "--token-file, or use a proxy with access control"
        )


def _raise_file_limit(connections: int) -> None:
    """Raise this process's limit on open files if it is too low for this number of connections.

    Raises:
        InputError: The limit cannot be raised far enough.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # At a shutdown, the connections in the kernel's queue are accepted in addition to the allowed
    # connections.
    wanted, least = connections + BACKLOG + OTHER_FILES, connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if possible < least:
        most = hard - OTHER_FILES
        advice = f"give at most {most}, or raise `ulimit -Hn`" if most > 0 else "raise `ulimit -Hn`"
        text = (
            f"{connections} connections are too many: this process may open {hard} files, and "
            f"needs {OTHER_FILES} for other uses; {advice}"
        )
        raise InputError("--max-connections", text)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(possible, soft), hard))


def url_of(host: str, port: int) -> str:
    """Return the URL of a server that listens on `host`."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "::", "") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


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
        raise InputError(
            "--port", f"cannot listen on port {port} of `{host}`: {e.strerror or e}"
        ) from e
    return listener
