"""Compare `auto`, `tpe` and random configurations in real sweeps: `python -m
benchmarks.search_quality.real_sweeps --help`.

`TLC_FILES=... ... run` runs the quickstart and the taxi space as a user does, with `sweeps run`,
one sweep at a time. It also runs the quickstart with 64 trials instead of 16. It appends each sweep
to reports/search_quality_sweeps.jsonl. The order of the algorithms changes from seed to seed. The
clock starts with the first trial, and the value of a trial counts from the trial's end. `...
report` writes the table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.running import ROOT
from benchmarks.search_quality.report import section
from benchmarks.spaces import sweep
from sweeps.study.record_reader import Record, read

RESULTS = ROOT / "reports" / "search_quality_sweeps.jsonl"
# Each space, with changes of its file.
SPACES: dict[str, tuple[str, ...]] = {
    "quickstart": ("search_spaces/quickstart.yaml",),
    "taxi": ("search_spaces/taxi_big_tip.yaml",),
    "quickstart of 64 trials": ("search_spaces/quickstart.yaml", "limits.max_trials=64"),
}
ALGORITHMS = ("auto", "tpe", "random")
# The best value is noted after these shares of the median wall time of all sweeps of a space.
MARKS = (0.5, 0.75, 1.0)


def run(space: str, algorithm: str, seed: int) -> dict[str, Any]:
    """Run a sweep.

    Return its best values, as (seconds, value) pairs, and the score of the winner on the test
    split.

    Raises:
        RuntimeError: The command failed.
    """
    file, *changes = SPACES[space]
    with tempfile.TemporaryDirectory(prefix="bench-sweeps-") as folder:
        outcome = sweep(
            file,
            Path(folder),
            ROOT,
            [*changes, f"search.algorithm={algorithm}", f"search.seed={seed}"],
        )
        record = read(Path(outcome["dir"]))
        assert record is not None
        best = best_by_time(record)
    return {
        "space": space,
        "algorithm": algorithm,
        "seed": seed,
        "best": best,
        "test": outcome["best"]["test"],
        "trials": outcome["trials"],
    }


def best_by_time(record: Record) -> list[tuple[float, float]]:
    """Return the seconds from the first trial's start at which a trial ended with a better value
    than all before it, and these values.
    """
    sign = 1 if record.objectives.minimize else -1
    began = min(t.began for t in record.trials if t.began is not None)
    ends = sorted(
        (t.end_time, t.result.value)
        for t in record.trials
        if t.end_time is not None and t.result.value is not None
    )
    best: list[tuple[float, float]] = []
    for ended, value in ends:
        if not best or sign * value < sign * best[-1][1]:
            best.append((round((ended - began).total_seconds(), 2), round(value, 6)))
    return [*best, (round((ends[-1][0] - began).total_seconds(), 2), best[-1][1])]


def value_at(best: Sequence[Sequence[float]], seconds: float) -> float:
    """Return the best value that a sweep had after a time; before its first trial ended, the value
    of this trial.
    """
    return max((one for one in best if one[0] <= seconds), default=best[0], key=lambda one: one[0])[
        1
    ]


def spread(values: Sequence[float], sign: str = "") -> str:
    """Return the mean of values with half of its 95% interval."""
    half = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{np.mean(values):{sign}.4f} ± {half:.4f}"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table: a line for each space and algorithm, over the seeds that all algorithms
    have.

    A seed also decides how the rows are split, so values are compared with those of random
    configurations with the same seed.
    """
    heads = [
        "space",
        "algorithm",
        *(f"valid at {mark:.0%} of the time" for mark in MARKS),
        "minus random",
        "test",
        "seconds",
        "seeds",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for space in SPACES:
        by_run = {(row["algorithm"], row["seed"]): row for row in rows if row["space"] == space}
        seeds = [
            seed
            for seed in sorted({seed for _, seed in by_run})
            if all((name, seed) in by_run for name in ALGORITHMS)
        ]
        if not seeds:
            continue
        whole = float(
            np.median([by_run[name, seed]["best"][-1][0] for name in ALGORITHMS for seed in seeds])
        )
        for name in ALGORITHMS:
            of = [by_run[name, seed] for seed in seeds]
            values = {mark: [value_at(row["best"], mark * whole) for row in of] for mark in MARKS}
            random = [value_at(by_run["random", seed]["best"], whole) for seed in seeds]
            cells = [f"{np.mean(values[mark]):.4f}" for mark in MARKS]
            cells += [
                spread(np.subtract(values[MARKS[-1]], random).tolist(), "+")
                if name != "random"
                else ""
            ]
            cells += [
                f"{np.mean([row['test'] for row in of]):.4f}",
                f"{np.median([row['best'][-1][0] for row in of]):.1f}",
                str(len(of)),
            ]
            lines.append("| " + " | ".join([f"{space}, {whole:.1f} s", f"`{name}`", *cells]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.real_sweeps", description=__doc__
    )
    parser.add_argument("verb", choices=["run", "report"])
    parser.add_argument("--spaces", default=",".join(SPACES), help="separated by ,")
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    rows = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    if asked.verb == "report":
        section(
            RESULTS.with_name("search_quality.md"),
            "<!-- sweeps -->",
            "<!-- end of the sweeps -->",
            table(rows) + "\n",
        )
        return
    done = {(row["space"], row["algorithm"], row["seed"]) for row in rows}
    for seed in range(asked.seeds):
        for space in asked.spaces.split(","):
            for algorithm in np.roll(ALGORITHMS, seed).tolist():
                if (space, algorithm, seed) not in done:
                    row = run(space, algorithm, seed)
                    with open(RESULTS, "a") as file:
                        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
