"""uvicorn with limits on the number of connections, on slow requests and on the time of a shutdown.

uvicorn limits idle connections (`timeout_keep_alive`), and h11 limits the size of headers. uvicorn
has no limit for a request that arrives slowly, or for an answer that the client does not read. At
SIGTERM, uvicorn resets the connections that wait in the kernel's queue.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import h11
import pydantic_core
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from sweeps.serving.limits import DRAIN_SECONDS, KEEP_ALIVE_SECONDS, Limits, Phase, allowed

CLOSE = (b"connection", b"close")
CHECK_SECONDS = 0.05
# Time to send the last answers at the end of a shutdown.
FLUSH_SECONDS = 1.0
# Bytes to parse at a time. Between two pieces, other connections are served. uvloop delivers up to
# 8 MiB at once; if a body has chunks of one byte, parsing 8 MiB takes a minute.
PIECE = 16 * 1024


class Connection(H11Protocol):
    """Connection with a time limit on each `Phase`. h11 reads a request only after the answer to the previous one.

    Attributes:
        ending: The time of the shutdown signal, by the monotonic clock; None before the signal.
    """

    def __init__(self, limits: Limits, ending: float | None, **more: Any):
        super().__init__(**more)
        self.limits, self.ending = limits, ending
        self._seen: tuple[Phase, Any] | None = None
        self._since = 0.0
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the flow control of a new connection. asyncio calls this method."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self.flow = FlowControl(self)  # type: ignore[arg-type]

    def pause_reading(self) -> None:
        """Stop reading from the socket. `flow` calls this method."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read from the socket, unless received data still waits to be parsed.

        `flow` calls this method.
        """
        if not self._unread:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Parse data that has arrived, in pieces of at most `PIECE` bytes."""
        if self._unread:
            self._unread += data
        elif len(data) <= PIECE:
            super().data_received(data)
        else:
            self._unread += data
            self._next_piece()

    def _next_piece(self) -> None:
        if self.transport.is_closing():
            self._unread.clear()
            return
        piece = bytes(self._unread[:PIECE])
        del self._unread[:PIECE]
        super().data_received(piece)
        if self._unread:
            self.transport.pause_reading()
            self.loop.call_soon(self._next_piece)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def phase(self) -> Phase:
        """Return what this connection is waiting for."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            return Phase.ANSWER
        unfinished = self.conn.their_state is h11.SEND_BODY
        if self.cycle is not None and not self.cycle.response_complete:
            return Phase.BODY if unfinished else Phase.WORK
        if unfinished:
            return Phase.LEFTOVER
        return Phase.HEADERS if self.conn.trailing_data[0] else Phase.IDLE

    def check(self, now: float) -> None:
        """Close the connection if it has been in its current phase for longer than `limits.allowed` returns. `now` is monotonic time."""
        phase = self.phase()
        if self._seen != (phase, self.cycle):
            self._seen, self._since = (phase, self.cycle), now
        limit = allowed(phase, self.limits, self.ending is not None)
        if limit is None or now - max(self._since, self.ending or 0.0) < limit:
            return
        if phase is Phase.ANSWER:
            self.transport.abort()
        elif phase in (Phase.HEADERS, Phase.BODY):
            what = "headers" if phase is Phase.HEADERS else "body"
            if self.ending is None:
                self.refuse(408, f"the {what} must arrive within {limit:g} s")
            else:
                self.refuse(503, f"the server shut down before the {what} arrived")
        else:
            self.transport.close()

    def refuse(self, status: int, rule: str) -> None:
        """Close the connection. If no answer has started, first answer with this status and rule."""
        if self.transport.is_closing():
            return
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True  # drop what the application still sends
                self.cycle.message_event.set()
            body = pydantic_core.to_json({"detail": [{"rule": rule}]})
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, STATUS_PHRASES[status], len(body)) + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not valid HTTP. uvicorn's own method raises an error if the request is already answered."""
        reason = sys.exception()
        self.refuse(
            getattr(reason, "error_status_hint", 400),
            f"the request must be HTTP/1.1: {reason or msg}",
        )

    def handle_events(self) -> None:
        """Handle the events that h11 has parsed.

        During a shutdown, also announce in the answer that the connection closes.
        """
        super().handle_events()
        self._announce_close()

    def end(self, now: float) -> None:
        """Let the connection close as soon as the requests that have arrived are answered.

        `now` is the time of the shutdown signal.
        """
        self.ending = now
        self._announce_close()

    def _announce_close(self) -> None:
        """During a shutdown, add `Connection: close` to the current answer, unless the client has already sent another request."""
        if self.ending is None or self.cycle is None or self.cycle.response_complete:
            return
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            return
        self.cycle.keep_alive = False
        if CLOSE not in self.cycle.default_headers:
            self.cycle.default_headers = [*self.cycle.default_headers, CLOSE]


