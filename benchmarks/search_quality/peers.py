"""The other searchers, used through their own classes: Optuna's sampler and pruners, Ray Tune, and Syne Tune's schedulers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from benchmarks.search_quality.tasks import STEPS, Axis, Task, draw

# Syne Tune pins the versions of its packages, so it has a separate environment. `environment` creates it when it is first needed.
SYNE_TUNE = Path("/tmp/sweeps-syne-tune")


def distribution(a: Axis) -> optuna.distributions.BaseDistribution:
    if a.kind == "choice":
        return optuna.distributions.CategoricalDistribution(list(range(int(a.high) + 1)))
    if a.kind == "int":
        return optuna.distributions.IntDistribution(int(a.low), int(a.high), log=a.log)
    return optuna.distributions.FloatDistribution(a.low, a.high, log=a.log)


class Random:
    """Random configurations of full length."""

    def __init__(self, task: Task, seed: int):
        self.task, self.rng, self.begun = task, np.random.RandomState(seed + 1000), 0

    def begin(self) -> tuple[int, dict[str, Any]]:
        self.begun += 1
        return self.begun - 1, draw(self.task.axes, self.rng)

    def report(self, trial: int, step: int, value: float) -> bool:
        return True

    def end(self, trial: int) -> None:
        pass


class Optuna:
    """Optuna's TPE with its default options and one of Optuna's pruners."""

    def __init__(self, task: Task, seed: int, pruner: optuna.pruners.BasePruner):
        self.space = {name: distribution(a) for name, a in task.axes.items()}
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner)
        self.trials: dict[int, optuna.Trial] = {}
        self.last: dict[int, float] = {}

    def begin(self) -> tuple[int, dict[str, Any]]:
        trial = self.study.ask(self.space)
        self.trials[trial.number] = trial
        return trial.number, trial.params

    def report(self, trial: int, step: int, value: float) -> bool:
        self.trials[trial].report(value, step)
        self.last[trial] = value
        if step < STEPS and self.trials[trial].should_prune():
            self.study.tell(self.trials.pop(trial), state=TrialState.PRUNED)
            return False
        return True

    def end(self, trial: int) -> None:
        self.study.tell(self.trials.pop(trial), self.last[trial])


class Ray:
    """Ray Tune's ASHA with random configurations or OptunaSearch. It gets the same calls as from Tune's controller."""

    def __init__(self, task: Task, seed: int, searcher: str):
        from ray import tune
        from ray.tune.schedulers import AsyncHyperBandScheduler
        from ray.tune.search.optuna import OptunaSearch

        more = {"time_attr": "training_iteration", "metric": "value", "mode": "min"}
        self.scheduler = AsyncHyperBandScheduler(max_t=STEPS, grace_period=1, reduction_factor=3, **more)
        self.random = Random(task, seed)
        self.search: Any = None
        if searcher == "optuna":
            kinds = {
                "choice": lambda a: tune.choice(list(range(int(a.high) + 1))),
                "int": lambda a: tune.randint(int(a.low), int(a.high) + 1),
                "float": lambda a: tune.loguniform(a.low, a.high) if a.log else tune.uniform(a.low, a.high),
            }
            space = {name: kinds[a.kind](a) for name, a in task.axes.items()}
            self.search = OptunaSearch(space, metric="value", mode="min", seed=seed)
        self.trials: dict[int, Any] = {}
        self.last: dict[int, dict[str, Any]] = {}

    def begin(self) -> tuple[int, dict[str, Any]]:
        number, config = self.random.begin()
        self.trials[number] = SimpleNamespace(trial_id=str(number))
        if self.search is not None:
            config = self.search.suggest(str(number))
        self.scheduler.on_trial_add(None, self.trials[number])
        return number, config

    def report(self, trial: int, step: int, value: float) -> bool:
        result = self.last[trial] = {"training_iteration": step, "value": value}
        if step == STEPS:
            return True
        goes_on = self.scheduler.on_trial_result(None, self.trials[trial], result) == "CONTINUE"
        if self.search is not None:
            self.search.on_trial_result(str(trial), result)
            if not goes_on:
                self.search.on_trial_complete(str(trial), result)
        return goes_on

    def end(self, trial: int) -> None:
        self.scheduler.on_trial_complete(None, self.trials[trial], self.last[trial])
        if self.search is not None:
            self.search.on_trial_complete(str(trial), self.last[trial])


class SyneTune:
    """Syne Tune's PASHA or MOBSTER, in a process of its own environment. The two processes exchange lines of JSON."""

    def __init__(self, task: Task, seed: int, method: str):
        axes = {name: vars(a) for name, a in task.axes.items()}
        child = Path(__file__).with_name("syne_tune_child.py")
        command = [str(environment()), str(child), json.dumps({"method": method, "seed": seed, "axes": axes, "steps": STEPS})]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def _ask(self, **told: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        return self._ask(verb="begin")

    def report(self, trial: int, step: int, value: float) -> bool:
        return self._ask(verb="report", trial=trial, step=step, value=value)

    def end(self, trial: int) -> None:
        self._ask(verb="end", trial=trial)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def environment() -> Path:
    """Return the path of the Python in Syne Tune's environment."""
    python = SYNE_TUNE / "bin" / "python"
    if not (SYNE_TUNE / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", SYNE_TUNE], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "syne-tune[gpsearchers]==0.13.0"], check=True)
        (SYNE_TUNE / "ready").touch()
    return python
