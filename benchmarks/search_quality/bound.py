"""Effect of the bound on the number of kernels of `tpe`.

Each pair replays the same task and seed with and without the bound. No scheduler stops trials. The
two sweeps of a pair are identical until there are more trials than kernels, so later differences
come only from the bound.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.search_quality.ours import Ours
from benchmarks.search_quality.replay import replay
from benchmarks.search_quality.report import read, section
from benchmarks.search_quality.tasks import STEPS, task
from sweeps.search.samplers import tpe_model

# Functions on which several hundred trials do not find the optimum. Recorded tables are left out,
# because all their entries would be tried.
TASKS = ("hartmann6", "rosenbrock4", "ackley5", "cells", "crossing")
BUDGETS = (100, 250, 500, 1000)  # numbers of trials of full length
KERNELS = tpe_model.KERNELS
WITH, WITHOUT = f"{KERNELS} kernels", "all kernels"


def run(minutes: float, seeds: Sequence[int], out: Path) -> None:
    """Replay the pairs that are not recorded yet, until the time is over.

    An interrupted pair is not recorded.
    """
    until = time.time() + 60 * minutes
    done = {(r["method"], r["task"], r["seed"]) for r in read(out)}
    for seed in seeds:
        for name in TASKS:
            for method, kernels in ((WITH, KERNELS), (WITHOUT, 10**9)):
                if (method, name, seed) in done:
                    continue
                if time.time() > until:
                    return
                began, searcher = (
                    time.time(),
                    Ours(task(name), seed, "tpe", f"{{name: none, max_t: {STEPS}}}"),
                )
                tpe_model.KERNELS = kernels
                regret = [round(r, 5) for r in replay(task(name), searcher, BUDGETS)]
                row = {
                    "method": method,
                    "task": name,
                    "seed": seed,
                    "budgets": BUDGETS,
                    "regret": regret,
                }
                with open(out, "a") as f:
                    f.write(json.dumps({**row, "seconds": round(time.time() - began, 2)}) + "\n")


def pairs(rows: list[dict], name: str | None = None) -> np.ndarray:
    """Return the regrets with and without the bound, as an array (pairs, 2, budgets), for one task
    or for all tasks.
    """
    known = {
        (r["method"], r["task"], r["seed"]): r["regret"] for r in rows if name in (None, r["task"])
    }
    differences = [
        [known[WITH, t, s], known[WITHOUT, t, s]]
        for m, t, s in known
        if m == WITH and (WITHOUT, t, s) in known
    ]
    return np.array(differences).reshape(-1, 2, len(BUDGETS))


def table(rows: list[dict]) -> str:
    """Return the results as a Markdown table.

    There is one line for each task, with the mean regret with / without the bound at each budget.
    The last lines compare all pairs.
    """
    lines = [
        "| task | " + " | ".join(f"{b} trials" for b in BUDGETS) + " | pairs |",
        "|---|" + "---|" * (len(BUDGETS) + 1),
    ]
    for name in TASKS:
        gaps = pairs(rows, name)
        if len(gaps):
            mean = gaps.mean(axis=0)
            lines.append(
                f"| {name} | "
                + " | ".join(f"{a:.4f} / {b:.4f}" for a, b in mean.T)
                + f" | {len(gaps)} |"
            )
    gaps = pairs(rows)
    if len(gaps) > 1:
        more = gaps[:, 0] - gaps[:, 1]
        half = 1.96 * more.std(axis=0, ddof=1) / len(more) ** 0.5
        texts = [f"{m:+.4f} ± {h:.4f}" for m, h in zip(more.mean(axis=0), half, strict=True)]
        lines.append("| bound − none | " + " | ".join(texts) + f" | {len(more)} |")
        texts = [f"{(d > 0).sum()} / {(d == 0).sum()} / {(d < 0).sum()}" for d in more.T]
        lines.append(
            "| pairs where the bound is worse / equal / better | " + " | ".join(texts) + " | |"
        )
    with_it, without = (
        np.mean([r["seconds"] for r in rows if r["method"] == method] or [np.nan])
        for method in (WITH, WITHOUT)
    )
    lines += [
        "",
        (
            f"A replay of {BUDGETS[-1]} trials took {with_it:.0f} s with the bound and "
            f"{without:.0f} "
            "s without it."
        ),
    ]
    return "\n".join(lines) + "\n"


def write(file: Path, page: Path) -> None:
    """Write the table to the report."""
    if rows := read(file):
        section(page, "<!-- bound -->", "<!-- end of the bound -->", table(rows))
