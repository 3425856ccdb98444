"""Folders of sweeps with artificial trials, written as a sweep writes them."""

from __future__ import annotations

import random
import time
from pathlib import Path

from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from sweeps.space.python.saved_space import save_space
from sweeps.study.events import TrialReported

SPACE = """\
name: made
trainer: xgboost
data: {train: "sklearn:wine", label: target, valid: 0.25}
objective: {metric: "mlogloss", goal: minimize}
search: {algorithm: random}
scheduler: {name: asha, max_t: 9, grace_period: 1}
limits: {max_trials: 1000}
space:
  preprocessor:
    grid: [none, StandardScaler]
  scaling: {num_workers: {grid: [1, 2]}}
  params:
    eta: {loguniform: [1e-3, 0.5]}
    max_depth: {randint: [1, 9]}
    booster: {choice: [gbtree, dart]}
"""


def sweep_folder(
    root: Path, count: int, name: str = "made-20260102-120000", running: int = 0
) -> Path:
    """Write a sweep of `count` trials, of which the last `running` have not ended.

    No process runs the sweep.
    """
    root.mkdir(exist_ok=True)
    (root / "made.yaml").write_text(SPACE)
    space, folder = load(root / "made.yaml"), root / name
    folder.mkdir()
    save_space(folder, space, time.time() - 60)
    loop = SearchLoop.open(folder, space)
    for number in range(count):
        rng = random.Random(number)
        trial = loop.ask()
        assert trial is not None
        steps = rng.choice([1] * 6 + [3] * 2 + [9])
        level = abs(trial.params["eta"] - 0.1) + 0.02 * trial.params["max_depth"]
        reports = tuple(
            Report(step, {"mlogloss": level + rng.random() / step}, time.time())
            for step in range(1, steps + 1)
        )
        loop.store.append(
            TrialReported(1.0, trial.number, reports, seconds=0.5 * steps * rng.uniform(0.8, 1.2)),
        )
        logs = SweepFolder(folder).logs(trial.number)
        logs.mkdir(parents=True)
        (logs / "rank-0.log").write_text(f"\x1b[32mtraining\x1b[0m trial {trial.id} <b>\n")
        if number < count - running:
            loop.store.end(trial.number, State.COMPLETE if steps == 9 else State.PRUNED)
    return folder
