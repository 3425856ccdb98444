"""Drive a pool in the same way as the driver, but without Tune."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pandas as pd
import ray
from ray.data import Dataset

from sweeps.core.resources import Shape
from sweeps.core.trial import Report, Result, State, Trial
from sweeps.data.prepared_data import PreparedData, Shards
from sweeps.execution.messages import Job, Labels, TrialUpdate
from sweeps.execution.pool import Pool
from sweeps.space import TrainerSpec
from sweeps.space.model.step_names import Step
from sweeps.study.events import TrialEnded
from sweeps.study.states import TrialState
from sweeps.study.transitions import apply, apply_all
from tests.study.trial_states import new_trial


class TinyKeeper:
    """Data actor with two features, a linear label, and shards for one to three ranks."""

    def __init__(self) -> None:
        import numpy as np

        x = np.random.default_rng(0).normal(size=(256, 2))
        self.frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": x @ [2.0, -3.0]})
        ray.data.DataContext.get_current().enable_progress_bars = False

    def pid(self) -> int:
        return os.getpid()

    def runs_tasks(self) -> bool:
        return True  # `from_pandas` does

    def prepare(
        self, steps: tuple[Step, ...], data: Any = None, reload: Any = None, refit: Any = None
    ) -> PreparedData:
        valid = self._put(self.frame)
        shards: dict[int, Shards] = {}
        for workers in (1, 2, 3):
            parts = [self.frame.iloc[r::workers].reset_index(drop=True) for r in range(workers)]
            shards[workers] = {
                "train": tuple(map(self._put, parts)),
                "valid": (valid,),
            }
        return PreparedData(repr(steps), shards, check=None, size=10_000)

    def _put(self, rows: pd.DataFrame) -> ray.ObjectRef[Dataset]:
        dataset: Dataset = ray.data.from_pandas(rows)
        return ray.put(dataset)


_RemoteKeeper = ray.remote(num_cpus=0, max_restarts=-1)(TinyKeeper)


def job(
    loop: str,
    backend: str,
    metric: str = "loss",
    max_t: int | None = None,
    rungs: tuple[int, ...] = (),
    trial_timeout: float | None = None,
) -> Job:
    """Return the settings that all trials of a sweep with this loop share."""
    trainers = {"": TrainerSpec(None, loop, backend, None)}
    return Job("test", trainers, (), metric, "minimize", max_t, frozenset(rungs), trial_timeout)


def trial(
    number: int,
    params: dict[str, Any],
    workers: int,
    backend: str,
    seed: int | None = None,
    steps: tuple[Step, ...] = (),
) -> Trial:
    """Return a trial with a number of workers of one CPU each."""
    shape = Shape(workers, (("CPU", 1.0),), backend)
    return Trial(number, params, steps, shape, number if seed is None else seed, {})


class Driving:
    """Pool with its own data actor.

    `run` runs one trial until its end, and may stop the trial at a step.
    """

    def __init__(
        self, job: Job, folder: Any, cluster: dict[str, float] | None = None, max_failures: int = 2
    ) -> None:
        self.folder = folder
        self.pool = Pool.remote(job, cluster or {"CPU": 2.0}, max_failures)
        self.data_actor: Any = _RemoteKeeper.remote()
        ray.get(self.pool.configure.remote(self.data_actor, Labels()))

    def __enter__(self) -> Driving:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, trial: Trial) -> None:
        folder = self.folder / trial.id
        folder.mkdir(exist_ok=True)
        ray.get(self.pool.start.remote(new_trial(trial), str(folder)))

    def update(self, trial: Trial, timeout: float = 60) -> TrialUpdate:
        """Wait until something happens to a trial."""
        answer: dict[str, TrialUpdate] = ray.get(self.pool.step.remote(trial.id), timeout=timeout)
        return answer["update"]

    def checkpoint_step(self, trial: Trial) -> int:
        """Return the step of the trial's newest complete checkpoint, as recorded in the pool; 0
        without a checkpoint.
        """

        def step(pool: Any) -> int:
            checkpoint = pool.trials[trial.id].state.checkpoint
            return checkpoint.step if checkpoint else 0

        reached: int = ray.get(self.pool.__ray_call__.remote(step))
        return reached

    def finish(
        self,
        trial: Trial,
        stop_at: int | None = None,
        timeout: float = 120,
        asked: list[int] | None = None,
    ) -> tuple[TrialState, list[Report]]:
        """Answer at rungs until the trial ends. Return what is known of it, and its reports."""
        state = new_trial(trial)
        deadline = time.monotonic() + timeout
        while True:
            update = self.update(trial, max(1, deadline - time.monotonic()))
            state = apply_all(state, update.events)
            if update.end is not None:
                ray.get(self.pool.forget.remote(trial.id))
                end = Result(update.end.state, error=update.end.error, final=update.end.final)
                ended = apply(state, TrialEnded(time.time(), trial.number, end))
                return ended, list(ended.own_reports)
            if (rung := update.rung) is not None:
                if asked is not None:
                    asked.append(rung)
                ray.get(self.pool.answer.remote(trial.id, rung, rung != stop_at))

    def run(self, trial: Trial, stop_at: int | None = None) -> tuple[State | None, list[float]]:
        state, reports = self.reports_of(trial, stop_at)
        metric = "loss" if "loss" in reports[0].metrics else "valid-rmse"
        return state, [r.metrics[metric] for r in reports]

    def reports_of(
        self, trial: Trial, stop_at: int | None = None
    ) -> tuple[State | None, list[Report]]:
        """Run one trial that must not fail, and return its final state and its reports."""
        self.start(trial)
        ended, reports = self.finish(trial, stop_at)
        assert ended.error is None, ended.error
        return ended.state, reports

    def close(self) -> None:
        ray.get(self.pool.shutdown.remote(), timeout=60)
        ray.kill(self.pool)
        ray.kill(self.data_actor)


class Gang:
    """Pool with one gang of `workers` workers, which runs loops of `tests.execution.loops`, one
    trial after another.
    """

    def __init__(
        self,
        workers: int,
        backend: str,
        folder: Path,
        rungs: tuple[int, ...] = (),
        metric: str = "loss",
    ) -> None:
        self.workers, self.backend, self.folder, self.trials = workers, backend, folder, 0
        self.driving = Driving(
            job("tests.execution.loops:named", backend, metric, rungs=rungs), folder
        )

    def trial(self, loop: str, seed: int | None = None, **params: Any) -> Trial:
        """Return a new trial that runs a loop, given by name."""
        self.trials += 1
        return trial(self.trials - 1, {"loop": loop, **params}, self.workers, self.backend, seed)

    def run(
        self, loop: str, stop_at: int | None = None, **params: Any
    ) -> tuple[State | None, list[Report]]:
        """Run one trial of a loop, and return its final state and its reports."""
        return self.driving.reports_of(self.trial(loop, **params), stop_at)

    def close(self) -> None:
        self.driving.close()
