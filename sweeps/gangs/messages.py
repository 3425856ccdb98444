"""What the pool and the ranks of a gang tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sweeps.trial import Checkpoint, Report, State, Trial


@dataclass(frozen=True)
class Job:
    """What is the same for every trial of a sweep, sent once to each gang.

    Attributes:
        sweep: the sweep's name, which a loop sees as its experiment.
        loop: reference of the training loop.
        backend: the process group the loop needs.
        roots: folders that the user's modules are found in.
        label, task, classes: see `sweeps.trial.Current`.
        metric, goal: the objective.
        max_t: the step at which a trial ends; None for no bound.
        rungs: the steps at which the loop waits for a verdict.
    """

    sweep: str
    loop: str
    backend: str
    roots: tuple[str, ...]
    label: str | None
    task: str | None
    classes: tuple[Any, ...] | None
    metric: str
    goal: str
    max_t: int | None
    rungs: frozenset[int]


@dataclass(frozen=True)
class Order:
    """One attempt at one trial, for all ranks of a gang.

    Attributes:
        trial: what to run.
        attempt: 1 for the first.
        folder: where checkpoints and logs of the trial go.
        data_key: the key of the prepared data; what a worker cached under another key it drops.
        shards: for each dataset name, a reference of a materialized Ray Dataset a rank, or one for all.
        check: the rows for `Current.check`, an object reference of a DataFrame; None without data.
        checkpoint: where to go on from; None from the start.
    """

    trial: Trial
    attempt: int
    folder: str
    data_key: str
    shards: dict[str, tuple[Any, ...]]
    check: Any
    checkpoint: Checkpoint | None


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
    """How the loop ended on one rank: COMPLETE, PRUNED (stopped at a rung), FAIL with its traceback.

    `broken` says that the rank can run no other trial after it; `reports` counts those of the attempt.
    """

    rank: int
    state: State
    error: str | None = None
    broken: bool = False
    reports: int = 0


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
        attempts: gangs it has been started on.
        seconds: spent on gangs so far.
    """

    reports: tuple[Report, ...] = ()
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    rung: int | None = None
    state: State | None = None
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0
