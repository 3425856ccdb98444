"""Types for the methods of Ray actors that the controller calls."""

from __future__ import annotations

from typing import Any, Protocol


class RemoteMethod(Protocol):
    """Method of a Ray actor."""

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method and return a reference to its result. The call does not wait for the result."""


class PoolHandle(Protocol):
    """Handle of the pool's actor; see `sweeps.execution.pool`.

    Attributes:
        start: Start or continue a trial.
        answer: Tell a trial that waits at a rung to continue or to stop.
        renew: Continue a trial that waits at a rung, with other parameters and from another checkpoint.
        forget: Release a trial whose end is recorded.
        cancel: End a trial at once, and close its gang.
        interrupt: End all trials at once.
        usage: Return the resources that the pool uses, and what each trial is doing.
        set_all_started: Set whether all trials of the sweep have started.
        life: Never return; fail when the pool's process is lost.
        prefit: Fit preprocessing chains ahead of the trials.
        warm: Start workers ahead of the trials.
        configure: Pass the data actor and the labels to the pool.
        advance: Wait until a trial has new progress, and return the progress.
        step: Do the same, and return the progress as a result of Ray Tune.
        shutdown: Close all workers.
    """

    start: RemoteMethod
    answer: RemoteMethod
    renew: RemoteMethod
    forget: RemoteMethod
    cancel: RemoteMethod
    interrupt: RemoteMethod
    usage: RemoteMethod
    life: RemoteMethod
    set_all_started: RemoteMethod
    prefit: RemoteMethod
    warm: RemoteMethod
    configure: RemoteMethod
    advance: RemoteMethod
    step: RemoteMethod
    shutdown: RemoteMethod
