"""Run the commands of a new user: `sweeps run` with a table, and `sweeps predict`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

from benchmarks.tables.tools.job import Job, main

# `limits.max_trials` of the file that is written is never reached within the time with this number.
# It is the largest for which `auto` still takes `gp`.
MAX_TRIALS = 10_000


def train(job: Job) -> None:
    """Search, and train the best trial on all rows, within the time."""
    settings = (
        f"limits.max_trials={MAX_TRIALS}",
        f"search.seed={job.seed}",
        *job.overrides,
    )
    result = sweeps(
        "run",
        job.train,
        *("--label", job.label),
        *("--task", job.task),
        *("--minutes", f"{job.seconds_left / 60:.3f}"),
        *("--dir", "runs"),
        "--json",
        *(f"--set={setting}" for setting in settings),
        folder=job.folder,
    )
    bundle = json.loads(result)["bundle"]
    Path(job.folder, "bundle.txt").write_text(bundle)


def predict(job: Job) -> None:
    """Predict with the bundle."""
    bundle = Path(job.folder, "bundle.txt").read_text()
    out = Path(job.folder, "out.csv")
    sweeps("predict", bundle, job.test, "--output", str(out), folder=job.folder)
    columns(pd.read_csv(out), job.task).to_csv(job.predictions, index=False)


def columns(predicted: pd.DataFrame, task: str) -> pd.DataFrame:
    """Return the probabilities, one column for each class, or the predictions of a regression."""
    if task == "regression":
        return predicted[["prediction"]]
    prefix = "probability_"
    names = [name for name in predicted.columns if name.startswith(prefix)]
    return predicted[names].rename(columns=lambda name: name.removeprefix(prefix))


def sweeps(*arguments: str, folder: str) -> str:
    """Run a command of sweeps in a folder, and return its standard output.

    If it fails, exit with its exit code.
    """
    command = [sys.executable, "-m", "sweeps.cli", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main(train, predict)
