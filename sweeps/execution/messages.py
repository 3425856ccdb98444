"""Messages between the driver, the pool and the ranks of a gang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sweeps.core.best_step import Constraint, StepOrder
from sweeps.core.label_columns import Label
from sweeps.core.loop_spec import LoopSpec
from sweeps.core.trial import LOST, Checkpoint, Report, State, Trial
from sweeps.data.prepared_data import Shards
from sweeps.data.streaming.stream_settings import StreamSettings
from sweeps.study.events import RankPlace, TrialEvent


@dataclass(frozen=True)
class Job:
    """Settings that all trials of a sweep share.

    Each worker receives these settings when it starts, and with each trial.

    Attributes:
        sweep: Name of the sweep. `get_experiment_name()` returns this name, followed by the trial's
            id.
        trainers: The trainers, by label; see `Space.trainers`.
        roots: Folders that each worker adds to `sys.path`, to import the user's modules.
        metric: Metric of the main objective. Schedulers compare its values. None if there is no
            main objective.
        goal: "minimize" or "maximize", for `metric`.
        constraints: The constraints on metrics that loops report.
        goals: "minimize" or "maximize" for each objective that loops report, by the metric's name.
        asked: Metrics that loops must report: the metrics of all objectives and constraints. Costs
            are left out, because sweeps measures them itself.
        max_t: Step at which every trial ends; None for no limit.
        refit_steps: If trials are trained again, the step at which each of them ends, by the
            trial's id, in place of `max_t`.
        sweep_max_t: Step at which the scheduler of the sweep ends every trial. It differs from
            `max_t` when a trial is trained again. None for no limit, for a cross-validation, whose
            steps are folds, and for a scheduler that counts rows.
        rungs: Steps at which a loop waits for the driver's decision.
        trial_timeout: Seconds that a trial may spend on workers, over all attempts; None for no
            limit.
        required_steps: Steps that a loop must report; see `Current.required_steps`. They stay the
            same when a trial runs again without rungs.
        milestones: Steps at which the scheduler needs a checkpoint; empty if it needs none. At such
            a step, the pool asks the driver only after every rank has reported and stored its
            checkpoint.
        takes_turns: True if a trial that continues from a milestone first gives its workers to
            trials that wait for workers, as under PBT.
        keep_last: True if the result of a trial is the model of its last step. Otherwise it is the
            model with the best value of `metric`.
        retry_on: Failures after which a trial is tried again: "lost" for the loss of a worker, and
            names of exception classes.
        tracking: Tracking URI of the MLflow server on which each trial has a run; None if trials
            have no runs.
        keep_latest: Number of latest checkpoints that a running trial keeps in addition to its best
            checkpoint, at least 1.
        report_timeout: The trial fails if a rank does not report for this many seconds; None for no
            limit.
        heartbeat_timeout: The pool treats a worker as lost if it sends no heartbeat for this many
            seconds.
        folds: Number of folds of a cross-validation: the loop runs once for each fold, and each
            fold is one step of the trial. 0 without a cross-validation.
        keeps_predictions: True if trials keep the predictions of their model for valid.
        stream: Settings of Ray Data if the data is streamed (`data.ingest: stream`). None if the
            data is in memory.
        store: Address of the store for checkpoints; None if they are stored in the trials' folders.
        secrets: Environment variables with which every process of the sweep reaches S3-compatible
            storage.
        secret_names: Names of the environment variables of workers whose values are secrets.
        threads: Threads of a worker that runs alone on a machine, if they are more than the CPUs of
            its shape; else 1.
    """

    sweep: str
    trainers: Mapping[str, LoopSpec]
    roots: tuple[str, ...]
    metric: str | None
    goal: str
    max_t: int | None
    rungs: frozenset[int] | range
    trial_timeout: float | None = None
    asked: tuple[str, ...] = ()
    required_steps: range | frozenset[int] = range(0)
    milestones: range | frozenset[int] = range(0)
    takes_turns: bool = False
    keep_last: bool = False
    refit_steps: Mapping[str, int] = field(default_factory=dict)
    sweep_max_t: int | None = None
    retry_on: tuple[str, ...] = (LOST,)
    tracking: str | None = field(default=None, repr=False)  # The URI may contain a password.
    keep_latest: int = 1
    constraints: tuple[Constraint, ...] = ()
    goals: Mapping[str, str] = field(default_factory=dict)
    report_timeout: float | None = None
    heartbeat_timeout: float = 60.0
    folds: int = 0
    keeps_predictions: bool = False
    stream: StreamSettings | None = None
    store: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_names: tuple[str, ...] = ()
    threads: int = 1

    @property
    def order(self) -> StepOrder:
        """Order that decides which step of a trial is the best."""
        return StepOrder(self.metric, self.goal == "minimize", self.constraints)

    def max_t_of(self, trial: Trial) -> int | None:
        """Return the step at which a trial ends; None for no limit."""
        return self.refit_steps.get(trial.id, self.max_t)

    def trainer_of(self, trial: Trial) -> LoopSpec:
        """Return the trainer of a trial."""
        return self.trainers[trial.trainer]


@dataclass(frozen=True)
class Silence:
    """Notice about a rank whose loop runs but has not reported for a long time.

    Attributes:
        rank: The rank.
        seconds: Seconds since the latest report of the rank, or since the start of the attempt if
            the rank has not reported.
        stack: Stack of the loop's thread, in the format of a traceback; "" if the process did not
            send its stack.
    """

    rank: int
    seconds: float
    stack: str = ""

    def __str__(self) -> str:
        detail = " and does not answer"
        if self.stack:
            detail = f"; the stack of its training loop:\n{self.stack}"
        return f"rank {self.rank} has not reported for {self.seconds:.0f} s{detail}"


@dataclass(frozen=True)
class Labels:
    """Description of the label. All attributes are None until the data is read.

    If the data has no label, they stay None.

    Attributes:
        label: Name of the label column, or a tuple of the names of several columns.
        task: "binary", "multiclass" or "regression"; for several columns, "multilabel" or
            "multioutput".
        classes: Values of the label in a classification of one column; else None.
    """

    label: Label | None = None
    task: str | None = None
    classes: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Data:
    """Data that a gang reads, after the trial's preprocessing steps.

    Attributes:
        shards: Maps each dataset name to references to materialized Ray Datasets: one for each
            rank, or a single one for all ranks.
        check: Ray's reference to the DataFrame that a loop gets as `Current.check`; None if the
            space names no data.
        cut_by_ranks: True if `train` is a single dataset with all rows, from which each rank takes
            its rows.
        folds: Data of each fold of a cross-validation. () without a cross-validation.
        parts: If the scheduler counts rows, the data of each step below `max_t`, whose `train` has
            a part of the rows. Otherwise {}.
        rows: Number of rows of `train` on all ranks together; 0 if the number is unknown.
        weight: The column of `train` with the weights of the rows. None if the rows have no
            weights.
        stream: True if the datasets are lazy. Each dataset then has a single reference, and the
            ranks read `train` through a split coordinator.
    """

    shards: Shards
    check: Any
    cut_by_ranks: bool = False
    folds: tuple[Data, ...] = ()
    weight: str | None = None
    stream: bool = False
    parts: Mapping[int, Data] = field(default_factory=dict)
    rows: int = 0


@dataclass(frozen=True)
class Ranks:
    """Place of a worker in a gang: its ranks, as `ray.train.get_context()` returns them.

    The defaults describe a gang of one worker.

    Attributes:
        rank: Rank in the gang.
        world_size: Number of workers of the gang.
        local_rank: Rank among the workers on the same node.
        local_world_size: Number of workers on the same node.
        node_rank: Rank of the node among the gang's nodes.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0


