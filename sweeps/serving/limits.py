"""How much of a server one request and one client may take. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

MAX_BYTES = 10 * 2**20
MAX_ROWS = 10_000
MAX_CONNECTIONS = 500
RECEIVE_SECONDS = 30.0
# For the headers of a request. h11 takes 16 KiB of them.
HEADER_SECONDS = 10.0
# For the next request of a connection. uvicorn takes whole seconds.
KEEP_ALIVE_SECONDS = 5
# After SIGTERM: for requests to be answered, for the rest of a request, and for its first byte. The process ends within GRACE_SECONDS.
GRACE_SECONDS = 30
DRAIN_SECONDS = 25
REST_SECONDS = 5.0
IDLE_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """Limits that the user sets.

    Attributes:
        max_bytes, max_rows: of a request; a larger one is answered 413.
        receive_seconds: for a request to arrive, from its first byte, and likewise for the client to take the answer.
        max_connections: that are open at once; others wait until one closes.
    """

    max_bytes: int = MAX_BYTES
    max_rows: int = MAX_ROWS
    receive_seconds: float = RECEIVE_SECONDS
    max_connections: int = MAX_CONNECTIONS


class Phase(enum.Enum):
    """What a connection waits for."""

    IDLE = "the first byte of a request"
    HEADERS = "the rest of the headers"
    BODY = "the rest of the body"
    WORK = "the application"
    LEFTOVER = "the rest of a body that is answered already"
    ANSWER = "the client to take the answer"


def allowed(phase: Phase, limits: Limits, ending: bool) -> float | None:
    """Return how many seconds a connection may stay in a phase; None for any number.

    Args:
        ending: whether the server ends. The seconds then count from the signal, if the phase began before it.
    """
    if phase is Phase.WORK:
        return None
    if phase in (Phase.IDLE, Phase.HEADERS):
        seconds = min(HEADER_SECONDS, limits.receive_seconds)
    elif phase is Phase.LEFTOVER:
        seconds = min(REST_SECONDS, limits.receive_seconds)
    else:
        seconds = limits.receive_seconds
    if ending:
        seconds = min(seconds, IDLE_SECONDS if phase is Phase.IDLE else REST_SECONDS)
    return seconds
