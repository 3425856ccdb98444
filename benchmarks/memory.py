"""Peak memory of a sweep with `trainer: xgboost` on a Parquet file of 25 float32 columns, for 0.5
and 2 GB of raw floats.

The file has 5 or 20 million rows and a label of two classes. A process writes it in row groups
before the sweep starts. The sweep has two trials, one after the other, on two CPUs, of which a
trial uses one. A fifth of the rows is `valid`. *Scaled* adds a StandardScaler to the chain.

Five times a second, the benchmark sums PSS, from `/proc/PID/smaps_rollup`, over all processes of
the sweep and of Ray. PSS counts a page that n processes share as 1/n in each process, so shared
memory is counted once. The table shows the moment at which the sum is largest, and the role of the
processes that hold the memory at this moment. *Shared* is the memory of all processes that is
shared, which is Ray's object store. The other columns do not include it.

    python -m benchmarks.memory --repeats 1 --side 0.5
    python -m benchmarks.memory --profile --side 0.5
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, ratio
from benchmarks.running import ROOT, script

COLUMNS = 25
GROUP = 250_000  # rows of a row group
INTERVAL = 0.2
WIDTH = 9  # of a column of the timeline
# The role of a process by the beginning of its title. Titles of Ray's tasks and actors begin with
# `ray::`.
ROLES = {
    "driver": "driver",
    "ray::_DataActor": "actor",
    "ray::Worker": "worker",
    "ray::_Pool": "pool",
    "ray::IDLE": "idle",
    "ray::": "tasks",
    "mlflow": "mlflow",
    "check": "check",
}
PROGRAMS = {"tracker_process": "mlflow", "mlflow.pyfunc": "check"}
COLUMNS_SHOWN = {
    "driver": "driver",
    "actor": "data actor",
    "worker": "worker",
    "pool": "pool",
    "idle": "idle Ray workers",
    "tasks": "Ray tasks",
    "ray": "Ray's servers",
    "mlflow": "MLflow's process",
    "check": "check of the bundle",
    "shared": "shared",
}
SPACE = """\
trainer: xgboost
data: {{train: "{file}", label: label, valid: 0.2}}
objective: {{metric: valid-logloss, goal: minimize}}
search: {{algorithm: random, seed: 0}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
{chain}  params: {{eta: {{loguniform: [0.05, 0.3]}}, max_depth: 6, num_boost_round: 8}}
"""
CHAIN = "  preprocessor: [StandardScaler]\n"


def write_rows(file: Path, rows: int) -> None:
    """Write a Parquet file with a label and columns of random floats, one row group at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(COLUMNS)]
    schema = pa.schema([*((name, pa.float32()) for name in names), ("label", pa.int8())])
    with pq.ParquetWriter(file, schema) as writer:
        for start in range(0, rows, GROUP):
            values = rng.standard_normal((COLUMNS, min(GROUP, rows - start)), dtype=np.float32)
            label = (
                values[0]
                + values[1] * values[2]
                + rng.standard_normal(values.shape[1], dtype=np.float32)
                > 0
            ).astype(np.int8)
            writer.write_table(pa.table([*values, label], schema=schema))


def role_of(command: list[str], is_driver: bool) -> str:
    """Return the role of a process, a key of `COLUMNS_SHOWN`.

    Args:
        command: Command line of the process. Ray replaces the command line of its workers with a
            title.
        is_driver: True if this is the process that runs the sweep.
    """
    text = " ".join(command)
    if is_driver:
        return "driver"
    for word, role in PROGRAMS.items():
        if word in text:
            return role
    return next((role for start, role in ROLES.items() if text.startswith(start)), "ray")


