"""Plugin of pytest that records the lines of each test, and stores the time of each test.

The recorded lines have the node id of the test as context. Coverage itself would take a property
test for a function of Hypothesis.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

# Files in the working folder: the configuration of coverage, and (seconds, True if the test has
# failed) of each test, by node id.
CONFIG = "contexts.coveragerc"
OUTCOMES = "outcomes.json"
_outcomes: dict[str, tuple[float, bool]] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Start coverage in each process that runs tests; pytest-xdist gives it a name."""
    workerinput = getattr(config, "workerinput", None)
    if workerinput is not None:
        name = workerinput["workerid"]
        Coverage(config_file=CONFIG, data_file=f".coverage.{name}").start()


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
    """Save the lines in each process that runs tests, and the times of all tests in the first."""
    coverage = Coverage.current()
    if coverage is None:
        Path(OUTCOMES).write_text(json.dumps(_outcomes))
        return
    coverage.stop()
    coverage.save()
