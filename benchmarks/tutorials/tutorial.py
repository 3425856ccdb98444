"""The two sides of a tutorial: its space in sweeps, and its own code in Ray Tune and Ray Train.

Both sides train the same list of configurations, one trial at a time, on the same rows, in a Ray
that starts before the measurement. It has two CPUs for the workers. For the tutorial's own code, it
has a third CPU, which the tasks of Ray Data need.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.common import Side, Task, steady
from benchmarks.ours import times_of
from benchmarks.running import ROOT, local_ray

SPACES = ROOT / "search_spaces" / "tutorials"
CPUS = 2  # for the workers of a trial
Point = Mapping[str, Any]  # a configuration: the values of the dimensions, by name


@dataclass(frozen=True)
class Port:
    """The tutorial's own code, with the changes without which today's Ray refuses it.

    Attributes:
        label: Name in the report.
        driver: Function trial of Tune. Its arguments are a point, and the rows as `data`: a tuple
            of the frames of train and valid.
    """

    label: str
    driver: Callable[..., None]


@dataclass(frozen=True)
class Tutorial:
    """A tutorial of Ray, and its space in sweeps.

    Attributes:
        space: Name of the space file in search_spaces/tutorials/, without its suffix. The names of
            the sides begin with it.
        title: Name in the report.
        metric: The metric that both sides report.
        minimize: True if a lower value of the metric is better.
        points: The configurations, in the order in which they are trained.
        ports: The tutorial's own code. The first port is compared with the sweep.
        overrides: Overrides of the space file, such as `space.preprocessor=StandardScaler`.
    """

    space: str
    title: str
    metric: str
    minimize: bool
    points: Sequence[Point]
    ports: Sequence[Port]
    overrides: tuple[str, ...] = ()

    def sides(self) -> tuple[Side, ...]:
        """Return the sides: the sweep, and each port."""
        mine = Side(f"{self.space}-ours", f"{self.title}: sweeps", self.sweep, len(self.points))
        others = [
            Side(
                f"{self.space}-ray-{i}",
                f"{self.title}: {port.label}",
                functools.partial(self.tune, port=port),
                len(self.points),
                peers.TUNED_TRAIN,  # otherwise each report waits for up to two seconds
            )
            for i, port in enumerate(self.ports)
        ]
        return (mine, *others)

    def sweep(self, task: Task) -> dict[str, Any]:
        """Run the space."""
        import sweeps

        with local_ray(CPUS):
            began = time.time()
            result = sweeps.run(
                self.file, dir=task.folder / "runs", overrides=self.overrides_for(task.trials)
            )
            whole = time.time() - began
        _, ends = times_of(Path(result.dir), self.space)
        return self.measures(task, whole, ends, sweeps.open(result.dir).trials["value"])

    @property
    def file(self) -> Path:
        """The space file."""
        return SPACES / f"{self.space}.yaml"

    def overrides_for(self, trials: int) -> tuple[str, ...]:
        """Return the overrides with which the space file trains the first `trials` configurations,
        one at a time.
        """
        points = json.dumps([dict(point) for point in self.points[:trials]])
        limits = (f"limits.max_trials={trials}", "limits.max_concurrent_trials=1")
        return (*self.overrides, *limits, f"search.initial_points={points}")

    def tune(self, task: Task, port: Port) -> dict[str, Any]:
        """Run the tutorial's own code in Tune."""
        metric, best_of = self.metric, min if self.minimize else max
        with local_ray(CPUS + 1):
            from ray import tune

            ends: list[float] = []
            reported: dict[str, list[float]] = {}

            class Records(tune.Callback):
                def on_trial_result(
                    self,
                    iteration: int,
                    trials: Any,
                    trial: Any,
                    result: dict[str, Any],
                    **info: Any,
                ) -> None:
                    if metric in result:
                        reported.setdefault(trial.trial_id, []).append(result[metric])

                def on_trial_complete(
                    self, iteration: int, trials: Any, trial: Any, **info: Any
                ) -> None:
                    ends.append(time.time())

            began = time.time()
            # The driver needs no CPU. Ray Data's tasks run in the trial's placement group, so the
            # group has one further CPU and memory for them. Ray refuses a bundle without resources.
            resources = tune.PlacementGroupFactory(
                [{"CPU": 0, "memory": 16 * 2**20}, {"CPU": 1, "memory": 2**30}]
            )
            trainable = tune.with_resources(
                tune.with_parameters(port.driver, data=self.rows()), resources
            )
            results = tune.Tuner(
                trainable,
                param_space={
                    "point": tune.grid_search([dict(point) for point in self.points[: task.trials]])
                },
                tune_config=tune.TuneConfig(max_concurrent_trials=1),
                run_config=tune.RunConfig(
                    name="tutorial", storage_path=str(task.folder), verbose=0, callbacks=[Records()]
                ),
            ).fit()
            whole = time.time() - began
        if results.num_errors:
            raise RuntimeError(f"{results.num_errors} trials failed: {results.errors[0]}")
        # The value of a trial in sweeps is that of its best step, so it is here.
        return self.measures(task, whole, ends, [best_of(values) for values in reported.values()])

    def rows(self) -> tuple[Any, Any]:
        """Return the rows of train and valid that the sweep uses, as frames with encoded labels."""
        import sweeps
        from sweeps.data.load_data import load_splits

        space = sweeps.load(self.file, self.overrides)
        splits = load_splits(space.data, space.search.seed)
        return splits.train.to_pandas(), splits.valid.to_pandas()

    def measures(
        self, task: Task, whole: float, ends: Sequence[float], values: Sequence[float]
    ) -> dict[str, Any]:
        """Return the measures of a run.

        Raises:
            RuntimeError: A trial is missing.
        """
        array = np.asarray(values, dtype=float)
        if len(ends) != task.trials or len(array) != task.trials:
            raise RuntimeError(
                f"{len(ends)} trials ended and {len(array)} have a value, instead of {task.trials}"
            )
        trial = steady(ends) if len(ends) > 1 else None
        best = array.min() if self.minimize else array.max()
        return {"whole": whole, "trial": trial, "best": float(best), "mean": float(array.mean())}