@dataclass(frozen=True)
class WorkerInfo:
    """Description of a worker that has started.

    Attributes:
        node: Id of the worker's node.
        place: Address of the node, and the GPUs that Ray assigned to the worker.
        pid: Process id of the worker.
    """

    node: str
    place: RankPlace
    pid: int


class AttemptId(NamedTuple):
    """An attempt at a trial.

    Attributes:
        trial: The trial's id.
        number: Number of the attempt, starting with 1.
    """

    trial: str
    number: int


@dataclass(frozen=True)
class Assignment:
    """One attempt at a trial, as the pool assigns it to one rank of a gang.

    Attributes:
        trial: The trial.
        attempt: Number of the attempt, starting with 1.
        ranks: Place of the worker in the gang.
        folder: Folder for checkpoints and logs of the trial.
        data_key: Key of the rank's part of the prepared data. The key contains the number of ranks
            and the rank.
        cached: Keys of the data that the worker must keep cached, including `data_key`. The worker
            deletes all other cached data.
        labels: Description of the label column.
        data: The prepared data; None if the worker caches this data already.
        checkpoint: Checkpoint to continue from; None to start from scratch.
        seconds: Seconds that earlier attempts spent on workers.
        may_change_size: True if the gang may change its size in this attempt. Each rank then asks
            the pool at each report whether to continue.
        row_steps: If the scheduler counts rows, the steps at which the loop runs, each time on more
            train rows. Otherwise ().
        job: The settings of the trial, which differ from those of earlier trials if the trial is
            trained again after the search. None to keep the worker's settings.
    """

    trial: Trial
    attempt: int
    ranks: Ranks
    folder: str
    data_key: str
    cached: tuple[str, ...]
    labels: Labels
    data: Data | None
    checkpoint: Checkpoint | None
    seconds: float = 0.0
    may_change_size: bool = False
    row_steps: tuple[int, ...] = ()
    job: Job | None = None

    @property
    def id(self) -> AttemptId:
        """The attempt."""
        return AttemptId(self.trial.id, self.attempt)


