"""Keep the predictions of the best trials and of the defaults, and delete those of the others."""

import heapq
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sweeps.core.errors import StoreError
from sweeps.core.files.checkpoint_files import checkpoint_root
from sweeps.core.files.prediction_files import delete_predictions
from sweeps.core.trial import Result, State, format_trial_id
from sweeps.search.default_points import default_points, is_default
from sweeps.study import ranking
from sweeps.study.study_store import StudyStore

log = logging.getLogger(__name__)


class PredictionKeeper:
    """Keep the predictions of the best trials of a sweep, and of the default configurations.

    Files are deleted in a separate thread, because a store takes a while.

    Args:
        study_store: The study.
        count: Number of trials that keep their predictions, besides the default configurations.
    """

    def __init__(self, study_store: StudyStore, count: int):
        self._store = study_store
        self._defaults = default_points(study_store.space)
        self._folder: Path = study_store.folder
        self._count = count
        self._minimize = study_store.objectives.minimize
        self._thread = ThreadPoolExecutor(1, "predictions")
        ended = [(n, state.result) for n, state in study_store.states.items() if state.has_ended]
        complete = [self._entry(n, result) for n, result in ended if self._may_lose(n, result)]
        # The trials that keep their predictions, as a heap with the worst one on top
        self._best = heapq.nlargest(count, complete)
        heapq.heapify(self._best)

    def _may_lose(self, number: int, result: Result) -> bool:
        """Return whether a trial may have predictions, and loses them if others are better."""
        keys = self._store.states[number].keys
        return may_have_predictions(result) and not is_default(self._defaults, keys)

    def _entry(self, number: int, result: Result) -> tuple[float, float, int]:
        """Return the tier, the value and the number of a trial, all negative, for the heap."""
        tier, value = ranking.rank(result, self._minimize) or (math.inf, math.inf)
        return -tier, -value, -number

    def trial_ended(self, number: int, result: Result) -> None:
        """Keep the predictions of a trial that has ended, if it is one of the best trials so far.

        If a worse trial had kept its predictions, they are deleted.
        """
        if not self._may_lose(number, result):
            return
        heapq.heappush(self._best, self._entry(number, result))
        if len(self._best) > self._count:
            *_, dropped = heapq.heappop(self._best)
            self._thread.submit(self._delete, -dropped)

    def _delete(self, number: int) -> None:
        try:
            delete_predictions(checkpoint_root(self._folder, format_trial_id(number)))
        except (StoreError, OSError) as e:
            log.warning("the predictions of trial %04d could not be deleted: %s", number, e)

    def close(self) -> None:
        """Wait until all files are deleted."""
        self._thread.shutdown()


def may_have_predictions(result: Result) -> bool:
    """Return True if a trial has run to its end, or was only stopped by the end of the sweep."""
    return (result.state is State.COMPLETE or result.ended_by_time) and not result.given
