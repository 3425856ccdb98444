"""The trainer `keras`: more tasks and kinds of models, and everything again on TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from sweeps.testing.pytest_trainers import TrainerTests
from tests.frameworks.test_keras_trainer import FRAMEWORK, keras_options

pytestmark = [pytest.mark.frameworks_all, pytest.mark.timeout(120)]


class TestMulticlass(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("compiled")
    params: ClassVar = {"epochs": 4, "units": 8, "learning_rate": 0.02}
    task = "multiclass"


class TestRegression(TestMulticlass):
    task = "regression"


class TestNotCompiled(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("not_compiled")
    params: ClassVar = {"epochs": 3, "units": 8, "optimizer": "rmsprop", "learning_rate": 0.02}


class TestOwnClass(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("own")
    params: ClassVar = {"epochs": 3, "units": 8}


class TestSchedule(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("two_softmax_outputs")
    params: ClassVar = {"epochs": 3}


class TestStepsPerExecution(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("compiled")
    params: ClassVar = {"epochs": 3, "steps_per_execution": 3 if FRAMEWORK == "tensorflow" else 1}


@pytest.mark.skipif(
    FRAMEWORK == "tensorflow", reason="this test starts the process in which the others run"
)
@pytest.mark.timeout(620)
def test_tensorflow():
    pytest.importorskip("tensorflow")
    files = [
        str(Path(__file__).with_name(name))
        for name in ("test_keras_trainer.py", "test_keras_grid.py")
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-m",
        "frameworks or frameworks_all",
        *files,
    ]
    done = subprocess.run(
        command,
        env=os.environ | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
