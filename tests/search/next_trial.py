"""The next trial of a search, for tests that run without a pool."""

from __future__ import annotations

from sweeps.core.trial import Trial
from sweeps.search.search_loop import SearchLoop


def next_trial(loop: SearchLoop) -> Trial:
    """Start the next trial of a queue that is not empty, and return it."""
    trial = loop.ask()
    assert trial is not None
    return trial
