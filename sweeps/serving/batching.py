"""Requests answered together: while the model works, what arrives waits, and is then asked at once.

No request waits for others to come: a batch is what is there when the model is free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        self.thread = ThreadPoolExecutor(1, "model")
        self.works = False

    async def ask(self, request: Asked) -> Any:
        """The answer to a request; raises what it raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.waiting.append((request, future))
        if not self.works:
            self.works = True
            loop.call_soon(self._next)
        return await future

    def _next(self) -> None:
        """Take what waits to the model."""
        if not self.waiting:
            self.works = False
            return
        batch = take(self.waiting, self.size, self.most)
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self.thread, self._answers, [request for request, _ in batch])
        done.add_done_callback(lambda ended: self._tell([future for _, future in batch], ended))

    def _tell(self, futures: list[asyncio.Future[Any]], ended: asyncio.Future[list[Any]]) -> None:
        for future, answer in zip(futures, ended.result(), strict=True):
            if future.cancelled():
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

    def close(self) -> None:
        """End the thread when it has answered."""
        self.thread.shutdown()


def take(waiting: deque[tuple[Asked, Any]], size: Callable[[Asked], int], most: int) -> list[tuple[Asked, Any]]:
    """The first requests in line, of `most` rows together or one alone, taken out of it."""
    batch = [waiting.popleft()]
    rows = size(batch[0][0])
    while waiting and rows + (more := size(waiting[0][0])) <= most:
        rows += more
        batch.append(waiting.popleft())
    return batch
