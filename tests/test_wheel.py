"""The wheel works in an environment of its own, away from the checkout: the command line, the
trainers and the quickstart.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests import shipped_spaces
from tests.commands import REPO

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


def run(*command: object, cwd: Path, timeout: float = 120) -> str:
    """Run a command outside the checkout and return its stdout."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def copy_of_the_checkout(target: Path) -> Path:
    """Copy what goes into a distribution, without an old `build` folder of the checkout."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, target / name)
    for name in ("sweeps", "trainers"):
        shutil.copytree(REPO / name, target / name, symlinks=True, ignore=ignore)
    return target


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; its other packages are those of the environment that
    runs the tests.
    """
    source = copy_of_the_checkout(tmp_path_factory.mktemp("source"))
    dist, env = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", dist, source, cwd=dist)
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env)
    python = env / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        wheel,
        cwd=env,
    )
    # A path in a .pth file is searched last, and .pth files in it are not read: the editable
    # install of the checkout is not seen.
    (site,) = env.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return env


@pytest.fixture
def away(tmp_path: Path) -> Path:
    """A folder with the space files that ship, and nothing else of the checkout."""
    for file in (REPO / "search_spaces").iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    return tmp_path


def test_the_package_and_its_trainers_come_from_the_wheel(environment: Any, away: Any) -> None:
    code = (
        "import sweeps, sweeps.trainers.xgboost as x, sweeps.trainers.torch_tabular as t; "
        "print(sweeps.__file__, x.__file__, t.__file__)"
    )
    for file in run(environment / "bin" / "python", "-c", code, cwd=away).split():
        assert Path(file).is_relative_to(environment)


def test_the_shipped_spaces_validate(environment: Any, away: Any) -> None:
    for file in shipped_spaces.loadable():
        assert "valid" in run(environment / "bin" / "sweeps", "validate", file.name, cwd=away)


@pytest.mark.extended
def test_the_quickstart_runs(environment: Any, away: Any) -> None:
    sweeps = environment / "bin" / "sweeps"
    out = run(
        sweeps,
        "run",
        "quickstart.yaml",
        "--set",
        "limits.max_trials=4",
        "--json",
        cwd=away,
        timeout=250,
    )
    result = json.loads(out)
    assert result["trials"]["failed"] == 0 and result["trials"]["completed"] >= 1
    rows = Path(result["bundle"], "data/sweep/check.parquet")
    predictions = run(sweeps, "predict", result["bundle"], rows, cwd=away).splitlines()
    assert predictions[0].startswith("prediction") and len(predictions) > 2
