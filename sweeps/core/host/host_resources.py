"""Determine the CPUs, GPUs and memory of a machine.

They are counted in the same way as Ray counts them, or given by `--resources`.
"""

import contextlib
import json
import math
import os
from pathlib import Path

from sweeps.core.errors import InputError

PLACE = "--resources"
GPU_IDS = "CUDA_VISIBLE_DEVICES"


def parse_resources(text: str) -> dict[str, float]:
    """Parse the value of `sweeps plan --resources`, such as `CPU=8,GPU=2`.

    A resource that is missing in the result counts as 0.

    Raises:
        InputError: An entry is not NAME=AMOUNT, or an amount is not a whole number of at least 0.
    """
    amounts: dict[str, float] = {}
    for entry in text.split(","):
        name, _, amount = (part.strip() for part in entry.partition("="))
        try:
            number = float(amount)
        except ValueError:
            number = math.nan
        is_whole = number >= 0 and number.is_integer()
        is_misspelt = name not in ("CPU", "GPU") and name.upper() in ("CPU", "GPU")
        if not name or not is_whole or is_misspelt:
            rule = "must be names with whole numbers, such as CPU=8,GPU=2"
            raise InputError(PLACE, f"{rule}, got `{' '.join(entry.split())[:40]}`")
        amounts[name] = number
    return amounts


def detect() -> dict[str, float]:
    """Return the numbers of CPUs and NVIDIA GPUs that Ray would find here, by Ray's names.

    Ray itself is not imported, because its import is slow.
    """
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
    """Return the ids of the GPUs that `detect` counts.

    They are the entries of `CUDA_VISIBLE_DEVICES`, or "0", "1", ... if it is not set.
    """
    count = int(detect().get("GPU", 0))
    visible = os.environ.get(GPU_IDS)
    return tuple(visible.split(",")[:count]) if visible else tuple(map(str, range(count)))


def cpus(cgroup: Path) -> int:
    """Return the number of CPUs: the container's limit, or all CPUs of the machine.

    Args:
        cgroup: Folder in which Linux shows the limits of the container's control group,
            `/sys/fs/cgroup`.
    """
    everything = os.cpu_count() or 1
    try:
        quota, period = map(float, (cgroup / "cpu.max").read_text().split())
    except (OSError, ValueError):  # the file contains `max` if there is no limit
        return everything
    return max(1, min(everything, int(quota / period)))


def memory(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Return the usable memory in bytes: that of the machine, or the container's limit.

    Args:
        cgroup: See `cpus`.
    """
    whole = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        return min(whole, float((cgroup / "memory.max").read_text()))
    except (OSError, ValueError):  # the file contains `max` if there is no limit
        return whole


def gpus(devices: Path) -> int:
    """Return the number of NVIDIA GPUs that this process may use.

    Args:
        devices: Folder of the machine's device files, `/dev`.
    """
    count = sum(file.name.removeprefix("nvidia").isdigit() for file in devices.glob("nvidia*"))
    visible = os.environ.get(GPU_IDS)
    if visible is None:
        return count
    # Slurm sets `NoDevFiles` for a job without GPUs.
    return 0 if visible in ("", "NoDevFiles") else min(count, len(visible.split(",")))
