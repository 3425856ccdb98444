"""Measure what `scheduler: {resource: data.rows}` saves: two sweeps of a random forest with the
same searcher, with and without it.

    python -m benchmarks.row_fidelity FOLDER [SEED ...]

Each sweep runs `search_spaces/data_rows.yaml`, one trial at a time. The estimator logs how many
rows each fit reads and how much CPU time it takes, so that other processes on the machine do not
change the result. `FOLDER` gets the sweeps and one JSON line for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from sklearn.ensemble import RandomForestClassifier

SPACE = Path(__file__).parent.parent / "search_spaces" / "data_rows.yaml"
LOG = "ROW_FIDELITY_LOG"


class Forest(RandomForestClassifier):
    """A random forest that logs each fit to the file that the environment variable
    `ROW_FIDELITY_LOG` names.
    """

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> Forest:
        began = time.process_time()
        super().fit(x, y, sample_weight)
        with open(os.environ[LOG], "a") as log:
            log.write(json.dumps([len(x), time.process_time() - began]) + "\n")
        return self


def measure(folder: Path, seed: int, on_rows: bool) -> dict[str, Any]:
    """Run one sweep, and return what it found and what its fits cost."""
    import sweeps

    log = folder / f"fits-{seed}-{'rows' if on_rows else 'whole'}.jsonl"
    log.unlink(missing_ok=True)
    overrides = [
        f"search.seed={seed}",
        "trainer.estimator=benchmarks.row_fidelity:Forest",
        "limits.max_concurrent_trials=1",
    ]
    overrides += [f"runtime_env={{env_vars: {{{LOG}: '{log}'}}}}"] + (
        [] if on_rows else ["scheduler={name: none}"]
    )
    result = sweeps.run(SPACE, overrides=tuple(overrides), dir=folder / "runs")
    fits = [json.loads(line) for line in log.read_text().splitlines()]
    whole = max(rows for rows, _ in fits)
    return {
        "seed": seed,
        "on_rows": on_rows,
        "best": result.best.get("value"),
        "test": result.best.get("test"),
        "trials": result.trials,
        "times_the_train_rows": round(sum(rows for rows, _ in fits) / whole, 2),
        "cpu_seconds": round(sum(seconds for _, seconds in fits), 1),
    }


def main(folder: str, *seeds: str) -> None:
    """Measure both sweeps with each seed, and print one line for each."""
    place = Path(folder).resolve()
    place.mkdir(parents=True, exist_ok=True)
    for seed in map(int, seeds or ("0",)):
        for on_rows in (True, False):
            line = json.dumps(measure(place, seed, on_rows))
            print(line, flush=True)
            with open(place / "results.jsonl", "a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
