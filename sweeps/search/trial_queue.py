"""Queue of the trials that have not started.

Order: repeats, then configurations that the study already contains, then the configurations of
`first_points`, then grid cells in round-robin. The study already contains a trial that has not
started in two cases: `sweeps enqueue` added the trial, or a crash interrupted the trial's start.

The queue is pure: it reads no clock and no file, apart from that of the portfolio. Its state
depends only on the recorded starts and ends of trials. The driver of a resumed sweep reads these
starts and ends from the study and rebuilds the same queue.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.core.trial import State
from sweeps.space import Space
from sweeps.study import repeats

from . import cells
from .configurations import configuration_of, list_configurations
from .first_points import Keys, first_points


@dataclass(frozen=True)
class QueueItem:
    """A trial to start.

    Attributes:
        cell: Key of the chosen option of each grid, by the grid's name.
        configurations_before: Number of configurations that started before this trial.
        in_cell_before: Number of configurations that started in this cell before this trial.
        repeat_of: Number of the trial to repeat, or None for a new configuration.
        fixed: The keys of the trial to repeat or of an initial point, by dimension. The sampler
            does not choose these keys. None if the sampler chooses the keys of all dimensions that
            are not grids.
        existing: Number of the trial if the study already contains it, because a crash interrupted
            the trial's start, or because the trial was enqueued; else None.
    """

    cell: Keys
    configurations_before: int
    in_cell_before: int
    repeat_of: int | None = None
    fixed: Keys | None = None
    existing: int | None = None


class TrialQueue:
    """Queue of the trials of one sweep.

    A *configuration* is one point of the search space. Repeats with other seeds may follow the
    first trial of a configuration. A configuration with a trial or a known result is *tried*. Once
    all configurations are tried, no more trials start.

    Args:
        space: The search space, with its limits, initial points and repeats.
        scheduler_stops: True if the scheduler may stop trials early. In this case, the number of
            repeats is unknown until the first trials have ended, because only complete first trials
            are repeated.
        starting_points: Keys that are fixed in the configurations after the initial points, if the
            sweep learns from earlier sweeps.

    Attributes:
        configurations_started: Number of configurations that have a first trial.
        tried: The tried configurations; see `configuration_of`.
        untried: The other configurations, if they are few; see `list_configurations`.
    """

    def __init__(self, space: Space, scheduler_stops: bool, starting_points: Sequence[Keys] = ()):
        self.configurations_started = 0
        self._space = space
        self._scheduler_stops = scheduler_stops
        self._first_points = first_points(space, starting_points)
        self.tried: set[str] = set()
        self.untried = list_configurations(space)
        self._started_in_cell = [0] * len(space.cells)
        # Number of configurations that `sweeps enqueue` added; these are counted in
        # `configurations_started`, too.
        self._enqueued = 0
        self._repeats_started: Counter[int] = Counter()  # by the number of the first trial
        # One entry for each repeat to start: the number of the configuration's first trial
        self._pending_repeats: list[int] = []
        self._first_trials_running = 0
        self._first_trials_complete = 0
        # Number of first trials that were pruned or failed; these are not repeated
        self._first_trials_incomplete = 0
        # Trials that the study already contains, by number: items of configurations, and, for
        # repeats, the number of the trial to repeat.
        self._waiting: dict[int, QueueItem] = {}
        self._waiting_repeats: dict[int, int] = {}

    # Record starts and ends

    def record_waiting(
        self, number: int, repeat_of: int | None, enqueued: Keys | None = None
    ) -> None:
        """Record a trial that the study already contains and that has not started.

        The start of such a trial was interrupted, or `sweeps enqueue` added the trial. After a
        repair of the journal, there may be several such trials. Call this method for them in the
        order of their numbers.

        Args:
            number: Number of the trial.
            repeat_of: Number of the trial to repeat, or None for a new configuration. This method
                also counts a new configuration in its cell.
            enqueued: The fixed keys of a trial that `sweeps enqueue` added, by dimension; None for
                any other trial.
        """
        if repeat_of is not None:
            self._waiting_repeats[number] = repeat_of
            return
        item = self._new_configuration() if enqueued is None else self._new_item(enqueued)
        self._enqueued += enqueued is not None
        self._waiting[number] = replace(item, existing=number)
        self._started_in_cell[self._space.cells.index(dict(item.cell))] += 1
        self.configurations_started += 1

    def record_start(
        self, keys: Keys, repeat_of: int | None, existing: int | None = None, enqueued: bool = False
    ) -> None:
        """Record that a trial has started.

        Args:
            keys: Keys of the trial, by dimension.
            repeat_of: Number of the repeated trial, or None for a new configuration.
            existing: see `QueueItem`.
            enqueued: True if `sweeps enqueue` added the trial.
        """
        if repeat_of is not None:
            if existing is not None:
                del self._waiting_repeats[existing]
            self._repeats_started[repeat_of] += 1
            if repeat_of in self._pending_repeats:
                self._pending_repeats.remove(repeat_of)
            return
        self._first_trials_running += 1
        if existing is None:
            self._enqueued += enqueued
            self.configurations_started += 1
            self._started_in_cell[self._cell_of(keys)] += 1
        else:
            del self._waiting[existing]

    def record_tried(self, values: Mapping[str, Any]) -> None:
        """Record that a configuration is tried, given the values of its active dimensions."""
        configuration = configuration_of(values)
        self.tried.add(configuration)
        (self.untried or {}).pop(configuration, None)

    def record_end(self, number: int, state: State) -> None:
        """Record that the first trial of a configuration has ended.

        If the trial is COMPLETE, its repeats are added to the queue.

        Args:
            number: Number of the trial.
            state: State of the trial at its end.
        """
        self._first_trials_running -= 1
        if state is State.COMPLETE:
            self._first_trials_complete += 1
            missing = self._space.repeats.count - 1 - self._repeats_started[number]
            self._pending_repeats += [number] * missing
        else:
            self._first_trials_incomplete += 1

    # Choose the next trial

    @property
    def waiting(self) -> int:
        """Number of trials that the study already contains and that have not started."""
        return len(self._waiting) + len(self._waiting_repeats)

    @property
    def takes_configurations(self) -> bool:
        """True if another configuration may start before `limits.max_trials` is reached."""
        return self.configurations_started < self._space.limits.max_trials

    @property
    def _limit(self) -> int:
        """Largest number of configurations: `limits.max_trials`, or less if fewer are left."""
        limit = self._space.limits.max_trials
        if self.untried is None:
            return limit
        return min(limit, self.configurations_started + len(self.untried))

    @property
    def exhausted(self) -> str | None:
        """Why the sweep ends before `limits.max_trials`; None if configurations are left."""
        if self.untried == {} and self.takes_configurations:
            return f"all {len(self.tried)} configurations of the space were tried"
        return None

    def next(self, keys_of: Callable[[int], Keys]) -> QueueItem | None:
        """Return the next trial to start, or None if the queue is empty now.

        If `may_grow` is True, repeats may still be added to the queue.

        Args:
            keys_of: Function that returns the keys of a recorded trial, given the trial's number.
        """
        # Each loop returns for the first entry, if there is one.
        for number, repeat_of in self._waiting_repeats.items():
            return replace(self._new_item(keys_of(repeat_of), repeat_of), existing=number)
        for repeat_of in self._pending_repeats:
            return self._new_item(keys_of(repeat_of), repeat_of)
        for item in self._waiting.values():
            return item if item.configurations_before < self._limit else None
        return self._new_configuration() if self.configurations_started < self._limit else None

    @property
    def is_empty(self) -> bool:
        """True if no trial can start now. If `may_grow` is True, repeats may still be added."""
        repeats_due = self._waiting_repeats or self._pending_repeats
        return not repeats_due and self.configurations_left == 0

    @property
    def remaining(self) -> int:
        """Upper bound of the number of trials still to start, apart from some repeats.

        The repeats of configurations whose first trial still runs are left out. Those repeats are
        counted only when the first trial is complete. Each new configuration is counted with all
        its repeats.
        """
        return self.configurations_left * self._space.repeats.count + len(self._pending_repeats)

    @property
    def configurations_left(self) -> int:
        """Number of configurations still to start, without their repeats."""
        limit = self._limit
        waiting = sum(item.configurations_before < limit for item in self._waiting.values())
        return max(0, limit - self.configurations_started) + waiting

    @property
    def known_total(self) -> int:
        """Expected number of trials in the whole sweep, with the repeats that are known to follow.

        See `repeats.known_total`.
        """
        return repeats.known_total(
            self._limit,
            self._first_trials_complete,
            self._first_trials_incomplete,
            self._space.repeats,
            self._scheduler_stops,
        )

    @property
    def may_grow(self) -> bool:
        """True if a running first trial may still add repeats to the queue."""
        return self._space.repeats.count > 1 and self._first_trials_running > 0

    def _new_configuration(self) -> QueueItem:
        """Return an item for the next of `first_points`, or for a suggestion of the sampler."""
        points = self._first_points
        started = self.configurations_started - self._enqueued
        return self._new_item(points[started] if started < len(points) else None)

    def _new_item(self, fixed: Keys | None, repeat_of: int | None = None) -> QueueItem:
        """Return an item in the next cell to which the fixed keys belong."""
        cell = cells.next_cell(self._space.cells, self._started_in_cell, fixed)
        return QueueItem(
            self._space.cells[cell],
            self.configurations_started,
            self._started_in_cell[cell],
            repeat_of,
            fixed,
        )

    def _cell_of(self, keys: Keys) -> int:
        """Return the index of the cell in which a trial counts, given the keys of the trial."""
        cell = cells.cell_of(keys, self._space.cells)
        if cell is None:  # The grid dimension is inside an option that this trial does not have.
            cell = cells.next_cell(self._space.cells, self._started_in_cell, keys)
        return cell
