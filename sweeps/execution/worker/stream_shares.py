"""Give the ranks of a gang their parts of a stream, for `data.ingest: stream`.

One actor, Ray Data's split coordinator, reads `train` in each epoch and hands every rank the same
number of rows. Rank 0 starts the coordinator at the beginning of an attempt. If the process of rank
0 is lost, Ray ends the coordinator. A gang of one needs no coordinator.
"""

import contextlib
from collections.abc import Sequence

import ray
from ray.data import DataIterator

from sweeps.execution.messages import AttemptId
from sweeps.execution.ray_apis import ray_data_adapter

from .trial_session import TrialSession


class TrainStreams:
    """Split coordinators that this process has started as rank 0, by attempt."""

    def __init__(self) -> None:
        self._started: dict[AttemptId, Sequence[DataIterator]] = {}

    def open(self, session: TrialSession) -> None:
        """Set the session's part of `train`.

        All ranks of a gang call this method at the beginning of an attempt.
        """
        ranks = session.ranks
        if not session.cache.data.stream or ranks.world_size == 1:
            return
        value = None
        if ranks.rank == 0:
            parts = session.cache.dataset("train").streaming_split(ranks.world_size, equal=True)
            self._started[session.assignment.id] = parts
            # In a list, so that the pool passes the reference on and does not load the iterators.
            value = [ray.put(parts)]
        (reference,) = session.exchange(value)[0]  # the value of rank 0
        session.train_stream = ray.get(reference)[ranks.rank]

    def close(self, attempt: AttemptId) -> None:
        """End the coordinator of an attempt.

        The pool calls this when all ranks have ended, because a rank may read longer than rank 0.
        """
        parts = self._started.pop(attempt, None)
        if parts is not None:
            with contextlib.suppress(Exception):  # The coordinator may have died.
                ray.kill(ray_data_adapter.coordinator_of(parts[0]))
