"""Memory that an additional trial needs: 4 concurrent trials on 360,000 taxi rows are compared with
1 trial.

The measured quantity is PSS, from `/proc/PID/smaps_rollup`. PSS counts a page that n processes
share as 1/n in each process, so shared memory is counted once. PSS is summed over all processes of
the sweep and of Ray, at a moment when every trial waits in the middle of its training. The memory
of an additional trial is a third of the difference between 4 trials and 1 trial. Each additional
trial adds a worker process and, before 2026-11-25, a process of Tune's runner. The size of these
processes does not depend on the data. The goal is therefore about *trials' own, and the store*: the
anonymous memory of the trials' processes, and all shared memory, without libraries. The same value
for a hundredth of the rows is subtracted. *Table* is a loop that reads every value of the shards in
shared memory and keeps the table. Its ratio is to the size of the prepared train and valid data in
memory. *Trainer* is `trainer: xgboost` in its third round, with one thread in each trial. XGBoost
copies the table into its own matrix, and also stores sums for each row. *Bare* are processes that
import only pandas and XGBoost. They read the same prepared rows from Parquet, build the same
matrices, and train in the same way up to the same round.

    TLC_FILES=... python -m benchmarks.trial_memory --repeats 1
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import taxi
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, less, ratio
from benchmarks.report_text import shown
from benchmarks.running import ROOT, script

LATEST = 300.0
ROUNDS = 5
PARTS = {
    "total": "PSS in all",
    "worker": "the training process's own",
    "runner": "Tune's runner's own",
    "store": "object store",
}
BARE_LOOP = "benchmarks.bare_process"
# Runs in a separate process, so that its memory is freed before the measurement.
PREPARE = (
    "import sys; from benchmarks.bare_process import prepare; prepare(sys.argv[1], sys.argv[2] == "
    "'1')"
)
BARE = "bare"
WORKERS = ("ray::Worker", "ray::RayTrainWorker", BARE)
TRIALS = (*WORKERS, "ray::ResourceTrainable", "ray::Runner", "ray::ImplicitFunc")


def pss() -> dict[str, dict[str, int]]:
    """Return the memory of this process and all its descendants in bytes.

    Returns:
        The total PSS and its kinds, by the first word of the processes' titles.
    """
    import psutil

    me = psutil.Process()
    memory: dict[str, dict[str, int]] = {}
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(OSError, psutil.Error):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
            kinds = {
                name: int(rest.split()[0]) * 1024
                for name, _, rest in (line.partition(":") for line in lines)
                if name.startswith("Pss")
            }
            command = process.cmdline()
            title = (
                "driver"
                if process.pid == me.pid
                else " ".join(command)[:24].split(" ")[0].rpartition("/")[2]
            )
            title = BARE if BARE_LOOP in command else title
            mine = memory.setdefault(title, {})
            for name, amount in kinds.items():
                mine[name] = mine.get(name, 0) + amount
    return memory


def counted(parts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Compute the measures of the workload from the result of `pss`.

    Returns:
        `total` is the PSS of all processes except Ray's idle workers, whose number varies by
        chance. `trials` is the anonymous memory of the processes of trials, and the object store.
        It does not include libraries, which processes share, or memory that exists without a
        trial. `trials` has three parts: `worker`, the processes that train; `runner`, Tune's
            processes; and `store`, the object store.
    """
    working = {title: kinds for title, kinds in parts.items() if title != "ray::IDLE"}
    own = {
        title: kinds.get("Pss_Anon", 0)
        for title, kinds in working.items()
        if title.startswith(TRIALS)
    }
    store = sum(kinds.get("Pss_Shmem", 0) for kinds in working.values())
    worker = sum(amount for title, amount in own.items() if title.startswith(WORKERS))
    total = sum(kinds["Pss"] for kinds in working.values())
    return {
        "total": total,
        "trials": sum(own.values()) + store,
        "worker": worker,
        "runner": sum(own.values()) - worker,
        "store": store,
    }


def ours(task: Task, loop: str, few: bool, trials: int) -> dict[str, Any]:
    """Run `trials` trials at once in sweeps, and measure while all of them wait."""
    from benchmarks.ours import sweep

    data = taxi.DATA.replace("taxi:load", "benchmarks.taxi:load_few") if few else taxi.DATA
    taxi.beside(task.folder)
    rounds = f", num_boost_round: {ROUNDS}" if "trainer" in loop else ""
    with watched(task.folder, trials) as (latch, sampled):
        space = f"""\
trainer: {{loop: "benchmarks.probe_loops:{loop}", backend: none}}
{data}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: {trials}, max_concurrent_trials: {trials}}}
space:
  preprocessor: ["taxi:features"]
  params: {{{taxi.TUNED}, latch: "{latch}"{rounds}}}
"""
        sweep(Task(trials, task.folder), space, cpus=4)
    return sampled


