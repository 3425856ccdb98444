"""A script and a `ray.tune.Trainable`, which the trainers `command` and `trainable` run, and bare
loops that run the same.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ray.tune import Trainable

from benchmarks import digits_script
from benchmarks.digits_script import METRIC, STEPS
from benchmarks.loops import in_turn
from sweeps import trial


class Digits(Trainable):
    """The training of the script, as a class."""

    def setup(self, config: dict[str, Any]) -> None:
        self.training = digits_script.Training(config["seed"])

    def step(self) -> dict[str, Any]:
        return {METRIC: self.training.step(), "done": self.iteration + 1 >= STEPS}

    def save_checkpoint(self, folder: str) -> None:
        Path(folder, "coefficients.json").write_text(json.dumps(self.training.model.coef_.tolist()))


def paired_command(config: dict[str, Any]) -> None:
    """Run the trainer `command` and the script itself in one trial; see `in_turn`."""
    from sweeps.trainers import command

    script = [sys.executable, digits_script.__file__]
    options = {"command": [*script, "{params.seed}"], "resume": False, "grace_seconds": 10.0}
    trial.set_current(dataclasses.replace(trial.current(), options=options))

    def bare() -> dict[str, float]:
        done = subprocess.run(
            [*script, str(config["seed"])], stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    in_turn(config["times"], lambda: command.train_func(config), bare)


def paired_trainable(config: dict[str, Any]) -> None:
    """Run the trainer `trainable` and the class itself in one trial; see `in_turn`."""
    from sweeps.trainers import trainable

    trial.set_current(
        dataclasses.replace(trial.current(), options={"trainable": f"{__name__}:Digits"})
    )

    def bare() -> dict[str, float]:
        training = Digits(config=config)
        results = [training.train() for _ in range(STEPS)]
        training.stop()
        return {METRIC: results[-1][METRIC]}

    in_turn(config["times"], lambda: trainable.train_func(config), bare)
