"""Wait for an event, with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], timeout: float, what: str) -> Any:
    """Poll until `condition()` is true, and return its value.

    If this takes too long, fail the test with a message that names `what`.
    """
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain for {what}")
        time.sleep(0.02)
    return value