def bare(task: Task, few: bool, trials: int) -> dict[str, Any]:
    """Run `trials` processes at once that train without sweeps; measure while all of them wait."""
    import subprocess

    subprocess.run(
        [sys.executable, "-c", PREPARE, str(task.folder), str(int(few))], cwd=ROOT, check=True
    )
    with watched(task.folder, trials) as (latch, sampled):
        command = [sys.executable, "-m", BARE_LOOP, str(task.folder), str(latch), str(ROUNDS)]
        started = [
            subprocess.Popen([*command, f"{number:04d}"], cwd=ROOT) for number in range(trials)
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError("a bare process failed")
    return sampled


@contextlib.contextmanager
def watched(folder: Path, trials: int) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Start a thread that measures as soon as `trials` trials wait at a latch, and then releases
    them.

    Yields:
        The folder of the latch, and the dict to which the thread adds the measured values.

    Raises:
        RuntimeError: The trials did not all wait at the same time.
    """
    latch = folder / "latch"
    latch.mkdir()
    sampled: dict[str, Any] = {}

    def look() -> None:
        give_up = time.monotonic() + LATEST
        try:
            while len(ready := list(latch.glob("ready-*"))) < trials and time.monotonic() < give_up:
                time.sleep(0.05)
            if len(ready) == trials:
                time.sleep(
                    1.0
                )  # Wait until background work of the driver, such as MLflow's thread, is done.
                parts = pss()
                sampled.update(counted(parts), parts=parts, **json.loads(ready[0].read_text()))
        finally:
            (latch / "go").touch()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    yield latch, sampled
    watcher.join()
    if "total" not in sampled:
        raise RuntimeError(f"the trials were not all at work together within {LATEST:.0f} s")


def further(median: Median, kind: str, rows: str, key: str) -> float | None:
    """Return the bytes that an additional trial adds."""
    added = less(median(f"{kind}-{rows}-4", key), median(f"{kind}-{rows}-1", key))
    return None if added is None else added / 3


def of_data(median: Median, kind: str) -> float | None:
    """Return the bytes that an additional trial adds because of the rows, in its own memory and in
    the object store.
    """
    return less(further(median, kind, "full", "trials"), further(median, kind, "few", "trials"))


def goals(median: Median) -> list[Goal]:
    size = median("table-full-1", "bytes")
    table, trainer, alone = (of_data(median, kind) for kind in ("table", "trainer", BARE))
    total = ratio(
        further(median, "trainer", "full", "total"), further(median, BARE, "full", "total")
    )
    return [
        Goal(
            "a further trial's part of the data's size, a loop that reads the table",
            ratio(table, size),
            0.15,
            unit="%",
        ),
        Goal(
            "what the rows add with a further trial, `trainer: xgboost` over a bare process",
            ratio(trainer, alone),
            1.1,
        ),
        Goal("PSS that a further trial adds, `trainer: xgboost` over a bare process", total, 1.1),
    ]


def notes(median: Median) -> list[str]:
    lines = [
        f"The data: {shown(median('table-full-1', 'bytes'), 'MB')}, train and valid, prepared."
    ]
    for kind in ("table", "trainer", "bare"):
        parts = []
        for key, what in PARTS.items():
            full, few = further(median, kind, "full", key), further(median, kind, "few", key)
            parts.append(f"{what} {shown(full, 'MB')} ({shown(few, 'MB')})")
        lines.append(
            f"A further trial, {kind}, with all rows (and with a hundredth of them): "
            f"{', '.join(parts)}."
        )
    return lines


def side(kind: str, few: bool, trials: int) -> Side:
    rows = "few" if few else "full"
    label = (
        f"{kind}, {'a hundredth of the' if few else 'all'} rows, {trials} trial{'s' * (trials > 1)}"
    )
    if kind == "bare":
        return Side(f"{kind}-{rows}-{trials}", label, lambda task: bare(task, few, trials), trials)
    return Side(
        f"{kind}-{rows}-{trials}",
        label,
        lambda task: ours(task, f"latched_{kind}", few, trials),
        trials,
    )


WORKLOAD = Workload(
    name="trial_memory",
    title="Memory: a further trial on the same data",
    text=(__doc__ or "").partition("\n\n    TLC_FILES")[0],
    sides=tuple(
        side(kind, few, trials)
        for kind in ("table", "trainer", "bare")
        for few in (False, True)
        for trials in (1, 4)
    ),
    measures=(
        Measure("total", "sum of PSS", "MB"),
        Measure("trials", "trials' own, and the store", "MB"),
    ),
    goals=goals,
    reference="",
    notes=notes,
    absent=taxi.absent,
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