def draw(
    count: int, seed: int = 0, **domains: Callable[[np.random.Generator], Any]
) -> list[dict[str, Any]]:
    """Draw configurations.

    Args:
        count: Number of configurations.
        seed: Seed of the random numbers.
        domains: For each parameter, a function that draws its value.
    """
    rng = np.random.default_rng(seed)
    return [
        {f"params.{name}": domain(rng) for name, domain in domains.items()} for _ in range(count)
    ]


def params_of(point: Point) -> dict[str, Any]:
    """Return the values of a configuration whose names begin with `params.`."""
    return {
        name.removeprefix("params."): value
        for name, value in point.items()
        if name.startswith("params.")
    }


@contextlib.contextmanager
def train_run() -> Any:
    """Yield Ray Train's run configuration for a trial of Tune.

    The trial's driver calls `fit` inside the `with` block.
    """
    import ray.train
    from ray import tune
    from ray.tune.integration.ray_train import TuneReportCallback

    trial = tune.get_context()
    callbacks: list[Any] = [TuneReportCallback()]
    yield ray.train.RunConfig(
        name=f"train-{trial.get_trial_id()}",
        storage_path=trial.get_storage().storage_fs_path,
        callbacks=callbacks,
    )
    peers.let_the_last_report_through()


def fit_on_two_workers(
    loop: Callable[[dict[str, Any]], None], config: dict[str, Any], train: Any, valid: Any
) -> None:
    """Train with Ray's TorchTrainer in a trial of Tune.

    Args:
        loop: The loop of each worker.
        config: Argument of the loop.
        train: A frame, of which each worker reads a half.
        valid: A frame, of which every worker reads all rows.
    """
    import ray.data
    import ray.train
    from ray.train.torch import TorchTrainer

    with train_run() as run_config:
        TorchTrainer(
            loop,
            train_loop_config=config,
            scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=run_config,
            datasets={"train": ray.data.from_pandas(train), "valid": ray.data.from_pandas(valid)},
            dataset_config=ray.train.DataConfig(datasets_to_split=["train"]),
        ).fit()
