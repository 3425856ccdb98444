"""Time of a suggestion: each algorithm suggests configurations, given a study with a certain number
of trials and 8 dimensions.

The time is that of the processor, so a suggestion that waits for other programs does not look
slower.
"""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import optuna
from optuna.trial import TrialState

from benchmarks.search_quality.ours import Ours, option
from benchmarks.search_quality.tasks import STEPS, Axis, Task, draw

AXES = {f"x{i}": Axis("float", 0.0, 1.0) for i in range(4)}
AXES |= {
    "l": Axis("float", 1e-4, 1.0, log=True),
    "i": Axis("int", 1, 9),
    "j": Axis("int", 0, 100),
    "c": Axis("choice", 0, 3),
}
RUNGS = (1, 3, 9)


def filled(algorithm: str, scheduler: str, trials: int, objectives: int = 1) -> Ours:
    """Return a study with a number of ended trials.

    With a scheduler, the trials end as ASHA would end them.

    Each objective is the squared distance from another point.
    """
    bowl = Task("bowl", AXES, lambda c: np.zeros(STEPS), 0.0, 1.0)
    ours = Ours(bowl, 0, algorithm, scheduler, objectives=objectives)
    rng = np.random.RandomState(0)
    probe = Ours(
        bowl, 0, "random", scheduler
    )  # One trial, from which the distributions of the space are read.
    probe.begin()
    known = probe.study.get_trials()[0].distributions
    asha = "asha" in scheduler
    for _ in range(trials):
        drawn = draw(AXES, rng)
        params = {
            f"params.{name}": option(value) if AXES[name].kind == "choice" else value
            for name, value in drawn.items()
        }
        places = [float(value) for name, value in params.items() if ".x" in name]
        values = [
            sum((place - best) ** 2 for place in places) + rng.rand() * 0.1
            for best in (0.5, 0.0, 1.0)[:objectives]
        ]
        passed = rng.geometric(2 / 3) if asha else 9
        steps = {step: values[0] + 1 / step for step in RUNGS[:passed]} if asha else {}
        state = TrialState.COMPLETE if passed > len(RUNGS) else TrialState.PRUNED
        whole = values if state is TrialState.COMPLETE else None
        ours.study.add_trial(
            optuna.trial.create_trial(
                params=params,
                distributions=known,
                intermediate_values=steps,
                values=whole,
                state=state,
            )
        )
    return ours


def measure(sizes: tuple[int, ...] = (100, 1000, 10_200), asks: int = 40) -> list[dict]:
    """Print and return the median and the 95th percentile of the CPU times in ms, by algorithm,
    scheduler and number of recorded trials.
    """
    rows = []
    cases = [
        ("tpe", "asha", 1),
        ("tpe", "none", 1),
        ("gp", "asha", 1),
        ("gp", "none", 1),
        ("gp", "none", 2),
        ("gp", "none", 3),
    ]
    cases += [("tpe", "none", 2), ("tpe", "none", 3)]
    cases += [(algorithm, "none", 1) for algorithm in ("random", "qmc", "nsga2")]
    cases += [("cmaes", "none", 1)] if importlib.util.find_spec("cmaes") else []
    for algorithm, name, objectives in cases:
        for size in sizes:
            ours = filled(algorithm, f"{{name: {name}, max_t: {STEPS}}}", size, objectives)
            taken = []
            for _ in range(asks + 3):
                began = time.process_time()
                trial, _ = ours.begin()
                taken.append(1000 * (time.process_time() - began))
                if name == "none":
                    ours.report(trial, STEPS, 1.0)
                    ours.end(trial, *[0.5] * (objectives - 1))
                else:
                    ours.report(trial, 1, 9.0)
            taken = taken[3:]  # The first suggestions build caches.
            rows.append(
                {
                    "algorithm": algorithm,
                    "scheduler": name,
                    "objectives": objectives,
                    "trials": size,
                }
            )
            rows[-1] |= {"median": float(np.median(taken)), "p95": float(np.percentile(taken, 95))}
            print(
                {k: round(v, 1) if isinstance(v, float) else v for k, v in rows[-1].items()},
                flush=True,
            )
    return rows
