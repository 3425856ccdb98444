"""Coroutines that run in the background."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class Background:
    """Runs coroutines in the background.

    It keeps references to their tasks, because the event loop keeps only weak references.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def __call__(self, coroutine: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Start a coroutine and return its task."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
