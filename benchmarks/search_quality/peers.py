"""The other searchers, used through their own classes: Optuna's sampler and pruners, Ray Tune, and
Syne Tune's schedulers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState

from benchmarks.search_quality.axes import Axis, draw
from benchmarks.search_quality.tasks import Task

# Syne Tune pins the versions of its packages, so it has a separate environment. `environment`
# creates it when it is first needed.
SYNE_TUNE = Path("/tmp/sweeps-syne-tune")


def suggest(trial: optuna.Trial, axes: Mapping[str, Axis]) -> dict[str, Any]:
    """Return the configuration that an Optuna trial suggests.

    Inactive dimensions are not suggested.
    """
    config: dict[str, Any] = {}
    for name, a in axes.items():
        if not a.active(config):
            continue
        if a.kind in ("choice", "ordered"):
            config[name] = trial.suggest_categorical(
                name, a.options or list(range(int(a.high) + 1))
            )
        elif a.kind == "int":
            config[name] = trial.suggest_int(name, int(a.low), int(a.high), log=a.log)
        else:
            config[name] = trial.suggest_float(name, a.low, a.high, log=a.log)
    return config


class Random:
    """Random configurations of full length."""

    def __init__(self, task: Task, seed: int):
        self.task, self.rng, self.started = task, np.random.RandomState(seed + 1000), 0

    def begin(self) -> tuple[int, dict[str, Any]]:
        self.started += 1
        return self.started - 1, draw(self.task.axes, self.rng)

    def report(self, trial: int, step: int, value: float) -> bool:
        return True

    def end(self, trial: int) -> None:
        pass

    def fail(self, trial: int) -> None:
        pass


class Optuna:
    """Optuna's TPE with its default options and one of Optuna's pruners.

    Conditional dimensions are suggested as they become active.
    """

    def __init__(self, task: Task, seed: int, pruner: optuna.pruners.BasePruner):
        self.task = task
        self.study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner
        )
        self.trials: dict[int, optuna.Trial] = {}
        self.last: dict[int, float] = {}

    def begin(self) -> tuple[int, dict[str, Any]]:
        trial = self.study.ask()
        self.trials[trial.number] = trial
        return trial.number, suggest(trial, self.task.axes)

    def report(self, trial: int, step: int, value: float) -> bool:
        self.trials[trial].report(value, step)
        self.last[trial] = value
        if step < self.task.steps and self.trials[trial].should_prune():
            self.study.tell(self.trials.pop(trial), state=TrialState.PRUNED)
            return False
        return True

    def end(self, trial: int) -> None:
        self.study.tell(self.trials.pop(trial), self.last[trial])

    def fail(self, trial: int) -> None:
        self.study.tell(self.trials.pop(trial), state=TrialState.FAIL)


class Ray:
    """Ray Tune's ASHA with random configurations or OptunaSearch.

    It gets the same calls as from Tune's controller.
    """

    def __init__(self, task: Task, seed: int, searcher: str):
        from ray.tune.schedulers import AsyncHyperBandScheduler

        self.task = task
        more = {"time_attr": "training_iteration", "metric": "value", "mode": "min"}
        self.scheduler = AsyncHyperBandScheduler(
            max_t=task.steps, grace_period=1, reduction_factor=3, **more
        )
        self.random = Random(task, seed)
        self.search: Any = ray_search(task, seed) if searcher == "optuna" else None
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
        if step == self.task.steps:
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

    def fail(self, trial: int) -> None:
        self.scheduler.on_trial_error(None, self.trials[trial])
        if self.search is not None:
            self.search.on_trial_complete(str(trial), error=True)


def ray_search(task: Task, seed: int) -> Any:
    """Return Ray Tune's OptunaSearch with a function that suggests the configuration, so that the
    space may have conditions.
    """
    from ray.tune.search.optuna import OptunaSearch

    def space(trial: optuna.Trial) -> None:
        suggest(trial, task.axes)

    return OptunaSearch(space, metric="value", mode="min", seed=seed)


class RungStudies(Ray):
    """Ray Tune's ASHA with one of Optuna's TPE studies for each rung.

    A study has all trials that reached the rung, with their values there. The study of the highest
    rung with at least ten trials suggests the next configuration; until there is one, the lowest
    rung's study does, at random.
    """

    ENOUGH = 10  # as many as Optuna's TPE draws at random

    def __init__(self, task: Task, seed: int):
        super().__init__(task, seed, "random")
        rungs = [3**i for i in range(10) if 3**i < task.steps]
        self.studies = {
            r: optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed + r))
            for r in (*rungs, task.steps)
        }
        self.reached = dict.fromkeys(self.studies, 0)
        self.asked: dict[int, optuna.trial.FrozenTrial] = {}

    def begin(self) -> tuple[int, dict[str, Any]]:
        number, _ = super().begin()
        study = self.studies[
            max((r for r, n in self.reached.items() if n >= self.ENOUGH), default=1)
        ]
        trial = study.ask()
        config = suggest(trial, self.task.axes)
        self.asked[number] = study.tell(trial, state=TrialState.FAIL)  # TPE ignores failed trials.
        return number, config

    def report(self, trial: int, step: int, value: float) -> bool:
        if step in self.studies:
            asked = self.asked[trial]
            self.studies[step].add_trial(
                optuna.trial.create_trial(
                    params=asked.params, distributions=asked.distributions, value=value
                )
            )
            self.reached[step] += 1
        return super().report(trial, step, value)


class SyneTune:
    """A searcher of Syne Tune, in a process of its own environment.

    The two processes exchange lines of JSON.

    Syne Tune has no conditions. It suggests a value for each dimension, and values of inactive
    dimensions have no effect.
    """

    def __init__(self, task: Task, seed: int, method: str):
        self.axes = task.axes
        axes = {name: {**vars(a), "when": None} for name, a in task.axes.items()}
        child = Path(__file__).with_name("syne_tune_child.py")
        command = [
            str(environment()),
            str(child),
            json.dumps({"method": method, "seed": seed, "axes": axes, "steps": task.steps}),
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        reply = self._ask(verb="begin")
        if reply is None:
            return None
        config: dict[str, Any] = {}
        for name, a in self.axes.items():
            if a.active(config):
                config[name] = reply[1][name]
        return reply[0], config

    def report(self, trial: int, step: int, value: float) -> bool:
        return self._ask(verb="report", trial=trial, step=step, value=value)

    def end(self, trial: int) -> None:
        self._ask(verb="end", trial=trial)

    def fail(self, trial: int) -> None:
        self._ask(verb="fail", trial=trial)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def environment() -> Path:
    """Return the path of the Python in Syne Tune's environment."""
    python = SYNE_TUNE / "bin" / "python"
    if not (SYNE_TUNE / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", SYNE_TUNE], check=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "syne-tune[gpsearchers]==0.13.0"],
            check=True,
        )
        (SYNE_TUNE / "ready").touch()
    return python
