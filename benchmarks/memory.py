"""4 concurrent trials on 360,000 taxi rows against 1: the memory that a further trial adds.

Counted is PSS (`/proc/PID/smaps_rollup`; a page that n processes share counts an n-th in each, so shared memory once) over all
processes of the sweep, Ray's included, in the moment in which every trial is in the middle of its training and held there. A
further trial is a third of the difference between 4 and 1. It adds two processes, a worker and Tune's runner, whatever the data.
So the goal is about *trials' own, and the store*: anonymous memory of the trials' processes, and shared memory of all, that is,
without libraries; less the same with a hundredth of the rows; in ratio to the size of the data, train and valid as the loop gets
them, prepared, in memory. *Table*: a loop that reads every value of the shards where they lie, and holds them. *Trainer*:
`trainer: xgboost` in its third round, one thread a trial; XGBoost copies the table into a matrix of its own, and keeps sums for
each row beside it.

    TLC_FILES=... python -m benchmarks.memory --repeats 1
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import taxi
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, less, ratio, shown
from benchmarks.running import script

LATEST = 300.0
TRIALS = ("ray::Solo", "ray::RayTrainWorker", "ray::ResourceTrainable", "ray::Runner", "ray::ImplicitFunc")


def pss() -> dict[str, dict[str, int]]:
    """The memory of this process and all below it, in bytes: by the first word of their titles, PSS in all and by kind."""
    import psutil

    me = psutil.Process()
    found: dict[str, dict[str, int]] = {}
    for process in [me, *me.children(recursive=True)]:
        with contextlib.suppress(OSError, psutil.Error):
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
            kinds = {
                name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines) if name.startswith("Pss")
            }
            title = "driver" if process.pid == me.pid else " ".join(process.cmdline())[:24].split(" ")[0].rpartition("/")[2]
            mine = found.setdefault(title, {})
            for name, amount in kinds.items():
                mine[name] = mine.get(name, 0) + amount
    return found


def counted(parts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What the workload measures, of `pss`.

    Returns:
        `total`: PSS of all processes but Ray's idle workers, of which there are more or fewer by chance; `trials`: what the processes
        of trials have of their own, and the object store, once: without the libraries, which many processes share, and without what
        does not come with a trial.
    """
    working = {title: kinds for title, kinds in parts.items() if title != "ray::IDLE"}
    own = sum(kinds.get("Pss_Anon", 0) for title, kinds in working.items() if title.startswith(TRIALS))
    store = sum(kinds.get("Pss_Shmem", 0) for kinds in working.values())
    return {"total": sum(kinds["Pss"] for kinds in working.values()), "trials": own + store}


def ours(task: Task, loop: str, few: bool, trials: int) -> dict[str, Any]:
    """Run so many trials at once, and measure while all are held."""
    from benchmarks.ours import sweep

    latch = task.folder / "latch"
    latch.mkdir()
    found: dict[str, Any] = {}
    data = taxi.DATA.replace("taxi:load", "benchmarks.taxi:load_few") if few else taxi.DATA
    space = f"""\
trainer: {{loop: "benchmarks.loops:{loop}", backend: none}}
{data}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: {trials}, max_concurrent_trials: {trials}}}
space:
  preprocessor: ["taxi:features"]
  params: {{{taxi.TUNED}, latch: "{latch}"{", num_boost_round: 5" if "trainer" in loop else ""}}}
"""

    def look() -> None:
        give_up = time.monotonic() + LATEST
        try:
            while len(ready := list(latch.glob("ready-*"))) < trials and time.monotonic() < give_up:
                time.sleep(0.05)
            if len(ready) == trials:
                time.sleep(1.0)  # what the driver does at its own pace, as MLflow's thread, is done
                parts = pss()
                found.update(counted(parts), parts=parts, **json.loads(ready[0].read_text()))
        finally:
            (latch / "go").touch()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    taxi.beside(task.folder)
    sweep(Task(trials, task.folder), space, cpus=4)
    watcher.join()
    if "total" not in found:
        raise RuntimeError(f"the trials were not all at work together within {LATEST:.0f} s")
    return found


def further(median: Median, kind: str, rows: str, key: str) -> float | None:
    """Bytes that a further trial adds."""
    added = less(median(f"{kind}-{rows}-4", key), median(f"{kind}-{rows}-1", key))
    return None if added is None else added / 3


def goals(median: Median) -> list[Goal]:
    size = median("table-full-1", "bytes")
    found = []
    for kind, what in (("table", "a loop that reads the table"), ("trainer", "`trainer: xgboost`")):
        data = less(further(median, kind, "full", "trials"), further(median, kind, "few", "trials"))
        found.append(Goal(f"a further trial's part of the data's size, {what}", ratio(data, size), 0.15, unit="%"))
    return found


def notes(median: Median) -> list[str]:
    lines = [f"The data: {shown(median('table-full-1', 'bytes'), 'MB')}, train and valid, prepared."]
    for kind in ("table", "trainer"):
        full, few = further(median, kind, "full", "total"), further(median, kind, "few", "total")
        lines.append(f"A further trial, {kind}: {shown(full, 'MB')} of PSS in all; {shown(few, 'MB')} with a hundredth of the rows.")
        full, few = further(median, kind, "full", "trials"), further(median, kind, "few", "trials")
        lines.append(f"Of its own and in the object store: {shown(full, 'MB')}; {shown(few, 'MB')} with a hundredth of the rows.")
    return lines


def side(kind: str, few: bool, trials: int) -> Side:
    rows = "few" if few else "full"
    label = f"{kind}, {'a hundredth of the' if few else 'all'} rows, {trials} trial{'s' * (trials > 1)}"
    return Side(f"{kind}-{rows}-{trials}", label, lambda task: ours(task, f"latched_{kind}", few, trials), trials)


WORKLOAD = Workload(
    name="memory",
    title="Memory: a further trial on the same data",
    text=(__doc__ or "").partition("\n\n    TLC_FILES")[0],
    sides=tuple(side(kind, few, trials) for kind in ("table", "trainer") for few in (False, True) for trials in (1, 4)),
    measures=(Measure("total", "sum of PSS", "MB"), Measure("trials", "trials' own, and the store", "MB")),
    goals=goals,
    reference="",
    notes=notes,
    absent=taxi.absent,
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
