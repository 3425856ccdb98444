"""The report of a benchmark's samples: times, medians, verdicts, the report."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import NAMES, workloads
from benchmarks.common import Goal, Measure, Sample, Side, Workload, WorkloadRecord, ratio, steady
from benchmarks.report_text import met, outcome, report, shown

SAMPLES = (
    Sample("ours", 8, {"trial": 0.01, "whole": 1.0}),
    Sample("theirs", 4, {"trial": 2.0}),
    Sample("ours", 8, {"trial": 0.03, "whole": 3.0}),
    Sample("theirs", 4, {"trial": 1.0}),
    Sample("ours", 8, {"trial": 0.02, "whole": 2.0}),
)


def nothing(task: Any) -> Any:
    return {}


WORKLOAD = Workload(
    name="small",
    title="Small trials",
    text="What is compared.",
    sides=(
        Side("ours", "sweeps", nothing, 8),
        Side("theirs", "the peer", nothing, 4),
        Side("absent", "not run", nothing, 4),
    ),
    measures=(Measure("trial", "a trial", "ms"), Measure("whole", "whole")),
    goals=lambda median: [
        Goal("a trial", median("ours", "trial"), 0.030, unit="ms"),
        Goal(
            "faster, ×",
            ratio(median("theirs", "trial"), median("ours", "trial")),
            100,
            at_most=False,
        ),
        Goal("of one that was not run", median("absent", "trial"), 1.0),
    ],
    notes=lambda median: [f"A note on {shown(median('ours', 'trial'), 'ms')}."],
)


# ---- times


def test_the_start_does_not_count_as_trial_time() -> None:
    late = [100.0 + i for i in range(8)]  # the first eighth is one trial
    assert steady([5.0, *late[1:]]) == pytest.approx((107 - 5) / 7)
    assert steady([3.0 * i for i in range(64)]) == pytest.approx(3.0)


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=2, max_size=100), st.floats(-1e6, 1e6))
def test_steady_time_depends_only_on_differences(ends: Any, shift: Any) -> None:
    assert steady([end + shift for end in reversed(ends)]) == pytest.approx(steady(ends), abs=1e-6)
    assert steady(ends) >= 0


# ---- medians


# ---- words


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.booleans())
def test_a_goal_is_met_or_missed(value: Any, bound: Any, at_most: Any) -> None:
    goal = Goal("", value, bound, at_most)
    assert met(goal) is (value <= bound if at_most else value >= bound)
    assert outcome(goal).startswith("met" if met(goal) else "**missed")


# ---- the report


def test_benchmark_report_names_sides_machine_and_goals() -> None:
    machine = {"cores": "2", "memory": "24 GiB"}
    done = WorkloadRecord(
        "small",
        "python -m benchmarks small --repeats 3",
        "2026-11-20 12:00",
        machine,
        90.0,
        0.2,
        SAMPLES,
        ("one side failed",),
    )
    text = report([WORKLOAD], {"small": done})
    for wanted in (
        "| cores | 2 |",
        "## Small trials",
        "What is compared.",
        "    python -m benchmarks small --repeats 3",
        "1.50 minutes; load average before it 0.200.",
    ):
        assert wanted in text
    assert "| Small trials | 1 of 3 |" in text
    assert "| a trial ≤ 30.0 ms | 20.0 ms | met, 10.0 ms to spare; 0.667 × the bound |" in text
    assert "**missed by 25.0**" in text and "not measured" in text
    assert "- A note on 20.0 ms." in text and "- **one side failed**" in text
    assert "3 repeats" in text and "another machine" not in text


# ---- what there is


def test_every_script_is_a_workload_with_a_description() -> None:
    folder = Path(str(importlib.import_module("benchmarks").__file__)).parent
    files = [*folder.glob("*.py"), *folder.glob("*/__init__.py")]
    scripts = {
        file.stem if file.parent == folder else file.parent.name
        for file in files
        if "WORKLOAD = Workload(" in file.read_text()
    }
    assert scripts == set(NAMES)
    for workload in workloads():
        names = [side.name for side in workload.sides]
        assert len(set(names)) == len(names) > 1
        assert (len(workload.text) > 200 and not workload.reference) or workload.reference in names
        assert all(goal.value is None for goal in workload.goals(lambda side, key: None)), (
            workload.name
        )
        workload.notes(lambda side, key: None)


# ---- profiles
