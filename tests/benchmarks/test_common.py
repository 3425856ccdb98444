"""What is made of a benchmark's samples: times, medians, verdicts, the report."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import memory, profiling, running
from benchmarks.__main__ import NAMES, workloads
from benchmarks.common import (
    Goal,
    Measure,
    Sample,
    Side,
    Workload,
    WorkloadRecord,
    efficiency,
    less,
    median_of,
    met,
    ratio,
    report,
    shown,
    steady,
    table,
    values_of,
    verdict,
)
from benchmarks.trial_memory import counted

SAMPLES = (
    Sample("ours", 8, {"trial": 0.01, "whole": 1.0}),
    Sample("theirs", 4, {"trial": 2.0}),
    Sample("ours", 8, {"trial": 0.03, "whole": 3.0}),
    Sample("theirs", 4, {"trial": 1.0}),
    Sample("ours", 8, {"trial": 0.02, "whole": 2.0}),
)


def nothing(task):
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


def test_the_start_does_not_count_as_trial_time():
    late = [100.0 + i for i in range(8)]  # the first eighth is one trial
    assert steady([5.0, *late[1:]]) == pytest.approx((107 - 5) / 7)
    assert steady([3.0 * i for i in range(64)]) == pytest.approx(3.0)


@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=2, max_size=100), st.floats(-1e6, 1e6))
def test_steady_time_depends_only_on_differences(ends, shift):
    assert steady([end + shift for end in reversed(ends)]) == pytest.approx(steady(ends), abs=1e-6)
    assert steady(ends) >= 0


def test_efficiency_is_the_share_of_the_slots_time():
    ends = [1.0 + 0.5 * i for i in range(40)]  # two slots, never idle, a trial of 1 s
    assert efficiency(ends, work=1.0, slots=2) == pytest.approx(1.0)
    assert efficiency([2 * end for end in ends], work=1.0, slots=2) == pytest.approx(0.5)


# ---- medians


def test_medians_of_what_was_measured():
    median = median_of(SAMPLES)
    assert (median("ours", "trial"), median("theirs", "trial")) == (0.02, 1.5)
    assert median("theirs", "whole") is None and median("absent", "trial") is None
    assert values_of(SAMPLES, "ours", "whole") == [1.0, 3.0, 2.0]


def test_missing_values_stay_missing():
    assert ratio(None, 1.0) is None and ratio(1.0, None) is None and ratio(1.0, 0.0) is None
    assert less(1.0, None) is None and less(None, 1.0) is None
    assert (ratio(3.0, 2.0), less(3.0, 2.0)) == (1.5, 1.0)


# ---- words


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0183, "ms", "18.3 ms"),
        (13.94, "s", "13.9 s"),
        (1234.0, "s", "1,234 s"),
        (0.874, "%", "87.4%"),
        (32.5 * 2**20, "MB", "32.5 MB"),
        (0.5, "", "0.500"),
        (None, "s", "–"),
        (float("nan"), "s", "–"),
    ],
)
def test_numbers_as_shown(value, unit, text):
    assert shown(value, unit) == text


def test_a_goal_shows_the_difference():
    assert verdict(Goal("", 0.020, 0.030, unit="ms")) == "met, 10.0 ms to spare; 0.667 × the bound"
    assert verdict(Goal("", 0.045, 0.030, unit="ms")) == "**missed by 15.0 ms**; 1.50 × the bound"
    assert verdict(Goal("", 120.0, 100, at_most=False)) == "met, 20.0 to spare; 1.20 × the bound"
    assert verdict(Goal("", 80.0, 100, at_most=False)) == "**missed by 20.0**; 0.800 × the bound"
    assert verdict(Goal("", None, 1.0)) == "not measured"
    assert verdict(Goal("", 0.0, 0)) == "met, 0.000 to spare"


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.booleans())
def test_a_goal_is_met_or_missed(value, bound, at_most):
    goal = Goal("", value, bound, at_most)
    assert met(goal) is (value <= bound if at_most else value >= bound)
    assert verdict(goal).startswith("met" if met(goal) else "**missed")


# ---- the report


def test_a_table_has_only_the_sides_that_ran():
    lines = table(WORKLOAD, SAMPLES)
    assert lines[0] == "| side | trials a run | a trial | whole | ratio |"
    assert (
        lines[2]
        == "| sweeps | 8 | 20.0 ms (10.0 ms – 30.0 ms) | 2.00 s (1.00 s – 3.00 s) | 1.00 × |"
    )
    assert lines[3] == "| the peer | 4 | 1,500 ms (1,000 ms – 2,000 ms) | – | 75.0 × |"
    assert len(lines) == 4


def test_one_side_has_no_ratio():
    assert table(WORKLOAD, SAMPLES[:1]) == [
        "| side | trials a run | a trial | whole |",
        "|---|---|---|---|",
        "| sweeps | 8 | 10.0 ms | 1.00 s |",
    ]


def test_the_report_says_what_was_compared_where_and_whether_the_goals_are_met():
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


def test_a_section_of_another_machine_says_so():
    one = WorkloadRecord(
        "small", "", "2026-11-20 12:00", {"cores": "2", "commit": "abc"}, 1.0, 0.2, SAMPLES
    )
    other = Workload(**{**vars(WORKLOAD), "name": "other", "title": "Other"})
    two = WorkloadRecord(
        "other", "", "2026-11-21 12:00", {"cores": "2", "commit": "def"}, 1.0, 0.2, SAMPLES
    )
    text = report([WORKLOAD, other], {"small": one, "other": two})
    assert "| commit | def |" in text and "commit abc." in text


def test_records_survive_their_file():
    done = WorkloadRecord(
        "small", "command", "2026-11-20 12:00", {"cores": "2"}, 1.5, 0.2, SAMPLES, ("failed",)
    )
    assert WorkloadRecord.of_json(json.loads(json.dumps(done.to_json()))) == done


# ---- what there is


def test_every_script_is_a_workload_with_a_description():
    folder = Path(importlib.import_module("benchmarks").__file__).parent
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


def test_memory_counts_the_store_once_and_no_idle_worker():
    parts = {
        "driver": {"Pss": 100, "Pss_Anon": 60, "Pss_File": 30, "Pss_Shmem": 10},
        "ray::Worker.run": {"Pss": 50, "Pss_Anon": 20, "Pss_File": 20, "Pss_Shmem": 10},
        "ray::ImplicitFunc.train": {"Pss": 9, "Pss_Anon": 7, "Pss_File": 2, "Pss_Shmem": 0},
        "ray::IDLE": {"Pss": 70, "Pss_Anon": 70, "Pss_File": 0, "Pss_Shmem": 0},
    }
    assert counted(parts) == {
        "total": 159,
        "trials": 20 + 7 + 20,
        "worker": 20,
        "runner": 7,
        "store": 20,
    }


def test_the_peak_is_split_by_the_roles_of_processes():
    assert memory.role_of(["python", "-m", "benchmarks.running"], True) == "driver"
    assert memory.role_of(["ray::Worker.run"], False) == "worker"
    assert memory.role_of(["ray::_DataActor.prepare"], False) == "actor"
    assert memory.role_of(["ray::ReadParquet"], False) == "tasks"
    assert (
        memory.role_of(
            ["python", "-c", "from sweeps.tracking.mlflow.tracker_process import main; main()"],
            False,
        )
        == "mlflow"
    )
    assert memory.role_of(["/ray/core/src/ray/raylet/raylet", "--x"], False) == "ray"
    small, large = (dict.fromkeys(memory.COLUMNS_SHOWN, size) for size in (1 << 20, 2 << 20))
    found = [(0.1, small), (0.3, large), (1.2, small)]
    assert memory.peak_of(found) is large
    assert [line.split()[:2] for line in memory.timeline(found).splitlines()[1:]] == [
        ["0", "20"],
        ["1", "10"],
    ]


# ---- profiles


def test_a_trial_is_shown_with_its_configuration_curve_and_error():
    clocks, loops = [], {}
    for i in range(9):
        at = float(i)
        clocks += [
            ("begin", f"{i:04d}", at, at + 0.01),
            ("hear", f"{i:04d}", at + 0.8, at + 0.805),
            ("tick", "", at, at + 0.001),
        ]
        loops[f"{i:04d}"] = (at + 0.03, at + 0.73)
    lines = profiling.way(clocks, loops)
    numbers = [line.split(" | ")[1] for line in lines[2:]]
    assert numbers == ["10.0 ms", "20.0 ms", "700 ms", "70.0 ms", "5.00 ms", "195 ms", "1.00"]
    assert profiling.way([], {}) == ["no trial was followed all its way"]


def test_stacks_are_shortened():
    begins = "thread (1): mlflow;run (a/threading.py:9)"
    raw = f"{begins};write (x/sweeps/tracking.py:1) 80\n{begins};beat (b/c.py:2) 40\nbroken"
    text = "\n".join(profiling.summary("driver", raw))
    assert (
        "mlflow 15%" in text
        and "write (sweeps/tracking.py) 10%" in text
        and "threading.py) 15%" not in text
    )
    assert "none over 1%" in "\n".join(profiling.summary("pool", ""))


def test_a_later_run_of_the_same_machine_adds_its_samples():
    one = WorkloadRecord(
        "small",
        "bench small",
        "2026-11-20 12:00",
        {"cores": "2", "commit": "abc"},
        1.5,
        0.2,
        SAMPLES,
        ("failed",),
    )
    two = WorkloadRecord(
        "small",
        "bench small --more",
        "2026-11-21 12:00",
        {"cores": "2", "commit": "def"},
        2.0,
        0.1,
        SAMPLES,
        ("failed",),
    )
    both = one.joined(two)
    assert (
        both.samples == SAMPLES + SAMPLES
        and both.problems == ("failed",)
        and (both.seconds, both.load) == (3.5, 0.2)
    )
    assert (
        both.machine["commit"] == "abc; def"
        and both.date == "2026-11-20 12:00 and 2026-11-21 12:00"
    )
    assert both.joined(two).command == both.command == "bench small; bench small --more"
    with pytest.raises(ValueError, match="small: cores was 2, and is 4 now"):
        one.joined(WorkloadRecord("small", "", "", {"cores": "4", "commit": "def"}, 1.0))


def test_each_repeat_begins_with_another_side(monkeypatch):
    ran: list[str] = []

    def run_side(workload, side, trials):
        ran.append(side.name)
        return Sample(side.name, trials, {"trial": 1.0})

    monkeypatch.setattr(running, "run_side", run_side)
    sides = tuple(Side(name, name, lambda task: {}, 1) for name in "abc")
    workload = Workload("w", "w", "w", sides, (Measure("trial", "a trial"),), lambda median: [])
    running.record(workload, 2, "")
    running.record(workload, 1, "", before=2)
    assert "".join(ran) == "abcbcacab"
