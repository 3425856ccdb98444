"""Limits on requests and connections."""

from dataclasses import dataclass

MAX_BYTES = 10 * 2**20
MAX_ROWS = 10_000
MAX_CONNECTIONS = 500


@dataclass(frozen=True)
class RequestLimits:
    """Limits that the user sets.

    Attributes:
        max_bytes: The largest number of bytes in the body of a request. A request with a larger
            body is answered with 413.
        max_rows: The largest number of rows in a request. A request with more rows is answered
            with 413.
        max_connections: The number of open connections from which on requests are answered with
            503.
    """

    max_bytes: int = MAX_BYTES
    max_rows: int = MAX_ROWS
    max_connections: int = MAX_CONNECTIONS
