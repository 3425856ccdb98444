"""The parts of Ray actors that the controller uses."""

from __future__ import annotations

from typing import Any, Protocol


class RemoteMethod(Protocol):
    """Method of a Ray actor."""

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method and return a reference of its result, without waiting for it."""


class PoolHandle(Protocol):
    """Handle of the pool's actor; see `sweeps.execution.pool`."""

    @property
    def start(self) -> RemoteMethod:
        """Start or continue a trial."""

    @property
    def answer(self) -> RemoteMethod:
        """Answer a trial that waits at a rung: continue or stop."""

    @property
    def renew(self) -> RemoteMethod:
        """Continue a trial that waits at a rung, with other parameters and from another checkpoint."""

    @property
    def forget(self) -> RemoteMethod:
        """Release a trial whose end is recorded."""

    @property
    def cancel(self) -> RemoteMethod:
        """End a trial at once, and close its gang."""

    @property
    def interrupt(self) -> RemoteMethod:
        """End all trials at once."""

    @property
    def usage(self) -> RemoteMethod:
        """Return what the pool holds of the cluster, and what each trial is doing."""

    @property
    def life(self) -> RemoteMethod:
        """Never return; fail when the pool's process is lost."""

    @property
    def prefit(self) -> RemoteMethod:
        """Fit preprocessing chains ahead of the trials."""

    @property
    def warm(self) -> RemoteMethod:
        """Start gangs ahead of the trials."""

    @property
    def configure(self) -> RemoteMethod:
        """Pass the data actor and the labels to the pool."""

    @property
    def attach(self) -> RemoteMethod:
        """Register a runner for a trial."""

    @property
    def advance(self) -> RemoteMethod:
        """Wait for a trial's next progress."""

    @property
    def shutdown(self) -> RemoteMethod:
        """Close all gangs."""
