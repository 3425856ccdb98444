"""Combine waiting requests into batches for the model.

Requests that arrive while the model is busy form the next batch. A request that arrives while the
model is idle is a batch of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class Batcher(Generic[Item]):
    """Pass batches of requests to a function in a thread, one batch at a time.

    Args:
        answer: Function that returns a list with an answer or an exception for each request of a
            batch. If the function raises an error for a batch of several requests, it is called
            again for each of these requests alone.
        size: Function that returns the number of rows of a request.
        most: The largest number of rows of a batch. A request with more rows forms a batch of its
            own.
    """

    def __init__(
        self,
        answer: Callable[[list[Item]], list[Any]],
        size: Callable[[Item], int],
        most: int = 4096,
    ):
        self.answer, self.size, self.most = answer, size, most
        self.waiting: deque[tuple[Item, asyncio.Future[Any]]] = deque()
        self.pending: set[asyncio.Future[Any]] = set()
        self.busy = False
        self._batches: queue.SimpleQueue[
            tuple[asyncio.AbstractEventLoop, list[tuple[Item, asyncio.Future[Any]]]] | None
        ] = queue.SimpleQueue()
        # The thread is a daemon, so that the process can end while the model hangs.
        self.thread = threading.Thread(target=self._work, name="model", daemon=True)

    async def ask(self, request: Item) -> Any:
        """Wait for the answer to a request, and return the answer.

        If `answer` returned or raised an exception for the request, raise this exception.
        """
        loop = asyncio.get_running_loop()
        if self.thread.ident is None:
            self.thread.start()
        future: asyncio.Future[Any] = loop.create_future()
        self.pending.add(future)
        future.add_done_callback(self.pending.discard)
        self.waiting.append((request, future))
        if not self.busy:
            self.busy = True
            loop.call_soon(self._next)
        return await future

    def _next(self) -> None:
        """Send the next batch to the thread. Skip requests that were canceled."""
        while self.waiting and self.waiting[0][1].done():
            self.waiting.popleft()
        if not self.waiting:
            self.busy = False
            return
        self._batches.put((asyncio.get_running_loop(), take(self.waiting, self.size, self.most)))

    def _work(self) -> None:
        """Answer batches until `close` is called. This method runs in the thread."""
        while (given := self._batches.get()) is not None:
            loop, batch = given
            answers = self._answers([request for request, _ in batch])
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no request waits
                loop.call_soon_threadsafe(self._deliver, [future for _, future in batch], answers)

    def _deliver(self, futures: list[asyncio.Future[Any]], answers: list[Any]) -> None:
        for future, answer in zip(futures, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._next()

    def _answers(self, requests: list[Item]) -> list[Any]:
        try:
            return self.answer(requests)
        except (
            BaseException
        ) as e:  # a SystemExit in a step, or a panic in Rust code, must not end the server
            if len(requests) == 1:
                return [e if isinstance(e, Exception) else RuntimeError(f"{type(e).__name__}: {e}")]
            return [answer for request in requests for answer in self._answers([request])]

    def cancel_waiting(self, error: Callable[[], Exception]) -> None:
        """Let every call of `ask` that has no answer yet raise an error that `error` creates."""
        for future in list(self.pending):
            if not future.done():
                future.set_exception(error())

    def close(self, timeout: float = 1.0) -> None:
        """End the thread after its current batch, and wait for it at most `timeout` seconds."""
        self._batches.put(None)
        if self.thread.ident is not None:
            self.thread.join(timeout)


def take(
    waiting: deque[tuple[Item, Any]], size: Callable[[Item], int], most: int
) -> list[tuple[Item, Any]]:
    """Remove the next batch from the front of a queue of requests, and return it.

    The batch has as many requests as fit into `most` rows, but always at least one.
    """
    batch = [waiting.popleft()]
    rows = size(batch[0][0])
    while waiting and rows + (more := size(waiting[0][0])) <= most:
        rows += more
        batch.append(waiting.popleft())
    return batch
