"""The time inside `trainer: xgboost` and a bare `xgb.train`: 324,000 rows and 426 rows, 100 rounds, depth 6, 2 threads.

The bare loop measures the same metrics as the trainer: the logloss on valid after each round; and at the end, for the model of the best
round, logloss, error and AUC on train and valid. The bare loop saves nothing. The trainer also reports each round and writes the best model
as a checkpoint. *Paired*: a trial runs the trainer and the bare loop in one process. Every second trial runs the bare loop first. Each of
the two has its own matrices, which the first trial builds, and both must train the same model. The ratio is the median over the other
trials. *Alone* is the bare loop in a process without Ray, for the absolute time.
The trainer can be faster, because `xgb.train` frees its results when it returns. To evaluate the final model, the bare loop predicts all
rows again (0.3 to 0.4 s at 324,000 rows). The trainer still has the sums of the last round (0.04 s).
The data are generated. The 14 columns are eight real numbers, three counts, and three codes with 20 to 260 values.

    python -m benchmarks.trainers --repeats 1
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

from benchmarks.common import Goal, Measure, Median, Side, Task, Workload
from benchmarks.running import script

ROUNDS = 100
THREADS = {"OMP_NUM_THREADS": "2"}  # Other workloads have 1.
BOUNDS = {324_000: 1.05, 426: 1.2}
SPACE = """\
trainer: {{loop: "benchmarks.loops:paired", backend: none}}
data: {{train: {{"benchmarks.loops:made": {{rows: {rows}}}}}, label: y, valid: {{column: part, value: valid}}}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  scaling: {{resources_per_worker: {{CPU: 2}}}}
  params: {{seed: {{grid: {seeds}}}, num_boost_round: {rounds}, max_depth: 6, times: "{times}"}}
"""


def paired(task: Task, rows: int) -> dict[str, Any]:
    from benchmarks.ours import sweep

    times = task.folder / "times.jsonl"
    seeds = list(range(task.trials))
    sweep(task, SPACE.format(rows=rows, trials=task.trials, seeds=seeds, rounds=ROUNDS, times=times))
    first, *later = [json.loads(line) for line in times.read_text().splitlines()]
    ratios = [ours / bare for ours, bare in later]
    return {
        "ratio": statistics.median(ratios),
        "trainer": statistics.median(ours for ours, _ in later),
        "loop": statistics.median(bare for _, bare in later),
        "first": first[0],
        "first_loop": first[1],
    }


def alone(task: Task, rows: int) -> dict[str, Any]:
    from benchmarks.loops import bare_booster, made, made_matrices

    began = time.perf_counter()
    matrices = made_matrices(made(rows))
    found = []
    for seed in range(task.trials):
        bare_booster({"seed": seed}, ROUNDS, *matrices)
        found.append(time.perf_counter() - began)
        began = time.perf_counter()
    return {"loop": statistics.median(found[1:]), "first_loop": found[0]}


def goals(median: Median) -> list[Goal]:
    text = "time inside the trainer over the bare loop's, {:,} rows, ×"
    return [Goal(text.format(rows), median(f"paired-{rows}", "ratio"), bound) for rows, bound in BOUNDS.items()]


WORKLOAD = Workload(
    name="trainers",
    title="The trainer by name against a bare loop",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=tuple(
        Side(f"{name}-{rows}", f"{name}, {rows:,} rows", lambda task, run=run, rows=rows: run(task, rows), trials, THREADS)
        for rows, trials in ((324_000, 9), (426, 33))
        for name, run in (("paired", paired), ("alone", alone))
    ),
    measures=(
        Measure("ratio", "trainer / bare loop", ""),
        Measure("trainer", "trainer"),
        Measure("loop", "bare loop"),
        Measure("first", "trainer, first trial"),
        Measure("first_loop", "bare loop, first"),
    ),
    goals=goals,
    reference="",
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