class Server(uvicorn.Server):
    """uvicorn's server with another accept loop, which limits the number of connections.

    It ends within `GRACE_SECONDS` after SIGTERM.

    Args:
        app: The application that `make_app` returned.
        listener: A listening socket.
        limits: Limits on requests and connections.
        drain_seconds: Seconds after SIGTERM in which the application may answer requests.
    """

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        limits: Limits,
        drain_seconds: float = DRAIN_SECONDS,
    ):
        # uvicorn's own configuration of logging would close the handlers of all other loggers, and
        # files that they write to.
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",
            access_log=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)
        self.listener, self.limits, self.drain_seconds = listener, limits, drain_seconds
        self.cancel_waiting: Callable[[], None] = app.state.cancel_waiting
        self.opening: set[asyncio.Task[None]] = set()
        self.ending: float | None = None
        self.paused = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and accept connections."""
        await super().startup(
            sockets=[]
        )  # no sockets, because uvicorn would accept connections without a limit
        self.listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self.listener, self._accept)

    async def on_tick(self, counter: int) -> bool:
        """Check every connection twice a second, and accept waiting connections again if there is room.

        uvicorn calls this method ten times a second.
        """
        if counter % 5 == 0:
            self._check_connections()
        if self.paused and self._has_room():
            self.paused = False
            asyncio.get_running_loop().add_reader(self.listener, self._accept)
        return await super().on_tick(counter)

    def _check_connections(self) -> None:
        now = time.monotonic()
        for connection in list(self.server_state.connections):
            connection.check(now)  # type: ignore[union-attr]

    def _has_room(self) -> bool:
        return len(self.server_state.connections) + len(self.opening) < self.limits.max_connections

    def _accept(self) -> None:
        """Accept waiting connections, up to the limit.

        The other clients wait in the kernel's queue.
        """
        loop = asyncio.get_running_loop()
        while self.ending is not None or self._has_room():
            try:
                accepted, _ = self.listener.accept()
            except BlockingIOError:
                return
            except (
                OSError
            ):  # no file descriptor is left, or the client is gone; try again at the next tick
                break
            accepted.setblocking(False)
            task = loop.create_task(self._open(accepted))
            self.opening.add(task)
            task.add_done_callback(self.opening.discard)
        loop.remove_reader(self.listener)
        self.paused = True

    async def _open(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._connection, accepted)
        except OSError:  # the client is gone
            accepted.close()

    def _connection(self) -> Connection:
        state: Any = self.lifespan.state
        return Connection(
            self.limits,
            self.ending,
            config=self.config,
            server_state=self.server_state,
            app_state=state,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, answer the requests that have arrived, and end the server."""
        self.ending = begin = time.monotonic()
        asyncio.get_running_loop().remove_reader(self.listener)
        # accept the kernel's queue, because closing the listener would reset its connections
        self._accept()
        self.listener.close()
        for connection in list(self.server_state.connections):
            connection.end(begin)  # type: ignore[union-attr]
        while (
            (self.server_state.connections or self.opening)
            and not self.force_exit
            and time.monotonic() < begin + self.drain_seconds
        ):
            self._check_connections()
            await asyncio.sleep(CHECK_SECONDS)
        self.cancel_waiting()
        await self._until_idle(FLUSH_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await self._until_idle(FLUSH_SECONDS)
        await self.lifespan.shutdown()

    async def _until_idle(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (
            self.server_state.connections or self.server_state.tasks
        ) and time.monotonic() < deadline:
            await asyncio.sleep(CHECK_SECONDS)
