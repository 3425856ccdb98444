"""500 trials that only sleep, two at a time, with TPE: the share of the slots' time that trials
use.

A trial sleeps 1 s or 0.1 s, and reports once. *Efficiency* is the share of time in which the two
slots sleep, in steady state: the time of the sleep, divided by the number of slots and by the time
for each trial as defined above. *From the start* is the same share over the whole duration of
`sweeps.run` or `Tuner.fit`. It includes the start of workers and, for sweeps, the export at the
end. Ray runs already before the measurement starts. TPE suggests `x`, and the trial reports `x`.
Tune runs 40 trials.

    python -m benchmarks.sleepers --repeats 1 --trials 20
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import peers
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload
from benchmarks.ours import sweep
from benchmarks.running import script

SLOTS = 2
SPACE = """\
    trainer: {{loop: "benchmarks.probe_loops:sleep", backend: none}}
    data: {{train: "benchmarks.probe_loops:one_row", label: y, valid: 0.5}}
    objective: {{metric: x, goal: minimize}}
    search: {{algorithm: tpe, seed: 0}}
    limits: {{max_trials: {trials}, max_concurrent_trials: 2}}
    space:
      params:
        x: {{uniform: [0.0, 1.0]}}
        seconds: {seconds}
"""


def with_shares(task: Task, seconds: float, measured: dict[str, Any]) -> dict[str, Any]:
    """Return the measures of a run, with its efficiency in steady state and from the start."""
    ideal = seconds / SLOTS
    return {
        **measured,
        "efficiency": ideal / measured["trial"],
        "whole_efficiency": ideal * task.trials / measured["whole"],
    }


def ours(task: Task, seconds: float) -> dict[str, Any]:
    return with_shares(
        task, seconds, sweep(task, SPACE.format(trials=task.trials, seconds=seconds)).numbers
    )


def tune_sleep(task: Task, seconds: float, reuse: bool) -> dict[str, Any]:
    from ray import tune

    space = {"x": tune.uniform(0.0, 1.0), "seconds": seconds}
    return with_shares(
        task,
        seconds,
        peers.tune_run(task, peers.sleep_function, space, "x", slots=SLOTS, reuse=reuse),
    )


def goals(median: Median) -> list[Goal]:
    return [
        Goal("efficiency, 1 s", median("ours", "efficiency"), 0.95, at_most=False, unit="%"),
        Goal(
            "efficiency, 1 s, from the start",
            median("ours", "whole_efficiency"),
            0.95,
            at_most=False,
            unit="%",
        ),
        Goal(
            "efficiency, 0.1 s", median("ours-short", "efficiency"), 0.80, at_most=False, unit="%"
        ),
        Goal(
            "efficiency, 0.1 s, from the start",
            median("ours-short", "whole_efficiency"),
            0.80,
            at_most=False,
            unit="%",
        ),
    ]


WORKLOAD = Workload(
    name="sleepers",
    title="Sleepers: the share of the slots' time that trials get",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=(
        Side("ours", "1 s: sweeps", lambda task: ours(task, 1.0), 500),
        Side(
            "tune-reuse", "1 s: Tune, `reuse_actors`", lambda task: tune_sleep(task, 1.0, True), 40
        ),
        Side("tune", "1 s: Tune", lambda task: tune_sleep(task, 1.0, False), 40),
        Side("ours-short", "0.1 s: sweeps", lambda task: ours(task, 0.1), 500),
        Side(
            "tune-reuse-short",
            "0.1 s: Tune, `reuse_actors`",
            lambda task: tune_sleep(task, 0.1, True),
            40,
        ),
        Side("tune-short", "0.1 s: Tune", lambda task: tune_sleep(task, 0.1, False), 40),
    ),
    measures=(
        Measure("efficiency", "efficiency", "%"),
        Measure("whole_efficiency", "from the start", "%"),
        Measure("trial", "a trial", "ms"),
    ),
    goals=goals,
    reference="",
    timeout=600,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
