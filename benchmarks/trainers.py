"""The time inside the trainers by name, and inside bare loops, on 2 CPUs.

The bare loops call `xgb.train`, `lgb.train`, `CatBoost.fit`, `fit` of Keras on PyTorch, `fit` of
`lightning.Trainer`, and `train` of `transformers.Trainer`. For `torch`, the bare loop is PyTorch's
usual one, for `command` the script itself, and for `trainable` calls of `Trainable.train`. XGBoost
grows 100 trees of depth 6 on 324,000 rows and on 426 rows, LightGBM and CatBoost on 324,000 rows.
The loop of `torch` trains a network with three hidden layers of 128 units on 64,800 rows, for 8
epochs. The script makes 200 passes of `SGDClassifier` over 1,200 rows of the digits data, and
reports 20 times. Keras trains a network with two hidden layers of 64 units on 32,400 rows and on
426 rows, for 5 and 20 epochs, on PyTorch. scikit-learn grows a forest of 100 trees in ten steps on
32,400 rows and on 426 rows, and makes ten passes of `SGDClassifier` over 324,000 rows. Lightning
trains a network with three hidden layers of 128 units on 64,800 rows, for 4 epochs. Transformers
trains a BERT with two layers of 32 units on 10,000 rows of 14 tokens, for 3 epochs. Lightning,
Transformers, `torch` and LightGBM run on one worker with two threads, and on two workers with one
thread each. Lightning validates all rows of valid on every worker, in both sides.
`transformers.Trainer` shares them among the workers. The bare loops measure the same metrics as the
trainers: the logloss on valid after each step; and at the end, for the model of the best step, the
usual metrics on train and valid, or on valid alone with scikit-learn. The bare loops save nothing.
The trainers also report each step and write the best model as a checkpoint. *Paired*: a trial runs
the trainer and the bare loop in one process. Every second trial runs the bare loop first. Each of
the two has its own copy of the data, which the first trial makes, and both must train the same
model. The ratio is the median over the other trials. *Alone* is the bare `xgb.train` in a process
without Ray, for the absolute time. The trainer `xgboost` can be faster, because `xgb.train` frees
its results when it returns. To evaluate the final model, the bare loop predicts all rows again (0.3
to 0.4 s at 324,000 rows). The trainer still has the sums of the last round (0.04 s). The data are
generated. The 14 columns are eight real numbers, three counts, and three codes with 20 to 260
values.

    python -m benchmarks.trainers --repeats 1
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.common import Goal, Measure, Median, Side, Task, Workload
from benchmarks.running import script

ROUNDS = 100
THREADS = {"OMP_NUM_THREADS": "2"}  # Other workloads have 1.
SPACE = """\
trainer: {{loop: "benchmarks.{loop}", backend: {backend}}}
data: {{train: {{"benchmarks.loops:random_table": {{rows: {rows}}}}}, label: y, \
valid: {{column: part, value: valid}}}}
objective: {{metric: {metric}, goal: minimize}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  preprocessor: {preprocessor}
  scaling: {{num_workers: {workers}, resources_per_worker: {{CPU: {cpus}, GPU: {gpus}}}}}
  params: {{seed: {{grid: {seeds}}}, times: "{times}", {params}}}
"""
XGBOOST = {
    "loop": "loops:paired",
    "backend": "none",
    "preprocessor": "[]",
    "params": f"num_boost_round: {ROUNDS}, max_depth: 6",
}
KERAS = {"loop": "keras_loops:paired_keras", "backend": "torch", "preprocessor": "[StandardScaler]"}
SKLEARN = {"loop": "sklearn_loops:paired_sklearn", "backend": "none"}
BOUNDS = {
    **{"paired-324000": 1.05, "paired-426": 1.2, "keras-32400": 1.05, "keras-426": 1.2},
    **{"forest-32400": 1.05, "sgd-324000": 1.05, "forest-426": 1.2},
}
# The settings, the rows and the parameters of the trainers that run on one and on two workers
DISTRIBUTED = {
    "lightgbm": (
        {"loop": "booster_loops:paired_lightgbm", "backend": "lightgbm", "preprocessor": "[]"},
        324_000,
        f"num_boost_round: {ROUNDS}",
    ),
    "torch": (
        {"loop": "torch_loops:paired_torch"},
        64_800,
        "epochs: 8, batch_size: 128, lr: 0.001",
    ),
    "lightning": (
        {"loop": "network_loops:paired_lightning", "metric": "valid-loss"},
        64_800,
        "max_epochs: 4, batch_size: 128",
    ),
    "transformers": (
        {"loop": "network_loops:paired_transformers"},
        10_000,
        (
            "num_train_epochs: 3, per_device_train_batch_size: 32, per_device_eval_batch_size: "
            "256, "
            "learning_rate: 0.001"
        ),
    ),
}
# The same of the trainers that run on one worker
SINGLE = {
    "catboost": (
        {"loop": "booster_loops:paired_catboost"},
        324_000,
        f"iterations: {ROUNDS}, depth: 6",
    ),
    "command": ({"loop": "script_loops:paired_command"}, 426, ""),
    "trainable": ({"loop": "script_loops:paired_trainable"}, 426, ""),
}
BOUNDS |= {f"{name}-{workers}": 1.05 for name in DISTRIBUTED for workers in (1, 2)} | dict.fromkeys(
    SINGLE, 1.05
)


def paired(
    task: Task,
    rows: int,
    workers: int = 1,
    metric: str = "valid-logloss",
    gpus: float = 0.0,
    **settings: str,
) -> dict[str, Any]:
    """Run a sweep whose loop runs a trainer and a bare loop in turn.

    Args:
        task: Parameters of the run.
        rows: Number of rows of train.
        workers: Number of workers.
        metric: The objective's metric.
        gpus: Part of a GPU, or number of GPUs, of a worker.
        settings: Further values in `SPACE`.
    """
    from benchmarks.ours import sweep

    times = task.folder / "times.jsonl"
    fixed = {
        "trials": task.trials,
        "seeds": list(range(task.trials)),
        "times": times,
        "workers": workers,
        "cpus": 2 // workers,
        "gpus": gpus,
    }
    sweep(task, SPACE.format(rows=rows, metric=metric, **fixed, **settings))
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
    from benchmarks.loops import bare_booster, random_table, split_matrices

    began = time.perf_counter()
    matrices = split_matrices(random_table(rows))
    seconds = []
    for seed in range(task.trials):
        bare_booster({"seed": seed}, ROUNDS, *matrices)
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
    return {"loop": statistics.median(seconds[1:]), "first_loop": seconds[0]}


def goals(median: Median) -> list[Goal]:
    labels = {side.name: side.label for side in SIDES}
    text = "time inside the trainer over the bare loop's, {}, ×"
    return [
        Goal(text.format(labels[name]), median(name, "ratio"), bound)
        for name, bound in BOUNDS.items()
    ]


def _sides() -> Iterator[Side]:
    for rows, trials in ((324_000, 9), (426, 33)):
        yield Side(
            f"paired-{rows}",
            f"xgboost, {rows:,} rows",
            functools.partial(paired, rows=rows, **XGBOOST),
            trials,
            THREADS,
        )
        yield Side(
            f"alone-{rows}",
            f"xgboost alone, {rows:,} rows",
            functools.partial(alone, rows=rows),
            trials,
            THREADS,
        )
    for rows, epochs, trials in ((32_400, 5, 9), (426, 20, 17)):
        run = functools.partial(paired, rows=rows, params=f"epochs: {epochs}", **KERAS)
        yield Side(
            f"keras-{rows}",
            f"keras, {rows:,} rows",
            run,
            trials,
            THREADS | {"KERAS_BACKEND": "torch"},
        )
    for case, rows, steps, trials in (
        ("forest", 32_400, "[]", 9),
        ("sgd", 324_000, "[StandardScaler]", 9),
        ("forest", 426, "[]", 17),
    ):
        run = functools.partial(
            paired, rows=rows, preprocessor=steps, params=f"case: {case}", **SKLEARN
        )
        yield Side(f"{case}-{rows}", f"sklearn, {case}, {rows:,} rows", run, trials, THREADS)
    for name, (settings, rows, params) in DISTRIBUTED.items():
        for workers in (1, 2):
            given = {
                "backend": "torch",
                "preprocessor": "[StandardScaler]",
                "params": params,
                "workers": workers,
            } | settings
            label = f"{name}, {rows:,} rows, {workers} worker{'s' * (workers > 1)}"
            yield Side(
                f"{name}-{workers}",
                label,
                functools.partial(paired, rows=rows, **given),
                9,
                THREADS,
            )
    for name, (settings, rows, params) in SINGLE.items():
        run = functools.partial(
            paired, rows=rows, backend="none", preprocessor="[]", params=params, **settings
        )
        yield Side(name, f"{name}, {rows:,} rows" if rows > 426 else name, run, 9, THREADS)


SIDES = tuple(_sides())
WORKLOAD = Workload(
    name="trainers",
    title="The trainer by name against a bare loop",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=SIDES,
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
