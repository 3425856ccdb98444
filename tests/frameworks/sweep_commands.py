"""Run commands of sweeps, and predict in a process without Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    args = [sys.executable, "-c", code, "predict", bundle, tmp_path / "rows.csv", "-o", tmp_path / "out.csv"]
    done = subprocess.run(args, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(tmp_path / "out.csv")
