"""Make rows for a sweep, run commands of sweeps, and predict in a process without Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from tests.commands import REPO, command


def call(*args: object) -> str:
    """Run a command of sweeps, and return its output."""
    process = command(*args)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out


def predicted_without_ray(bundle: Path, tmp_path: Path) -> pd.DataFrame:
    """Predict `rows.csv` in a process in which an import of Ray fails."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "ray.py").write_text("raise ImportError('there is no Ray')\n")
    code = "import sys; from sweeps.cli import main; main()"
    env = os.environ | {"PYTHONPATH": f"{hidden}{os.pathsep}{REPO}"}
    args = [
        sys.executable,
        "-c",
        code,
        "predict",
        bundle,
        tmp_path / "rows.csv",
        "-o",
        tmp_path / "out.csv",
    ]
    done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(tmp_path / "out.csv")


def houses(task: str) -> pd.DataFrame:
    """Return rows with numbers, missing values and text, and a label."""
    rng = np.random.default_rng(1)
    n = 600
    frame = pd.DataFrame(
        {
            "area": rng.lognormal(3, 0.5, n),
            "rooms": rng.integers(1, 9, n),
            "town": rng.choice(["Lyon", "Nice", "Pau"], n),
        }
    )
    worth = (
        frame["area"] + 3.0 * frame["rooms"] + (frame["town"] == "Nice") * 15 + rng.normal(0, 2, n)
    )
    frame.loc[::9, "area"] = np.nan
    frame.loc[::11, "town"] = None
    bounds = {"binary": [35], "multiclass": [28, 42], "regression": []}[task]
    return frame.assign(
        label=worth
        if task == "regression"
        else np.array(["low", "middle", "high"])[np.digitize(worth, bounds)]
    )
