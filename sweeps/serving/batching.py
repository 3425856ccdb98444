"""Predict waiting requests together.

Requests that arrive while the model is busy form the next batch. A request that arrives while the
model is idle is a batch of its own.
"""

import asyncio
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pydantic_core

from sweeps.bundle.bundle_model import Bundle

from .request_checks import Rows

Answer = bytes | Exception


class Batcher:
    """Pass batches of requests to a bundle in a thread, one batch at a time.

    The thread is a daemon, so the process can end while the model hangs.

    Args:
        bundle: The bundle whose preprocessor and model are used.
    """

    def __init__(self, bundle: Bundle):
        self.bundle = bundle
        self._batches = queue.SimpleQueue[tuple[Future[list[Answer]], Sequence[Rows]]]()
        threading.Thread(target=self._work, name="model", daemon=True).start()
        self._waiting: list[tuple[Rows, asyncio.Future[Answer]]] = []
        self._lock = asyncio.Lock()

    async def predict(self, rows: Rows) -> bytes:
        """Return the JSON body of the answer to a request.

        If the preprocessor or the model fails with the rows, raise its error.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        # The first request that gets the lock sends all waiting requests to the model. The others
        # find their answers when they get the lock.
        async with self._lock:
            if not future.done():
                batch = self._waiting
                self._waiting = []
                predicted = Future[list[Answer]]()
                self._batches.put((predicted, [batch_rows for batch_rows, _ in batch]))
                answers = await asyncio.wrap_future(predicted)
                for (_, waiting), answer in zip(batch, answers, strict=True):
                    waiting.set_result(answer)
        answer = future.result()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _work(self) -> None:
        """Predict one batch after the other."""
        while True:
            predicted, batch = self._batches.get()
            if predicted.set_running_or_notify_cancel():
                predicted.set_result(self._answers(batch))

    def _answers(self, batch: Sequence[Rows]) -> list[Answer]:
        """Return the answer to each request. If the whole batch fails, predict each alone."""
        try:
            return [*predict_batch(self.bundle, batch)]
        except BaseException as e:  # a step that calls `sys.exit` must not end the server
            if len(batch) == 1:
                return [e if isinstance(e, Exception) else RuntimeError(repr(e))]
            return [answer for rows in batch for answer in self._answers([rows])]


def predict_batch(bundle: Bundle, batch: Sequence[Rows]) -> list[bytes]:
    """Predict the rows of several requests in one call of the model.

    Args:
        bundle: The bundle.
        batch: The rows of each request.

    Returns:
        The JSON body of each answer.

    Raises:
        InputError: The preprocessor or the model refuses some of the rows.
    """
    joined = {
        column.name: [value for rows in batch for value in rows.values[column.name]]
        for column in bundle.manifest.columns
    }
    bundle.count_unseen(joined)
    frame = bundle.predict_values(joined, sum(rows.count for rows in batch))
    columns = {str(name): frame[name].to_numpy().tolist() for name in frame.columns}
    predictions = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    answers = []
    start = 0
    for rows in batch:
        answer = {"predictions": predictions[start : start + rows.count]}
        answers.append(pydantic_core.to_json(answer, inf_nan_mode="null"))
        start += rows.count
    return answers
