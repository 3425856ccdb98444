"""Types for the methods of Ray actors that the controller calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ray import ObjectRef


class RemoteMethod(Protocol):
    """Method of a Ray actor."""

    def remote(self, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Call the method and return a reference to its result.

        The call does not wait for the result.
        """


class PoolHandle(Protocol):
    """Handle of the pool's actor; see `sweeps.execution.pool`.

    Attributes:
        start: Start or continue a trial.
        answer: Send a decision (continue or stop) to a trial that waits at a rung.
        renew: Continue a trial that waits at a rung, with other parameters and from another
            checkpoint.
        prepare_refit: Change the settings and the rows for a trial that is trained again.
        forget: Delete the pool's state of a trial whose end the driver has recorded.
        stop: End a trial immediately. The driver still gets the trial's last reports.
        interrupt: End all trials immediately.
        usage: Return the resources that the pool uses, and what each trial is doing.
        set_all_started: Set whether all trials of the sweep have started.
        life: Wait forever. The call fails when the pool's process is lost, or when the data has
            changed.
        prefit: Fit preprocessing chains ahead of the trials.
        warm: Start workers ahead of the trials.
        configure: Pass the data actor and a description of the label column to the pool.
        step: Wait until something happens to a trial, and return it in the form of a result of
            Ray Tune.
        unneeded: Return the checkpoints in the sweep's store that are no longer needed.
        delete_unneeded: Delete checkpoints that `unneeded` has returned.
        await_stopped: Wait until the loops of all trials have ended.
        shutdown: Close all workers.
    """

    start: RemoteMethod
    answer: RemoteMethod
    renew: RemoteMethod
    prepare_refit: RemoteMethod
    forget: RemoteMethod
    stop: RemoteMethod
    interrupt: RemoteMethod
    usage: RemoteMethod
    life: RemoteMethod
    set_all_started: RemoteMethod
    prefit: RemoteMethod
    warm: RemoteMethod
    configure: RemoteMethod
    step: RemoteMethod
    unneeded: RemoteMethod
    delete_unneeded: RemoteMethod
    await_stopped: RemoteMethod
    shutdown: RemoteMethod
