"""Numbers of ports for servers that tests start."""

from __future__ import annotations

import itertools
import os
import socket

# The system takes ports from 32768 on for outgoing connections, at any time. Ray's workers listen
# on ports up to 19999. Each process of pytest-xdist has 1,000 ports of its own between them.
FIRST, EACH, LAST = 20_000, 1_000, 32_000
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_START = FIRST + _PROCESS * EACH % (LAST - FIRST)
_numbers = itertools.cycle(range(_START, _START + EACH))


def free_port() -> int:
    """Return a port on which nothing listens, and which no other test of this run is given."""
    for port in itertools.islice(_numbers, EACH):
        with socket.socket() as s:
            try:
                s.bind(("", port))
            except OSError:
                continue
        return port
    raise OSError(f"ports {_START} to {_START + EACH - 1} are all in use")
