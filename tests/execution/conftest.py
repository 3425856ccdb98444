"""Fixtures for the tests of workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweeps.core import loop_context


@pytest.fixture(autouse=True)
def no_loop_afterwards() -> Iterator[None]:
    """End the training loop that a test has begun in this process, as a worker does."""
    yield
    loop_context.set_current(None)
