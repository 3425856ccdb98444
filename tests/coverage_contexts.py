"""Plugin of pytest that tells coverage which test runs, and stores the time of each test.

Coverage itself would take a property test for a function of Hypothesis.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

# File in the working folder: (seconds, True if the test has failed) of each test, by node id.
OUTCOMES = "outcomes.json"
_outcomes: dict[str, tuple[float, bool]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the lines of a test, with its fixtures, under its node id."""
    coverage = Coverage.current()
    assert coverage is not None
    coverage.switch_context(item.nodeid)
    result = yield
    coverage.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of a part of a test."""
    seconds, has_failed = _outcomes.get(report.nodeid, (0.0, False))
    _outcomes[report.nodeid] = (seconds + report.duration, has_failed or report.failed)


def pytest_sessionfinish() -> None:
    """Write the times of all tests."""
    Path(OUTCOMES).write_text(json.dumps(_outcomes))