@dataclass(frozen=True)
class RankUpdate:
    """Reports and checkpoints of one rank that the pool has not acknowledged yet.

    Attributes:
        rank: Rank that sends the message.
        step: Latest step that this rank has reported.
        reports: New reports of rank 0, in order; empty for other ranks.
        checkpoints: New checkpoints in which this rank has stored its part.
    """

    rank: int
    step: int
    reports: tuple[Report, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


@dataclass(frozen=True)
class Ended:
    """Result of the loop on one rank.

    Attributes:
        rank: The rank.
        state: COMPLETE, PRUNED (stopped at a rung) or FAIL.
        error: Traceback of the exception that the loop raised, if the state is FAIL; else None.
        broken: Reason why the process cannot run another trial; None if the process can run another
            trial.
        disconnected: True if the loop destroyed the gang's process group.
        reports: Number of reports in this attempt.
        refused: Key of the wrong value and description of the problem, if a value in the space file
            made the trial fail; else None.
        final: Metrics of the finished model, which the loop passed to `Current.report_final`; empty
            without such a call.
        retry: True if `limits.retry_on` names the exception that the loop raised.
        update: Reports and checkpoints that the pool has not acknowledged; None if they are
            unknown.
    """

    rank: int
    state: State
    error: str | None = None
    broken: str | None = None
    disconnected: bool = False
    reports: int = 0
    refused: tuple[str, str] | None = None
    final: dict[str, float] = field(default_factory=dict)
    retry: bool = False
    update: RankUpdate | None = None


@dataclass(frozen=True)
class TrialUpdate:
    """The news of a trial since the driver last asked the pool.

    Attributes:
        trial: The trial's id.
        events: The new events of the trial, in order.
        rung: Step at which the loop waits for the driver's decision. None if the loop does not
            wait, or if the driver already knows this.
        end: Result of the trial, with the state RUNNING if it was interrupted. None while the trial
            runs.
    """

    trial: str
    events: tuple[TrialEvent, ...] = ()
    rung: int | None = None
    end: Ended | None = None
