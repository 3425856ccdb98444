"""Determine the CPUs, GPUs and memory of a machine.

They are counted in the same way as Ray counts them, or given by `--resources`.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from sweeps.core.errors import InputError, Problem

PLACE = "--resources"
GPU_IDS = "CUDA_VISIBLE_DEVICES"


def parse_resources(text: str) -> dict[str, float]:
    """Parse the value of `sweeps plan --resources`, such as `CPU=8,GPU=2`.

    A resource that is missing in the result counts as 0.

    Raises:
        InputError: An entry is not NAME=AMOUNT, a name is repeated, or an amount is not a whole
            number of at least 0.
    """
    found: dict[str, float] = {}
    problems = []
    for entry in text.split(","):
        name, equals, amount = (part.strip() for part in entry.partition("="))
        shown = " ".join(entry.split())
        shown = shown if len(shown) <= 40 else shown[:39] + "…"
        number = _whole(amount)
        if not name or not equals:
            problems.append(f"must be NAME=AMOUNT pairs such as CPU=8,GPU=2, got `{shown}`")
        elif name.upper() in ("CPU", "GPU") and name != name.upper():
            problems.append(f"unknown resource in `{shown}`; did you mean `{name.upper()}`?")
        elif number is None:
            problems.append(
                f"the amount of a resource must be a whole number of at least 0, got `{shown}`"
            )
        elif name in found:
            problems.append(f"`{name}` is given twice, with {found[name]:g} and {number:g}")
        else:
            found[name] = number
    if problems:
        raise InputError([Problem(PLACE, text) for text in dict.fromkeys(problems)])
    return found


def _whole(text: str) -> float | None:
    """Parse a whole number of at least 0. Return None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number.is_integer() and 0 <= number < 2**53 else None


def detect() -> dict[str, float]:
    """Return the numbers of CPUs and NVIDIA GPUs that Ray would find on this machine, by Ray's names. Ray is not imported."""
    overrides: dict[str, float] = {}
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        overrides = {
            str(name): float(amount)
            for name, amount in json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES") or "{}").items()
        }
    counted = {
        "CPU": float(cpus(Path("/sys/fs/cgroup"))),
        "GPU": float(gpus(Path("/dev"))),
    } | overrides
    return {name: amount for name, amount in counted.items() if amount or name == "CPU"}


def gpu_ids() -> tuple[str, ...]:
    """Return the ids of the GPUs that `detect` counts: the entries of `CUDA_VISIBLE_DEVICES`, or "0", "1", ... if it is not set."""
    count = int(detect().get("GPU", 0))
    visible = os.environ.get(GPU_IDS)
    return tuple(visible.split(",")[:count]) if visible else tuple(map(str, range(count)))


def cpus(cgroup: Path) -> int:
    """Return the same number of CPUs as Ray's `get_num_cpus`. A test compares both functions.

    This is the container's limit, or the number of all CPUs of the machine if there is no limit.

    Args:
        cgroup: Folder in which Linux shows the limits of the container's control group,
            `/sys/fs/cgroup`.
    """
    everything = os.cpu_count() or 1
    if os.environ.get("RAY_USE_MULTIPROCESSING_CPU_COUNT"):
        return everything
    limits = []
    for limit in (_quota, _pinned):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            limits.append(limit(cgroup))
    return int(min(filter(None, limits), default=everything))


def memory(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the usable memory in bytes: the smaller of the container's limit and the memory of the machine."""
    limits = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for name in ("memory/memory.limit_in_bytes", "memory.max"):
        with contextlib.suppress(
            OSError, ValueError
        ):  # the file contains `max` if there is no limit
            limits.append(float((cgroup / name).read_text()))
    return min(limits)


def _quota(cgroup: Path) -> float | None:
    """Return the number of CPUs that the container's CPU quota allows; None if there is no quota."""
    quota, period = cgroup / "cpu" / "cpu.cfs_quota_us", cgroup / "cpu" / "cpu.cfs_period_us"
    if quota.exists() and period.exists():
        amount = float(quota.read_text()) / float(period.read_text())
    elif (cgroup / "cpu.max").exists():
        first, second = (cgroup / "cpu.max").read_text().split()
        amount = float(first) / float(second) if first.isnumeric() and second.isnumeric() else -1.0
    else:
        return None
    return None if amount < 0 else amount or 1.0


def _pinned(cgroup: Path) -> int | None:
    """Return the number of CPUs to which cgroups version 1 restricts the container.

    Return None if there is no such restriction.

    Cgroups version 2 is not read, because Ray does not read it either.
    """
    file = cgroup / "cpuset" / "cpuset.cpus"
    if not file.exists():
        return None
    spans = [span.partition("-") for span in file.read_text().split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)


def gpus(devices: Path) -> int:
    """Return the number of NVIDIA GPUs that this process may use.

    Args:
        devices: Folder of the machine's device files, `/dev`.
    """
    count = sum(file.name.removeprefix("nvidia").isdigit() for file in devices.glob("nvidia*"))
    if not count and (devices / "dxg").exists():  # WSL has no device files
        count = _gpus_of_driver()
    visible = os.environ.get(GPU_IDS)
    if visible is None:
        return count
    return 0 if visible in ("", "NoDevFiles") else min(count, len(visible.split(",")))


def _gpus_of_driver() -> int:
    """Return the number of GPUs that NVIDIA's driver reports; 0 if no driver is installed."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        driver, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint()
        if driver.nvmlInit_v2() == 0 and driver.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
            return count.value
    return 0
