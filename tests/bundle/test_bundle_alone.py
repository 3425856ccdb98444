"""A bundle in a new virtual environment made of its own requirements: no checkout, no Ray, nothing
else installed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bundle_parts import write_parts
from test_bundle_of_trainers import trained

import sweeps.trainers.xgboost
from sweeps.space import Step
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(480), pytest.mark.long, pytest.mark.integration]

CHAIN = (
    Step("sklearn.impute:SimpleImputer", "numeric", {}),
    Step("sklearn.preprocessing:StandardScaler", "numeric", {}),
    Step("sklearn.preprocessing:OneHotEncoder", "categorical", {}),
)
FIRST = """
import sys, time
start = time.perf_counter()
import mlflow.pyfunc
model = mlflow.pyfunc.load_model(sys.argv[1])
import pandas as pd
out = model.predict(pd.read_parquet(sys.argv[1] + "/data/sweep/check.parquet"))
seconds = time.perf_counter() - start
import importlib.util, json
there = [n for n in ("ray", "torch", "optuna") if importlib.util.find_spec(n)]
print(json.dumps([out["probability_yes"].tolist(), seconds, there, sys.modules["sweeps"].__file__]))
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("alone")
    kept = trained(sweeps.trainers.xgboost, {"num_boost_round": 5}, "binary", CHAIN, folder)
    return write_parts(folder / "out" / "bundle", **kept), kept


@pytest.fixture(scope="module")
def python(bundle: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The interpreter of a new environment, with what `requirements.txt` names."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pip = [
        home / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "-r",
        bundle[0] / "requirements.txt",
    ]
    subprocess.run(list(map(str, pip)), check=True, timeout=400)
    return str(home / "bin" / "python")


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {
        "MLFLOW_DISABLE_TELEMETRY": "true"
    }


def test_requirements_are_the_few_that_inference_needs(bundle: Any) -> None:
    names = {line.split("==")[0] for line in (bundle[0] / "requirements.txt").read_text().split()}
    assert names == {
        *("mlflow", "numpy", "pandas", "pyarrow", "pydantic", "pydantic_core"),
        *("scikit-learn", "scipy", "xgboost"),
    }


def test_a_bundle_predicts_the_same_bits_within_three_seconds(
    bundle: Any, python: Any, tmp_path: Path
) -> None:
    path, kept = bundle
    seconds = []
    for _ in range(3):  # the first compiles what pip did not
        done = subprocess.run(
            [python, "-c", FIRST, str(path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(),
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        answer, took, there, ours = json.loads(done.stdout.splitlines()[-1])
        assert not there and ours.startswith(str(path))
        np.testing.assert_array_equal(answer, kept["expected"])
        seconds.append(took)
    assert min(seconds) <= 3, seconds


def test_mlflow_serves_it(bundle: Any, python: Any, tmp_path: Path) -> None:
    path, kept = bundle
    port = free_port()
    command = [
        python,
        "-m",
        "mlflow",
        "models",
        "serve",
        "-m",
        str(path),
        "--env-manager",
        "local",
        "--port",
        str(port),
    ]
    env = environment() | {"PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}"}
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        assert server.poll() is None, (tmp_path / "log").read_text()
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return bool(urllib.request.urlopen(f"{url}/ping", timeout=2).status == 200)
        return False

    try:
        wait_until(up, 60, "the server")
        rows = kept["raw"].to_json(orient="split", index=False)
        request = urllib.request.Request(
            f"{url}/invocations",
            f'{{"dataframe_split": {rows}}}'.encode(),
            {"Content-Type": "application/json"},
        )
        answer = json.loads(urllib.request.urlopen(request, timeout=20).read())["predictions"]
        np.testing.assert_allclose(
            [row["probability_yes"] for row in answer], kept["expected"], rtol=1e-12
        )
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)
