"""Run a test within an event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any


def in_loop(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test, which does not wait, within an event loop.

    Objects that make futures need a loop.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def scene() -> None:
            test(*args, **kwargs)

        asyncio.run(scene())

    return run