def memory_by_role(driver: int | None = None) -> dict[str, int]:
    """Return the memory of a process and all its descendants in bytes, by role.

    `shared` is the shared memory of all of them.

    Args:
        driver: Id of the process that runs the sweep; None for this process.
    """
    import psutil

    me = psutil.Process(driver)
    memory = dict.fromkeys(COLUMNS_SHOWN, 0)
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(OSError, psutil.Error):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
            sizes = {
                name: int(rest.split()[0]) * 1024
                for name, _, rest in (line.partition(":") for line in lines)
            }
            role = role_of(process.cmdline(), process.pid == me.pid)
            memory[role] += sizes["Pss"] - sizes["Pss_Shmem"]
            memory["shared"] += sizes["Pss_Shmem"]
    return memory


@contextlib.contextmanager
def sampled() -> Iterator[list[tuple[float, dict[str, int]]]]:
    """Measure in a thread, every `INTERVAL` seconds, until the block ends.

    Yields:
        The measurements so far: the seconds since the start of the block, and the memory by role in
            bytes.
    """
    samples: list[tuple[float, dict[str, int]]] = []
    ended, began = threading.Event(), time.monotonic()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            samples.append((time.monotonic() - began, memory_by_role()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield samples
    finally:
        ended.set()
        watcher.join()


def peak_of(samples: Iterable[tuple[float, Mapping[str, int]]]) -> Mapping[str, int]:
    """Return the measurement with the largest sum."""
    return max((parts for _, parts in samples), key=lambda parts: sum(parts.values()))


def timeline(samples: Iterable[tuple[float, Mapping[str, int]]]) -> str:
    """Return a table of the peak of each second, in MB."""
    lines = [
        "second    sum  "
        + "  ".join(f"{title:>{WIDTH}.{WIDTH}}" for title in COLUMNS_SHOWN.values())
    ]
    for second, group in itertools.groupby(samples, key=lambda entry: int(entry[0])):
        parts = peak_of(group)
        lines.append(
            f"{second:6} {sum(parts.values()) >> 20:6}  "
            + "  ".join(f"{parts[key] >> 20:{WIDTH}}" for key in COLUMNS_SHOWN)
        )
    return "\n".join(lines)


def run(task: Task, rows: int, chain: str = "") -> dict[str, Any]:
    """Write the file, run a sweep, and return the peak and its parts."""
    import sweeps

    file, space = task.folder / "rows.parquet", task.folder / "memory.yaml"
    code = (
        "import sys; from pathlib import Path; from benchmarks.memory import write_rows; "
        "write_rows(Path(sys.argv[1]), int(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(file), str(rows)], cwd=ROOT, check=True)
    space.write_text(SPACE.format(file=file, trials=task.trials, chain=chain))
    with sampled() as samples:
        began = time.monotonic()
        result = sweeps.run(space, dir=task.folder / "runs", cpus=2)
        whole = time.monotonic() - began
    if result.best is None:
        raise RuntimeError(f"no trial came to its end: {result.notes}")
    parts = peak_of(samples)
    measured = {
        "peak": sum(parts.values()),
        "raw": rows * COLUMNS * 4,
        "whole": whole,
        "best": result.best["value"],
        **parts,
    }
    return measured | ({"profile": timeline(samples)} if task.profile else {})


def goals(median: Median) -> list[Goal]:
    return [
        Goal(
            f"peak over the raw floats, {side.label}",
            ratio(median(side.name, "peak"), median(side.name, "raw")),
            5.0,
        )
        for side in SIDES
    ]


SIDES = (
    Side("0.5", "0.5 GB", lambda task: run(task, 5_000_000), 2),
    Side("0.5-scaled", "0.5 GB, scaled", lambda task: run(task, 5_000_000, CHAIN), 2),
    Side("2", "2 GB", lambda task: run(task, 20_000_000), 2),
)
WORKLOAD = Workload(
    name="memory",
    title="Memory: peak of a sweep",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=SIDES,
    measures=(
        Measure("peak", "peak", "MB"),
        *(Measure(key, title, "MB") for key, title in COLUMNS_SHOWN.items()),
        Measure("whole", "duration"),
    ),
    goals=goals,
    reference="",
    timeout=1800,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
