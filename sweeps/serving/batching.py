"""Requests answered together: while the model works, what arrives waits, and is then asked at once.

No request waits for others to come: a batch is what is there when the model is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Asked = TypeVar("Asked")


class Batcher(Generic[Asked]):
    """Gives batches to a function, one at a time, in a thread of its own.

    Args:
        answer: takes the requests of a batch, gives an answer, or an exception, for each. If it raises, each request is asked again alone.
        size: the rows of a request.
        most: rows of a batch; a larger request goes alone.
    """

    def __init__(self, answer: Callable[[list[Asked]], list[Any]], size: Callable[[Asked], int], most: int = 4096):
        self.answer, self.size, self.most = answer, size, most
        self.waiting: deque[tuple[Asked, asyncio.Future[Any]]] = deque()
        self.asked: set[asyncio.Future[Any]] = set()
        self.works = False
        self._batches: queue.SimpleQueue = queue.SimpleQueue()
        # A daemon, so that a model that never answers does not keep the process
        self.thread = threading.Thread(target=self._work, name="model", daemon=True)

    async def ask(self, request: Asked) -> Any:
        """The answer to a request; raises what it raised."""
        loop = asyncio.get_running_loop()
        if self.thread.ident is None:
            self.thread.start()
        future: asyncio.Future[Any] = loop.create_future()
        self.asked.add(future)
        future.add_done_callback(self.asked.discard)
        self.waiting.append((request, future))
        if not self.works:
            self.works = True
            loop.call_soon(self._next)
        return await future

    def _next(self) -> None:
        """Take what waits to the model, but for what nobody waits for."""
        while self.waiting and self.waiting[0][1].done():
            self.waiting.popleft()
        if not self.waiting:
            self.works = False
            return
        self._batches.put((asyncio.get_running_loop(), take(self.waiting, self.size, self.most)))

    def _work(self) -> None:
        """The thread: answer what the model is given."""
        while (given := self._batches.get()) is not None:
            loop, batch = given
            answers = self._answers([request for request, _ in batch])
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._tell, [future for _, future in batch], answers)

    def _tell(self, futures: list[asyncio.Future[Any]], answers: list[Any]) -> None:
        for future, answer in zip(futures, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        self._next()

    def _answers(self, requests: list[Asked]) -> list[Any]:
        try:
            return self.answer(requests)
        except BaseException as e:  # a step that exits, or Rust that panics, ends a request and not the server
            if len(requests) == 1:
                return [e if isinstance(e, Exception) else RuntimeError(f"{type(e).__name__}: {e}")]
            return [answer for request in requests for answer in self._answers([request])]

    def give_up(self, error: Callable[[], Exception]) -> None:
        """Raise an error in every request that has no answer yet."""
        for future in list(self.asked):
            if not future.done():
                future.set_exception(error())

    def close(self, timeout: float = 1.0) -> None:
        """End the thread when it has answered; wait for it so many seconds."""
        self._batches.put(None)
        if self.thread.ident is not None:
            self.thread.join(timeout)


def take(waiting: deque[tuple[Asked, Any]], size: Callable[[Asked], int], most: int) -> list[tuple[Asked, Any]]:
    """The first requests in line, of `most` rows together or one alone, taken out of it."""
    batch = [waiting.popleft()]
    rows = size(batch[0][0])
    while waiting and rows + (more := size(waiting[0][0])) <= most:
        rows += more
        batch.append(waiting.popleft())
    return batch
