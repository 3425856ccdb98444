"""Controllers without Ray, whose pool and monitor are fakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sweeps.controller.controller import STATUS_INTERVAL, SweepController
from sweeps.controller.ports import RemoteMethod
from sweeps.controller.status import SweepStatus
from sweeps.core import clock
from sweeps.core.errors import InputError
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.messages import TrialUpdate
from sweeps.execution.pool_usage import Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.space import Space
from sweeps.study.events import Event
from sweeps.study.states import TrialState
from sweeps.tracking.hub import TrackerHub
from tests.search.deaths import Deaf
from tests.simulation.simulated_pool import VirtualClock
from tests.study.studies import recorded_study
from tests.trial_updates import trial_update

BODY = "params: {eta: {uniform: [0, 1]}}"


class FakePool(Deaf):
    """Stand-in for the pool's handle that keeps the trials which were started."""

    def __init__(self) -> None:
        self.started: list[TrialState] = []
        self.start: RemoteMethod = SimpleNamespace(remote=self._start)

    def _start(self, state: TrialState, *_: Any) -> None:
        self.started.append(state)


class FakeTrackers(TrackerHub):
    """Trackers that keep the events of the sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def publish(self, event: Event) -> None:
        self.events.append(event)


class FakeMonitor:
    """Stand-in for a `PoolMonitor`.

    Args:
        error: Error of a preprocessing chain.
        restarted: True if the pool was restarted before each poll.
    """

    def __init__(self, error: InputError | None = None, restarted: bool = False) -> None:
        self.error = error
        self.restarted = restarted
        self.data_error: InputError | None = None
        self.usage: Usage | None = None
        self.all_started = False

    def prefit_error(self) -> InputError | None:
        return self.error

    def pool_was_restarted(self) -> bool:
        return self.restarted

    def update_usage(self) -> None:
        pass

    def set_all_started(self, all_started: bool) -> None:
        self.all_started = all_started

    def close(self) -> None:
        pass


def open_controller(
    space: Space,
    folder: Path,
    monitor: FakeMonitor | None = None,
    *,
    began: float | None = None,
    interrupted: bool = False,
    publish_status: Callable[[SweepStatus], None] = lambda status: None,
    **options: Any,
) -> SweepController:
    """Return the controller of a new driver for a sweep, as it is before the first trial starts.

    Args:
        space: The sweep's space.
        folder: The sweep's folder, which may hold the study of an earlier driver.
        monitor: In the place of the pool's monitor.
        began: Start of the sweep by the monotonic clock. None for now.
        interrupted: True if the user has asked to stop the sweep.
        publish_status: Function that gets each status of the sweep.
        options: More arguments of `SweepController`.
    """
    watched: Any = monitor or FakeMonitor()
    controller = SweepController(
        SearchLoop.open(folder, space),
        FakePool(),
        FakeTrackers(),
        began=clock.monotonic() if began is None else began,
        interrupted=lambda: interrupted,
        publish_status=publish_status,
        configure_pool=lambda: None,
        monitor=watched,
        **options,
    )
    controller.finish_leftover_trials()
    return controller


def start_trial(controller: SweepController) -> str:
    """Start a trial, which is due, and return its id."""
    name = controller.start_trial()
    assert name is not None
    return name


def pool_of(controller: SweepController) -> FakePool:
    """Return the pool of a controller that `open_controller` has made."""
    pool = controller.pool
    assert isinstance(pool, FakePool)
    return pool


def events_of(controller: SweepController) -> list[Event]:
    """Return the list to which a controller of `open_controller` adds its events for trackers."""
    trackers = controller.trackers
    assert isinstance(trackers, FakeTrackers)
    return trackers.events


def poll(controller: SweepController, clock: VirtualClock) -> None:
    """Let the controller poll when the next status update is due."""
    clock.now += 2 * STATUS_INTERVAL
    controller.poll()


def report_update(trial: str, step: int, loss: float, **options: Any) -> TrialUpdate:
    """Return an update with one report. The other arguments are those of `trial_update`."""
    return trial_update(trial, (Report(step, {"loss": loss}, float(step)),), **options)


def saved_checkpoint(folder: Path, trial: str, step: int) -> Checkpoint:
    """Return a checkpoint of a trial, with its folder."""
    path = folder / "trials" / trial / f"checkpoint_{step:06d}"
    path.mkdir(parents=True)
    return Checkpoint(path.name, step, step)


def recorded_trials(folder: Path) -> tuple[TrialState, ...]:
    """Return the trials in the study of a sweep."""
    return recorded_study(folder).trials


def recorded_states(folder: Path) -> list[State]:
    """Return the state of each trial in the study of a sweep."""
    return [trial.result.state for trial in recorded_trials(folder)]
