"""Set up the search of a sweep: open its study, count its slots, find its deadline."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.controller.deadline import Deadline, row_growth, speedup
from sweeps.controller.session import SweepSession
from sweeps.core import clock
from sweeps.core.resources import auto_concurrency
from sweeps.search.configurations import most_trials
from sweeps.search.plugins import scheduler_of
from sweeps.space import Space

if TYPE_CHECKING:
    from sweeps.search.search_loop import SearchLoop


def open_search(folder: Path, space: Space) -> SearchLoop:
    """Open the study of a sweep, and the search that continues it."""
    from sweeps.search.search_loop import SearchLoop

    # With 10,000 trials, garbage collection takes a quarter of the time, because each
    # collection scans all loaded trials.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return SearchLoop.open(folder, space, scheduler_of(space.scheduler))
    finally:
        if was_enabled:
            gc.enable()


def slots_of(space: Space, total: Mapping[str, float]) -> int:
    """Return how many trials run at the same time.

    Args:
        space: The search space.
        total: Resources of the cluster, by name.
    """
    slots = auto_concurrency(space.shapes, total, most_trials(space))
    sizes = {frozenset(shape.total.items()) for shape in space.shapes}
    # If trials differ in size, one more than fits waits for workers, because a small trial may
    # start before a large one that waits.
    return slots + 1 if len(sizes) > 1 else slots


def deadline_of(session: SweepSession, ends: float | None, start: float) -> Deadline | None:
    """Return when the command must end, and how large the final training is.

    None if the user gave no `--minutes`.

    Args:
        session: The session of the sweep, with the data.
        ends: When the command must end, by the monotonic clock; None without `--minutes`.
        start: Seconds that the start of the session took.
    """
    space = session.space
    if ends is None:
        return None
    models = {"members": space.bundle.ensemble, "folds": space.data.folds}
    if not space.trains_winner:
        return Deadline(ends, start, **models)
    # The final training has more rows than a trial, and perhaps more threads.
    shape = space.shapes[0]
    trial_threads = max(1.0, dict(shape.per_worker).get("CPU", 1.0))
    return Deadline(
        end=ends,
        start=start,
        growth=row_growth(session.dataset.rows, space.refit_splits, space.data.folds),
        speedup=speedup(session.final_threads(shape), trial_threads),
        slots=slots_of(space, session.cluster.total),
        **models,
        seconds=ends - clock.monotonic(),
    )
