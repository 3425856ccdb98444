from __future__ import annotations

from collections.abc import Iterator

import pytest

from sweeps.core.clock import use_clock
from tests.search.conftest import make_space
from tests.simulation.simulated_pool import VirtualClock

__all__ = ["make_space"]


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    """A virtual clock in place of the machine's clock."""
    virtual = VirtualClock()
    with use_clock(virtual):
        yield virtual
