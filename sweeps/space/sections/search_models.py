"""The sections of a space file about the search: objectives, sampler, scheduler and limits.

Each section is a frozen dataclass. `section_checks.check` validates it by its annotations.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt

from sweeps.core.trial import LOST
from sweeps.space.model.domains import Keys
from sweeps.space.parse import value_types

from .key_types import (
    ROWS,
    AtLeast0,
    AtLeast1,
    Causes,
    Concurrency,
    HeartbeatTimeout,
    NonEmptyText,
    Number,
    Points,
    Seconds,
    Size,
)


@dataclass(frozen=True)
class Objective:
    """The metric that the search optimizes.

    Attributes:
        metric: Name of a metric that the loop reports, or a cost that is measured for every trial:
            `seconds`, `cpu_seconds` or `gpu_seconds`.
        goal: `minimize` if smaller values are better, `maximize` if larger values are better.
        choose: Rule by which the exported trial is chosen at the end. `best` is the trial with the
            best value. `mean` is the trial with the best mean of a Gaussian process, which knows
            how noisy the values are. `confirmed` trains the best five trials again with other
            seeds and, if `data.valid` is random, on other divisions of the rows, and takes the
            trial with the best mean. `auto` is one of them.
    """

    metric: NonEmptyText
    goal: Literal["minimize", "maximize"]
    choose: Literal["best", "mean", "confirmed", "auto"] = "best"


@dataclass(frozen=True)
class InitialPoint:
    """A configuration to try before anything is sampled.

    Attributes:
        keys: Key of each dimension that the point sets, by the dimension's name. A key stands for a
            value; see `Dimension.value`. The other dimensions are sampled.
        values: Known results, one for each objective. None if the results are unknown; the point
            must then be run.
    """

    keys: Keys
    values: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Search:
    """The sampler of a sweep.

    Attributes:
        algorithm: The sampler. `auto` stands for a sampler that suits the space and the limits;
            `sweeps plan` shows which one.
        seed: Seed of the data splits, the sampler and the trials.
        options: Options of the sampler, as a mapping.
        initial_points: Configurations to try in this order, before anything is sampled.
        earlier: Earlier sweeps from which the sweep learns; the key `from` of the space file.
        portfolio: Known good configurations to try early, after the trainer's default
            configuration. They take at most a third of `limits.max_trials`.
    """

    algorithm: NonEmptyText = "auto"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)] = 0
    options: dict[str, Any] | None = None
    initial_points: Points = ()
    earlier: Annotated[
        tuple[NonEmptyText, ...],
        BeforeValidator(value_types.sweep_names),
        Field(
            alias="from",
            description="Earlier sweeps with the same objective, from which the sweep learns: "
            "folders, names, `latest` or addresses",
        ),
    ] = ()
    portfolio: NonEmptyText | None = None


@dataclass(frozen=True)
class SchedulerSpec:
    """The scheduler of a sweep, as the space file names it.

    Attributes:
        name: Name of a built-in scheduler, or the reference `module:attr` of a scheduler class.
        options: Options of the scheduler. The options of a built-in scheduler are complete and
            checked.
    """

    name: str = "none"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def max_t(self) -> int | None:
        """The scheduler's option `max_t`: the step at which a trial ends.

        None if the scheduler has no such limit.
        """
        value = self.options.get("max_t")
        return value if isinstance(value, int) else None

    @property
    def counts_rows(self) -> bool:
        """True if the steps of a trial are parts of the train split.

        The loop then runs again at each rung.
        """
        return self.options.get("resource") == ROWS

    @property
    def population(self) -> int | None:
        """Number of trials that train side by side and can continue from each other's checkpoints.

        None if there is no population.
        """
        return self.options.get("population")


@dataclass(frozen=True)
class Repeats:
    """The number of times that each configuration is trained, each time with a different seed.

    Attributes:
        count: Number of times that each configuration is trained. `repeats: 3` is short for
            `repeats: {count: 3}`.
        aggregate: Function that combines the values of the repeated trials into the value of the
            configuration.
    """

    count: AtLeast1 = 1
    aggregate: Literal["mean", "median", "min", "max"] = "mean"


@dataclass(frozen=True)
class Limits:
    """The budget of a sweep, and the conditions that end the sweep early.

    Attributes:
        max_trials: Number of trials of the whole sweep; repeats do not count. If only grids are
            tuned, the default is the number of grid cells (combinations of grid values). With
            `pbt`, the default is `scheduler.population`. Otherwise the key is required.
        timeout: Longest time of the whole sweep, including its start. When the time is over,
            running trials are stopped and become PRUNED.
        max_concurrent_trials: Largest number of trials that run at once. `auto` means as many as
            fit on the cluster at the same time. If `space.scaling` is tuned, `auto` counts how many
            trials with the smallest scaling fit.
        max_failures: Number of times that a trial may be retried after a failure.
        retry_on: Causes of a failure after which a trial is retried: `lost` (a worker process was
            lost), and names of exception classes that the loop raises.
        trial_timeout: Longest time that one trial may train, over all its attempts. A trial that
            takes longer fails.
        report_timeout: Longest time that a rank may train without a report. If a rank takes longer,
            its trial fails.
        heartbeat_timeout: Time after which a worker process that sends no heartbeat is treated as
            lost. For example, the process may be suspended. The trial continues on another worker.
            `max_failures` does not count this loss.
        max_gpu_hours: Largest number of GPU hours of all trials together. When these hours are used
            up, running trials are stopped and become PRUNED.
        target: Stop the sweep when a trial is COMPLETE and its value of the objective is this value
            or a better one.
        patience: Stop the sweep after this many consecutive COMPLETE and PRUNED trials without a
            new best COMPLETE trial.
        max_failures_in_a_row: Stop the sweep after this many consecutive failed trials.
    """

    max_trials: AtLeast1 = 0
    timeout: Seconds | None = None
    max_concurrent_trials: Concurrency = None
    max_failures: AtLeast0 = 2
    retry_on: Causes = (LOST,)
    trial_timeout: Seconds | None = None
    report_timeout: Seconds | None = None
    heartbeat_timeout: HeartbeatTimeout = 60.0
    max_gpu_hours: Annotated[Number, Field(gt=0)] | None = None
    target: Number | None = None
    patience: AtLeast1 | None = None
    max_failures_in_a_row: AtLeast1 | None = None


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that ended trials keep; see `sweeps.checkpoints.retention`.

    Attributes:
        per_trial: Number of checkpoints that a trial keeps: its best checkpoint and its `per_trial`
            - 1 latest checkpoints.
        top: Number of trials that keep checkpoints, starting with the best trial. By default all
            trials keep checkpoints.
        max_disk: Largest disk space of all checkpoints together, such as `500MB` or `10GB`. The
            checkpoints of the worst trials are deleted first.
        predictions: Number of trials that keep the predictions of their model for the rows of
            valid, starting with the best trial. An average of models is chosen with them.
    """

    per_trial: AtLeast1 = 2
    top: AtLeast1 | None = None
    max_disk: Size | None = None
    predictions: AtLeast0 = 20

    @property
    def all_stay(self) -> bool:
        """True if the sweep deletes no checkpoint of an ended trial."""
        return replace(self, predictions=0) == Checkpoints(predictions=0)


@dataclass(frozen=True)
class BundleKeys:
    """The model in the bundle that a sweep writes for its winner.

    Attributes:
        train_on: `train` exports the winner's own model. `all` trains the winner again at the end
            of the sweep, on train and valid. If `data.test` is a fraction, `all` includes test,
            which is scored before. After a cross-validation, `train` exports the average of the
            models of the folds. After a rolling one, the winner is always trained again.
        ensemble: Largest number of models in the bundle. With more than 1, the bundle has an
            average of models of several trials if this average is clearly better than the best
            trial. The models are chosen greedily by their predictions for valid, in so many rounds.
            Needs `data.label`, and a metric that sweeps can compute.
    """

    train_on: Literal["train", "all"] = "train"
    ensemble: AtLeast1 = 1
