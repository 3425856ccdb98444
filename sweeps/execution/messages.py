"""What the pool and the ranks of a gang tell each other."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.core.trial import LOST, Checkpoint, Report, State, Trial


@dataclass(frozen=True)
class Job:
    """What is the same for every trial of a sweep, sent once to each gang.

    Attributes:
        sweep: the sweep's name, which a loop sees as its experiment.
        loop: reference of the training loop.
        backend: the process group the loop needs.
        roots: folders that the user's modules are found in.
        metric, goal: of the objective that leads, see `search.judging`; None if none does.
        goals: of each objective that loops report, "minimize" or "maximize".
        asked: every metric that loops have to report.
        max_t: the step at which a trial ends; None for no bound.
        rungs: the steps at which the loop waits for a verdict.
        trial_timeout: seconds that a trial may take on its gangs; None for no bound.
        milestones: the rungs of PBT: every rank has its checkpoint there when the driver is asked, and trials give way to each other.
        keep_last: the model that counts is the last step's, whatever the metric says.
        retry_on: what a trial is tried again for: `lost`, and names of exception classes.
        tracking: MLflow's tracking URI, where each trial has a run; None if trials have none.
        keep_latest: checkpoints that a running trial keeps beside its best, at least 1.
        reuse: "never" closes a gang after each trial.
        report_timeout: seconds between two reports of a rank, after which its trial fails; None for no bound.
        heartbeat_timeout: seconds without a heartbeat after which a worker counts as lost.
    """

    sweep: str
    loop: str
    backend: str
    roots: tuple[str, ...]
    metric: str | None
    goal: str
    max_t: int | None
    rungs: frozenset[int] | range
    trial_timeout: float | None = None
    asked: tuple[str, ...] = ()
    milestones: range | frozenset[int] = range(0)
    keep_last: bool = False
    retry_on: tuple[str, ...] = (LOST,)
    tracking: str | None = field(default=None, repr=False)  # it may hold a password
    keep_latest: int = 1
    reuse: str = "auto"
    goals: Mapping[str, str] = field(default_factory=dict)
    report_timeout: float | None = None
    heartbeat_timeout: float = 60.0


@dataclass(frozen=True)
class Silence:
    """A rank that trains and has not reported for long.

    Attributes:
        rank: of the gang.
        seconds: since its latest report, or since the trial began.
        stack: where its loop stands, as a traceback shows it; "" if the process does not answer.
    """

    rank: int
    seconds: float
    stack: str = ""

    def __str__(self) -> str:
        stands = f"; it stands here:\n{self.stack}" if self.stack else " and does not answer"
        return f"rank {self.rank} has not reported for {self.seconds:.0f} s{stands}"


@dataclass(frozen=True)
class Labels:
    """What is known of the labels once the data is read; see `sweeps.trial.Current`."""

    label: str | None = None
    task: str | None = None
    classes: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Past:
    """A trial that goes on: what is on record of it.

    Attributes:
        attempts: gangs it has been started on.
        curve: (step, value of the objective) of its reports.
        checkpoint: the newest; it goes on from there.
        best: the one that holds the best model.
        seconds: spent on gangs.
        lost: attempts that `limits.max_failures` counts; the death of the driver is not counted against it.
    """

    attempts: int = 0
    curve: tuple[tuple[int, float], ...] = ()
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    seconds: float = 0.0
    lost: int = 0


@dataclass(frozen=True)
class Data:
    """What a gang reads of a variant of the data that was passed through a chain.

    Attributes:
        shards: for each dataset name, a reference of a materialized Ray Dataset a rank, or one for all.
        check: the rows for `Current.check`, an object reference of a DataFrame; None without data.
    """

    shards: dict[str, tuple[Any, ...]]
    check: Any


@dataclass(frozen=True)
class Ranks:
    """Place of a worker in a gang, as `ray.train.get_context()` tells it. The default is a gang of one.

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
    """What a worker tells of itself when it is up.

    Attributes:
        node: Id of its node.
        gpus: Ids of the GPUs that Ray gave it.
        pid: Process id.
    """

    node: str
    gpus: tuple[str, ...]
    pid: int


@dataclass(frozen=True)
class Assignment:
    """One attempt at a trial, for one rank of a gang.

    Attributes:
        trial: What to run.
        attempt: 1 for the first.
        ranks: Place of the worker in the gang.
        folder: Folder for checkpoints and logs of the trial.
        data_key: Key of the prepared data, with the worker's part of it.
        cached: Keys of the data that the worker keeps cached, including this one.
        labels: What is known of the labels.
        data: The data of the key; None if the worker has it cached.
        checkpoint: Where to continue; None at the start.
        seconds: Seconds that earlier attempts took.
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


@dataclass(frozen=True)
class News:
    """What a rank has to tell since it last did.

    Attributes:
        rank: who tells.
        step: reports it has made.
        reports: rank 0's new reports, in order; empty from the others.
        checkpoints: those that this rank has persisted its part of.
    """

    rank: int
    step: int
    reports: tuple[Report, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


@dataclass(frozen=True)
class Ended:
    """How the loop ended on one rank.

    Attributes:
        rank: The rank.
        state: COMPLETE, PRUNED (stopped at a rung) or FAIL.
        error: The traceback of a FAIL.
        broken: Why the process can run no other trial; None if it can.
        disconnected: Whether the loop destroyed the gang's process group.
        reports: Number of reports of this attempt.
        refused: A key of the space file and what is wrong with it, if the trial failed for that.
        final: What `Current.report_final` was given.
        retry: Whether `limits.retry_on` names the exception.
        news: What the pool did not know before the end.
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
    news: News | None = None


@dataclass(frozen=True)
class Progress:
    """What a runner hears of its trial: new reports, and what is expected of it.

    Attributes:
        reports: in order, each once.
        checkpoint: the newest complete one, if there is a new one.
        best: the checkpoint that holds the best model so far.
        rung: a step whose verdict the loop waits for; None if it does not wait.
        state: set when the trial has ended; RUNNING if it was interrupted.
        error: the traceback of a FAIL.
        refused: a key of the space file and what is wrong with it, if that is why it failed.
        final: metrics of the finished model, if it has ended.
        attempts: gangs it has been started on.
        seconds: spent on gangs so far.
    """

    reports: tuple[Report, ...] = ()
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    rung: int | None = None
    state: State | None = None
    error: str | None = None
    refused: tuple[str, str] | None = None
    final: dict[str, float] = field(default_factory=dict)
    attempts: int = 1
    seconds: float = 0.0


class Stage(enum.Enum):
    """What a trial that was started is at."""

    PREPARING = "preparing data"
    WAITING = "waiting for workers"
    STARTING = "starting workers"
    TRAINING = "training"


@dataclass(frozen=True)
class Usage:
    """What the pool holds of the cluster and what its trials are at, to be looked at.

    Attributes:
        total: all resources there are.
        busy: what trials and fits hold.
        warm: what idle gangs hold, and those that are closing.
        fits: preprocessors fitted.
        stages: of each trial on its way; with the step at which it waits for a verdict, if it does.
        seconds: that each of these has spent on gangs.
        silent: what is to be said of ranks of these that have not reported for long.
    """

    total: dict[str, float]
    busy: dict[str, float] = field(default_factory=dict)
    warm: dict[str, float] = field(default_factory=dict)
    fits: int = 0
    stages: dict[str, tuple[Stage, int | None]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
