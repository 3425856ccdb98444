"""Run the commands of a new user: `sweeps init`, `sweeps run` and `sweeps predict`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

from benchmarks.tables.tools.job import Job, main

# `limits.timeout` counts from the start of the search. `sweeps run` starts Ray before, and exports and checks the bundle after it.
START_AND_EXPORT = 11.0
# `sweeps init` writes 30. This number is never reached within the time; it is the largest for which `auto` still takes `gp`.
MAX_TRIALS = 10_000


def train(job: Job) -> None:
    """Write a space file, search the space, and export the best trial."""
    sweeps("init", "space.yaml", "--data", job.train, "--label", job.label, folder=job.folder)
    timeout = max(5.0, job.seconds_left - START_AND_EXPORT)
    settings = (
        f"limits.timeout={timeout:.0f}s",
        f"limits.max_trials={MAX_TRIALS}",
        f"search.seed={job.seed}",
        *job.overrides,
    )
    options = [f"--set={setting}" for setting in settings]
    result = sweeps("run", "space.yaml", "--dir", "runs", "--json", *options, folder=job.folder)
    bundle = json.loads(result)["bundle"]
    Path(job.folder, "bundle.txt").write_text(bundle)


def predict(job: Job) -> None:
    """Predict with the bundle."""
    bundle = Path(job.folder, "bundle.txt").read_text()
    out = Path(job.folder, "out.csv")
    sweeps("predict", bundle, job.test, "--output", str(out), folder=job.folder)
    columns(pd.read_csv(out), job.task).to_csv(job.predictions, index=False)


def columns(predicted: pd.DataFrame, task: str) -> pd.DataFrame:
    """Return the probabilities, with a column for each class, or the predictions of a regression."""
    if task == "regression":
        return predicted[["prediction"]]
    prefix = "probability_"
    found = [name for name in predicted.columns if name.startswith(prefix)]
    return predicted[found].rename(columns=lambda name: name.removeprefix(prefix))


def sweeps(*arguments: str, folder: str) -> str:
    """Run a command of sweeps in a folder, and return its standard output. If it fails, exit with its exit code."""
    command = [sys.executable, "-m", "sweeps.cli", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main(train, predict)
