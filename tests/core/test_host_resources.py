from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.core.host_resources import cpus, detect, gpu_ids, gpus, memory, parse_resources


@pytest.mark.parametrize(
    "text, found",
    [
        ("CPU=8,GPU=2", {"CPU": 8, "GPU": 2}),
        (" CPU = 8 , accelerator:A100=1", {"CPU": 8, "accelerator:A100": 1}),
        ("CPU=8.0,GPU=0", {"CPU": 8, "GPU": 0}),
        ("CPU=1e2", {"CPU": 100}),
    ],
)
def test_resources_are_pairs(text, found):
    assert parse_resources(text) == found


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got ``"),
        ("8", "must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got `8`"),
        ("CPU:8", "must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got `CPU:8`"),
        ("=8", "must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got `=8`"),
        ("CPU=8,", "must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got ``"),
        ("cpu=8", "unknown resource in `cpu=8`; did you mean `CPU`?"),
        ("CPU=8,Gpu=1", "unknown resource in `Gpu=1`; did you mean `GPU`?"),
        ("CPU=", "the amount of a resource must be a whole number of at least 0, got `CPU=`"),
        ("CPU=all", "the amount of a resource must be a whole number of at least 0, got `CPU=all`"),
        ("CPU=-1", "the amount of a resource must be a whole number of at least 0, got `CPU=-1`"),
        ("CPU=nan", "the amount of a resource must be a whole number of at least 0, got `CPU=nan`"),
        ("CPU=inf", "the amount of a resource must be a whole number of at least 0, got `CPU=inf`"),
        ("CPU=2.5", "the amount of a resource must be a whole number of at least 0, got `CPU=2.5`"),
        ("CPU=1=2", "the amount of a resource must be a whole number of at least 0, got `CPU=1=2`"),
        ("CPU=2,CPU=3", "`CPU` is given twice, with 2 and 3"),
        ("x" * 99, f"must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got `{'x' * 39}…`"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(text, problem):
    with pytest.raises(InputError) as e:
        parse_resources(text)
    assert [str(p) for p in e.value.problems] == [f"--resources: {problem}"]


def test_every_problem_is_told_at_once():
    with pytest.raises(InputError) as e:
        parse_resources("cpu=1,GPU=x,\n,,")
    assert len(e.value.problems) == 3


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    try:
        assert all(
            amount >= 0 and amount == int(amount) for amount in parse_resources(text).values()
        )
    except InputError as e:
        assert all("\n" not in str(p) for p in e.problems)


CGROUPS = [
    {},
    {"cpu.max": "max 100000\n"},
    {"cpu.max": "250000 100000\n"},
    {"cpu.max": "50000 100000\n"},
    {"cpu.max": "nonsense"},
    {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
    {
        "cpu/cpu.cfs_quota_us": "300000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu.max": "100000 100000",
    },
    {
        "cpu/cpu.cfs_quota_us": "300000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpuset/cpuset.cpus": "0-1\n",
    },
    {"cpuset/cpuset.cpus": "0-2,5,7-8\n"},
    {"cpuset/cpuset.cpus": "\n"},
]


@pytest.mark.parametrize("files", CGROUPS, ids=str)
def test_cpus_are_counted_as_ray_counts_them(files, tmp_path, monkeypatch):
    utils = pytest.importorskip("ray._private.utils")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    real = utils._get_docker_cpus
    names = ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us", "cpuset/cpuset.cpus", "cpu.max")
    monkeypatch.setattr(
        utils, "_get_docker_cpus", lambda: real(*(str(tmp_path / name) for name in names))
    )
    monkeypatch.delenv("RAY_USE_MULTIPROCESSING_CPU_COUNT", raising=False)
    assert cpus(tmp_path) == utils.get_num_cpus()


def test_this_machine_has_the_cpus_that_ray_would_find(monkeypatch):
    utils = pytest.importorskip("ray._private.utils")
    monkeypatch.delenv("RAY_OVERRIDE_RESOURCES", raising=False)
    assert detect()["CPU"] == utils.get_num_cpus()
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 3, "disk": 1}')
    assert detect() | {"GPU": 0} == {"CPU": 3, "GPU": 0, "disk": 1}


def test_memory_is_the_containers_where_it_has_a_limit(tmp_path):
    whole = memory(tmp_path)
    assert whole > 2**28
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(tmp_path) == whole
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory(tmp_path) == 2**20
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("2097152\n")
    assert memory(tmp_path) == 2**21


@pytest.mark.parametrize(
    "visible, count", [(None, 2), ("", 0), ("NoDevFiles", 0), ("1", 1), ("0,1,2", 2)]
)
def test_gpus_are_those_that_may_be_seen(visible, count, tmp_path, monkeypatch):
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
def test_gpus_have_the_ids_of_cuda(visible, ids, monkeypatch):
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 3}')
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_ids() == ids
