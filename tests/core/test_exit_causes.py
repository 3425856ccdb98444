"""The causes of a worker's death."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.core.host import exit_causes


@pytest.mark.parametrize(
    ("cgroups", "file"),
    [
        ("0::/\n", "memory.events"),
        ("0::/user.slice/job-7.scope\n", "user.slice/job-7.scope/memory.events"),
        ("12:cpu,cpuacct:/\n4:memory:/\n0::/\n", "memory/memory.oom_control"),
        ("4:memory:/docker/4f\n0::/\n", "memory/docker/4f/memory.oom_control"),
        ("4:hugetlb,memory:/jobs/7\n", "memory/jobs/7/memory.oom_control"),
        ("5:cpu:/a\n4:memory:/docker/4f\n", "memory/memory.oom_control"),  # in the container
    ],
)
def test_kills_are_counted_under_both_versions_of_cgroups(
    cgroups: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroups").write_text(cgroups)
    monkeypatch.setattr(exit_causes, "CGROUPS", tmp_path / "cgroups")
    monkeypatch.setattr(exit_causes, "MOUNT", tmp_path / "mount")
    assert exit_causes.kills_for_memory() == 0
    counter = tmp_path / "mount" / file
    counter.parent.mkdir(parents=True)
    counter.write_text("oom_kill_disable 0\nunder_oom 0\noom 9\noom_kill 0\n")
    assert exit_causes.kills_for_memory() == 0
    counter.write_text("oom 9\noom_kill 6\noom_group_kill 0\n")
    assert exit_causes.kills_for_memory() == 6


def test_an_unknown_number_of_kills_is_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exit_causes, "CGROUPS", tmp_path / "none")
    monkeypatch.setattr(exit_causes, "MOUNT", tmp_path)
    assert exit_causes.kills_for_memory() == 0
