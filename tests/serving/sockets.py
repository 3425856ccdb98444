"""A server in this process, and clients that use raw sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from sweeps.serving.limits import RequestLimits
from sweeps.serving.prediction_app import make_app
from sweeps.serving.prediction_server import listening, make_server
from tests.serving import served
from tests.serving.malformed import GOOD
from tests.waiting import wait_until

ROW = json.dumps([GOOD]).encode()


class Held(served.Model):
    """Model that waits until the test lets it predict."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def predict(self, frame: Any) -> Any:
        """Wait for `go`, then predict."""
        self.entered.set()
        self.go.wait(30)
        return super().predict(frame)


class Running:
    """Server in a thread. The method `end` does the same as SIGTERM."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self.server, self.port = server, port

    def connect(self, sent: bytes = b"") -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=15)
        client.sendall(sent)
        return client

    def end(self) -> None:
        self.server.should_exit = True


@contextlib.contextmanager
def running(model: Any = None, limits: RequestLimits | None = None) -> Iterator[Running]:
    """Run a server for the duration of the context. At the end, check that it has ended."""
    limits = limits or RequestLimits()
    with listening("127.0.0.1", 0) as listener:
        server = make_server(make_app(served.bundle(model), limits), limits)
        thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
        thread.start()
        wait_until(lambda: server.started, 15, "the server to start")
        server_run = Running(server, listener.getsockname()[1])
        try:
            yield server_run
        finally:
            server_run.end()
            thread.join(20)
            assert not thread.is_alive(), "the server did not end"


def request(
    body: bytes = ROW, path: str = "/predict", method: str = "POST", **headers: str
) -> bytes:
    """Return the bytes of a request."""
    given = {"Host": "localhost", "Content-Length": str(len(body))} | {
        k.replace("_", "-"): v for k, v in headers.items()
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def answer(client: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Read the next answer, and return its status, headers and body. A JSON body is parsed.

    Raises:
        EOFError: There is no answer.
    """
    raw = bytearray()
    while b"\r\n\r\n" not in raw:
        if not (part := client.recv(1)):
            raise EOFError(bytes(raw))
        raw += part
    first, *lines = raw.decode().split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    size, body = int(headers.get("content-length", 0)), b""
    while len(body) < size:
        if not (part := client.recv(size - len(body))):
            raise EOFError(bytes(raw) + body)
        body += part
    with contextlib.suppress(ValueError):
        return int(first.split()[1]), headers, json.loads(body)
    return int(first.split()[1]), headers, body.decode()
