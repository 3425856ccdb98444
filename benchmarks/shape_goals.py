"""Goals and notes of the benchmark `shapes`, from its medians."""

from __future__ import annotations

import importlib.util

from benchmarks.common import Goal, Median, less


def goals(median: Median) -> list[Goal]:
    reached = [
        Goal(
            f"sweep of one trial with 2 workers, more than with 1, {name}",
            more(median, key),
            1.5,
            unit="s",
        )
        for key, name in (("torch", "torch"), ("xgboost", "XGBoost"))
    ]
    reached += [
        Goal(
            "32 trials on 1 and 2 workers in turn, over the mean of 32 on each, ×",
            median("in-turn", "ratio"),
            1.1,
        ),
        Goal("the same on two nodes, ×", median("in-turn-nodes", "ratio"), 1.2),
        Goal(
            "40 trials on three nodes: used share of the CPUs",
            median("three-nodes", "ratio"),
            0.85,
            at_most=False,
            unit="%",
        ),
        Goal(
            "40 trials on three nodes: gangs that were split although a node had room",
            median("three-nodes", "needless"),
            0,
        ),
    ]
    reached += [
        Goal(f"a gang formed again, {name}", median(f"again-{name}", "ms"), 0.05, unit="ms")
        for name in BACKENDS
    ]
    reached += [
        Goal("a lost rank until the next report", median("lost-rank", "seconds"), 4.0, unit="s"),
        Goal("a lost rank: new processes", median("lost-rank", "processes"), 1),
        Goal("two tiny trials, the whole command", median("two-tiny", "seconds"), 9.0, unit="s"),
        Goal("a distributed trial in steady state", median("ddp", "trial"), 0.23, unit="s"),
    ]
    for side, name in (("small-loop", "same loop"), ("small", "`trainer: xgboost`")):
        reached.append(
            Goal(
                f"overhead of a small trial over the bare loop, {name}",
                less(median(side, "beside"), median("bare", "beside")),
                0.025,
                unit="ms",
            )
        )
    return reached


def more(median: Median, trainer: str) -> float | None:
    """Return the additional seconds of a sweep of one trial with two workers."""
    return less(
        median(f"one-trial-{trainer}-2", "seconds"), median(f"one-trial-{trainer}-1", "seconds")
    )


def notes(median: Median) -> list[str]:
    parts = [median("two-tiny", key) for key in ("before", "during", "after")]
    lines = []
    if all(part is not None for part in parts):
        before, during, after = (f"{part:.1f} s" for part in parts)
        lines.append(
            f"Two tiny trials: {before} until the first trial starts, {during} for the trials, "
            f"and {after} after the last trial."
        )
    if (processes := median("three-nodes", "processes")) is not None:
        lines.append(
            f"40 trials on three nodes: {processes:.0f} processes, "
            f"{median('three-nodes', 'split'):.0f} gangs on more than one node."
        )
    return lines


BACKENDS = ("torch", "xgboost", *(("lightgbm",) if importlib.util.find_spec("lightgbm") else ()))


TRAINERS = {"torch": "torch_tabular", "xgboost": "xgboost"}
