"""24 trials of a small network on the digits data: DDP on two workers, five epochs, one report for
each epoch, one trial at a time.

No scheduler stops trials. The loop is the one in Ray's documentation (`prepare_model`, `report`).
The network has two hidden layers of 64 units. Each worker has batches of 64 rows and one thread.
`lr` and `weight_decay` are tuned. *Same loop* runs exactly this loop in sweeps. *`trainer:
torch_tabular`* is the built-in trainer with a network of the same size. It measures three metrics
in each epoch, and writes the best epoch as a checkpoint. The other tool does what Ray documents in
place of `Tuner(TorchTrainer(...))`: a Tune function trial calls `TorchTrainer.fit`. Its health
check runs every 2 s, the default, or every 0.05 s. The trial gets its data as an argument and asks
for no CPU. With Tune's default of one CPU, two workers would wait forever on two cores. The limit
is the same loop without Ray, in two processes that stay alive, with random configurations.

    python -m benchmarks.ddp_digits --repeats 1 --trials 4
    python -m benchmarks.ddp_digits --profile [--side ours-loop]
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import peers
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, ratio
from benchmarks.running import script

SPACE = """\
    trainer: {trainer}
    data: {{train: "sklearn:digits", label: target, valid: 0.25}}
    objective: {{metric: valid-mlogloss, goal: minimize}}
    search: {{algorithm: tpe, seed: 0}}
    limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
    space:
      scaling: {{num_workers: 2, resources_per_worker: {{CPU: 1}}}}
      params:
        lr: {{loguniform: [1e-4, 1e-1]}}
        weight_decay: {{loguniform: [1e-6, 1e-2]}}
{params}"""
LOOP = '{loop: "benchmarks.ddp_loops:ddp_our_loop", backend: torch}'


def ours(task: Task, own_trainer: bool) -> dict[str, Any]:
    from benchmarks.profiling import swept

    trainer, loop = (
        ("torch_tabular", "sweeps.trainers.torch_tabular:train_func")
        if own_trainer
        else (LOOP, "benchmarks.ddp_loops:ddp_our_loop")
    )
    constants = {"depth": 2, "width": 64, "batch_size": 64, "epochs": 5} if own_trainer else {}

    def space(trainer: str, constants: dict[str, Any]) -> str:
        params = "".join(f"        {k}: {v}\n" for k, v in constants.items())
        return SPACE.format(trainer=trainer, trials=task.trials, params=params)

    return swept(task, space, trainer, loop, constants)


def train_v2(task: Task) -> dict[str, Any]:
    from ray import tune

    from benchmarks.ddp_loops import ddp_train_loop
    from benchmarks.loops import toy

    space = {"lr": tune.loguniform(1e-4, 1e-1), "weight_decay": tune.loguniform(1e-6, 1e-2)}
    return peers.tune_run(
        task, peers.in_tune("torch", ddp_train_loop, 2, toy("digits")), space, "valid-mlogloss"
    )


def bare(task: Task) -> dict[str, Any]:
    import json

    import numpy as np
    import torch.multiprocessing

    from benchmarks.common import steady
    from benchmarks.ddp_loops import ddp_bare

    draw = np.random.default_rng(0)
    configs = [
        {"lr": 10 ** draw.uniform(-4, -1), "weight_decay": 10 ** draw.uniform(-6, -2)}
        for _ in range(task.trials)
    ]
    torch.multiprocessing.spawn(ddp_bare, (2, str(task.folder), configs), nprocs=2)
    return {"trial": steady(json.loads((task.folder / "ends.json").read_text()))}


def goals(median: Median) -> list[Goal]:
    goals_of_sides = []
    for side, what in (("ours", "`trainer: torch_tabular`"), ("ours-loop", "same loop")):
        mine = median(side, "trial")
        goals_of_sides.append(
            Goal(
                f"faster than Train V2 in Tune, {what}, ×",
                ratio(median("train-v2", "trial"), mine),
                100,
                at_most=False,
            )
        )
        goals_of_sides.append(
            Goal(
                f"faster than it tuned, {what}, ×",
                ratio(median("train-v2-tuned", "trial"), mine),
                50,
                at_most=False,
            )
        )
    return goals_of_sides


WORKLOAD = Workload(
    name="ddp_digits",
    title="Distributed trials: DDP on digits",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=(
        Side("ours", "sweeps, `trainer: torch_tabular`", lambda task: ours(task, True), 24),
        Side("ours-loop", "sweeps, same loop", lambda task: ours(task, False), 24),
        Side("bare", "the limit: two bare processes, one process group", bare, 24),
        Side("train-v2", "Train V2 in Tune", train_v2, 4),
        Side(
            "train-v2-tuned",
            "Train V2 in Tune, health check every 0.05 s",
            train_v2,
            4,
            peers.TUNED_TRAIN,
        ),
    ),
    measures=(Measure("trial", "a trial"),),
    goals=goals,
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
