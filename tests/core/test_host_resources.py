from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.core.host.host_resources import cpus, detect, gpu_ids, gpus, memory, parse_resources


@pytest.mark.parametrize(
    "text, pairs",
    [
        ("CPU=8,GPU=2", {"CPU": 8, "GPU": 2}),
        (" CPU = 8 , accelerator:A100=1", {"CPU": 8, "accelerator:A100": 1}),
        ("CPU=8.0,GPU=0", {"CPU": 8, "GPU": 0}),
        ("CPU=1e2", {"CPU": 100}),
    ],
)
def test_resources_are_pairs(text: str, pairs: Any) -> None:
    assert parse_resources(text) == pairs


@pytest.mark.parametrize(
    "text",
    ["", "8", "CPU:8", "=8", "CPU=8,", "cpu=8", "CPU=", "CPU=-1", "CPU=nan", "CPU=inf", "CPU=2.5"],
)
def test_other_texts_are_refused_in_a_line(text: str) -> None:
    with pytest.raises(InputError, match="--resources: must be names with whole numbers") as e:
        parse_resources(text)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("limit", "count"),
    [(None, 8), ("max 100000\n", 8), ("250000 100000\n", 2), ("50000 100000\n", 1)],
)
def test_cpus_are_the_containers_where_it_has_a_limit(
    limit: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    assert cpus(tmp_path) == count


def test_this_machine_has_the_cpus_that_ray_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import utils

    monkeypatch.delenv("RAY_OVERRIDE_RESOURCES", raising=False)
    assert detect()["CPU"] == utils.get_num_cpus()
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 3, "disk": 1}')
    assert detect() | {"GPU": 0} == {"CPU": 3, "GPU": 0, "disk": 1}


def test_memory_is_the_containers_where_it_has_a_limit(tmp_path: Path) -> None:
    whole = memory(tmp_path)
    assert whole > 2**28
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(tmp_path) == whole
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory(tmp_path) == 2**20


@pytest.mark.parametrize(
    "visible, count", [(None, 2), ("", 0), ("NoDevFiles", 0), ("1", 1), ("0,1,2", 2)]
)
def test_gpus_are_those_that_may_be_seen(
    visible: str | None, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus(tmp_path) == count
    assert gpus(tmp_path / "without") == 0


@pytest.mark.parametrize(
    "visible, ids",
    [(None, ("0", "1", "2")), ("", ("0", "1", "2")), ("3,GPU-ab,5,7", ("3", "GPU-ab", "5"))],
)
def test_gpus_have_the_ids_of_cuda(
    visible: str | None, ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 3}')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_ids() == ids
