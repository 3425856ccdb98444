"""Limits on requests and connections. Pure functions, no I/O."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

MAX_BYTES = 10 * 2**20
MAX_ROWS = 10_000
MAX_CONNECTIONS = 500
RECEIVE_SECONDS = 30.0
# Time for the headers of a request to arrive. h11 allows 16 KiB of headers, or 32 KiB if they
# arrive in one piece (see `PIECE`).
HEADER_SECONDS = 10.0
# Time after which uvicorn closes an idle connection. uvicorn needs an integer.
KEEP_ALIVE_SECONDS = 5
# After SIGTERM, the process ends within GRACE_SECONDS. The application has DRAIN_SECONDS to answer
# the requests that have arrived. If only a part of a request has arrived, the rest must arrive
# within REST_SECONDS. On an idle connection, the first byte of a request must arrive within
# IDLE_SECONDS.
GRACE_SECONDS = 30
DRAIN_SECONDS = 25
REST_SECONDS = 5.0
IDLE_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """Limits that the user sets.

    Attributes:
        max_bytes: The largest number of bytes in the body of a request. A request with a larger
            body is answered with 413.
        max_rows: The largest number of rows in a request. A request with more rows is answered with
            413.
        receive_seconds: The number of seconds within which the body of a request must arrive. The
            client must also read the answer within this time.
        max_connections: The largest number of open connections. Other clients wait until a
            connection closes.
    """

    max_bytes: int = MAX_BYTES
    max_rows: int = MAX_ROWS
    receive_seconds: float = RECEIVE_SECONDS
    max_connections: int = MAX_CONNECTIONS


class Phase(enum.Enum):
    """Phase of a connection. The value of each member says what the connection is waiting for."""

    IDLE = "the first byte of a request"
    HEADERS = "the rest of the headers"
    BODY = "the rest of the body"
    WORK = "the application"
    LEFTOVER = "the rest of the body of an answered request"
    ANSWER = "the client to read the answer"


def allowed(phase: Phase, limits: Limits, ending: bool) -> float | None:
    """Return how many seconds a connection may stay in a phase. Return None if there is no limit.

    Args:
        phase: What the connection is waiting for.
        limits: Limits that the user has set.
        ending: True if the server is shutting down. If the phase started before the shutdown
            signal, its time counts from the signal.
    """
    if phase is Phase.WORK:
        return None
    most = {
        Phase.IDLE: HEADER_SECONDS,
        Phase.HEADERS: HEADER_SECONDS,
        Phase.LEFTOVER: REST_SECONDS,
    }.get(phase, math.inf)
    if ending:
        most = min(most, IDLE_SECONDS if phase is Phase.IDLE else REST_SECONDS)
    return min(most, limits.receive_seconds)
