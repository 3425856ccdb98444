"""Trainers on GPUs against bare loops, and the memory of a GPU between the trials of one worker.

It needs at least one GPU.

*Paired* is as in `benchmarks.trainers`: a trial runs the trainer and the bare loop in one process,
and both train the same model on the GPU. XGBoost grows 100 trees on 324,000 rows. `torch` trains a
network with three hidden layers of 128 units on 64,800 rows, on one worker, and on two workers that
share a GPU. *Memory* runs 200 trials of networks of different sizes on one worker. Its measure is
the growth of the GPU's memory in use, from the start of the second trial to the largest start of a
later one.

    python -m benchmarks.gpu --repeats 1
"""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

from benchmarks import trainers
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload
from benchmarks.running import script

MEMORY = """\
trainer: {{loop: "tests.gpu.loops:remembers", backend: torch}}
data: {{train: "sklearn:wine", label: target, valid: 0.25}}
objective: {{metric: loss, goal: minimize}}
search: {{algorithm: random, seed: 0}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  scaling: {{num_workers: 1, resources_per_worker: {{CPU: 1, GPU: 1}}}}
  params: {{file: {file}, width: {{randint: [512, 8192]}}}}
"""


def memory(task: Task) -> dict[str, Any]:
    """Return the growth of the memory in use, in bytes."""
    from benchmarks.ours import sweep

    file = task.folder / "facts.jsonl"
    sweep(task, MEMORY.format(trials=task.trials, file=file))
    facts = [json.loads(line) for line in file.read_text().splitlines()]
    if len({fact["pid"] for fact in facts}) > 1:
        raise RuntimeError("the trials ran in several processes")
    return {"growth": max(fact["used"] for fact in facts[2:]) - facts[1]["used"]}


def absent() -> str | None:
    """Return why there are no measurements: torch finds no GPU. Return None if it finds one."""
    import torch

    return None if torch.cuda.is_available() else "torch finds no GPU on this machine"


def goals(median: Median) -> list[Goal]:
    """Return the goals: trainers cost what the bare loops cost, and the memory does not grow."""
    text = "time inside the trainer over the bare loop's, {}, ×"
    return [
        *(Goal(text.format(side.label), median(side.name, "ratio"), 1.05) for side in SIDES[:-1]),
        Goal(
            "growth of the GPU's memory in 200 trials, bytes",
            median("memory", "growth"),
            2**21,
            unit="MB",
        ),
    ]


_torch, _rows, _params = trainers.DISTRIBUTED["torch"]
_network = {**_torch, "backend": "torch", "preprocessor": "[StandardScaler]", "params": _params}
SIDES = (
    Side(
        "xgboost",
        "xgboost, 324,000 rows",
        functools.partial(trainers.paired, rows=324_000, gpus=1.0, **trainers.XGBOOST),
        9,
        trainers.THREADS,
    ),
    Side(
        "torch-1",
        "torch, one worker",
        functools.partial(trainers.paired, rows=_rows, gpus=1.0, **_network),
        9,
        trainers.THREADS,
    ),
    Side(
        "torch-2",
        "torch, two workers",
        functools.partial(trainers.paired, rows=_rows, workers=2, gpus=0.5, **_network),
        9,
        trainers.THREADS,
    ),
    Side("memory", "memory", memory, 200),
)
WORKLOAD = Workload(
    name="gpu",
    title="Trainers on GPUs, and the memory of a GPU",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=SIDES,
    measures=(
        Measure("ratio", "trainer / bare loop", ""),
        Measure("trainer", "trainer"),
        Measure("loop", "bare loop"),
        Measure("growth", "growth of memory", "MB"),
    ),
    goals=goals,
    reference="",
    absent=absent,
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
