"""What is begun next, and what there is still to come: repeats that are due, initial points, then cells in turn. Pure.

It is told of all that is begun and all that ends, by this driver and by those before it, and so is a function of the record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sweeps.core.trial import Result, State
from sweeps.search import cells
from sweeps.space import Space
from sweeps.study import repeats


@dataclass(frozen=True)
class QueueItem:
    """What the next trial is to be.

    Attributes:
        cell: the values of the grid's dimensions.
        number: configurations begun before it.
        index: of these the ones in its cell.
        origin: the number of the trial whose configuration it repeats; None for a configuration's first.
        fixed: the keys that are not sampled: of the trial that it repeats, or of an initial point; None where all are.
        promised: the trial is on record already; see `TrialQueue.promise`.
    """

    cell: Mapping[str, Any]
    number: int
    index: int
    origin: int | None = None
    fixed: Mapping[str, Any] | None = None
    promised: bool = False


class TrialQueue:
    """See the module.

    Args:
        space: what is searched.
        stops: whether a scheduler may stop trials, so that nobody knows how many configurations are repeated.

    Attributes:
        begun: configurations in all.
        configurations: (number, result) of the trials that have ended, by their configuration's first, the first first.
    """

    def __init__(self, space: Space, stops: bool):
        self._space, self._stops = space, stops
        self._points = [point.keys for point in space.search.initial_points if point.values is None]
        self._counts = [0] * len(space.cells)  # trials begun in each cell
        self._repeated: Counter[int] = Counter()  # repeats begun, by the first trial
        self._due: list[int] = []  # first trials whose repeats are to be begun, one for each
        self._going = 0  # first trials of configurations that are begun and have not ended
        self._firsts: Counter[bool] = Counter()  # those that have ended: whether by coming to their end
        self._promised: deque[QueueItem | int] = deque()  # a configuration's first, whose place is kept; the origin of a repeat
        self.begun = 0
        self.configurations: dict[int, list[tuple[int, Result]]] = {}

    def promise(self, origin: int | None) -> None:
        """A trial is on record that was not begun, a repeat of this origin or a configuration's first: the next one is that.

        A driver died while it began the trial, or what it began with was lost and repaired. Of those there may be several, in the order of
        their numbers. A configuration's first has its place in its cell, which no later one gets.
        """
        if origin is not None:
            self._promised.append(origin)
            return
        turn = self._first()
        self._promised.append(replace(turn, promised=True))
        self._counts[self._space.cells.index(dict(turn.cell))] += 1
        self.begun += 1

    def _first(self) -> QueueItem:
        """The turn of the next configuration's first trial."""
        fixed = self._points[self.begun] if self.begun < len(self._points) else None
        index = cells.next_cell(self._space.cells, self._counts, fixed)
        return QueueItem(self._space.cells[index], self.begun, self._counts[index], None, fixed)

    def next(self, keys_of: Callable[[int], Mapping[str, Any]]) -> QueueItem | None:
        """The next trial; None when `limits.max_trials` configurations are begun, see also `more_may_come`.

        Args:
            keys_of: gives the keys of a trial on record, by number.
        """
        promised = self._promised[0] if self._promised else None
        if isinstance(promised, QueueItem):
            return promised if promised.number < self._space.limits.max_trials else None
        origin = promised if promised is not None else self._due[0] if self._due else None
        if origin is None:
            return self._first() if self.begun < self._space.limits.max_trials else None
        fixed = keys_of(origin)
        index = cells.next_cell(self._space.cells, self._counts, fixed)
        return QueueItem(self._space.cells[index], self.begun, self._counts[index], origin, fixed, promised is not None)

    def count(self, keys: Mapping[str, Any], origin: int | None, promised: bool = False) -> None:
        """A trial was begun; whether it was promised."""
        if promised:
            self._promised.popleft()
        if origin is not None:
            self._repeated[origin] += 1
            if origin in self._due:
                self._due.remove(origin)
            return
        self._going += 1
        if promised:
            return
        self.begun += 1
        index = cells.cell_of(keys, self._space.cells)
        if index is None:  # a grid inside an option that it did not take
            index = cells.next_cell(self._space.cells, self._counts, keys)
        self._counts[index] += 1

    def ended(self, number: int, origin: int | None, result: Result) -> list[Result]:
        """A trial has ended; how the trials of its configuration have, the first first."""
        first = number if origin is None else origin
        own = self.configurations.setdefault(first, [])
        own.append((number, result))
        own.sort(key=lambda t: t[0])
        if origin is None:
            self._going -= 1
            self._firsts[result.state is State.COMPLETE] += 1
        if origin is None and result.state is State.COMPLETE:
            self._due += [first] * (self._space.repeats.count - 1 - self._repeated[first])
        return [r for _, r in own]

    @property
    def left(self) -> int:
        """Trials that are not begun, repeats too; at most so many."""
        limit, kept = self._space.limits.max_trials, [turn for turn in self._promised if isinstance(turn, QueueItem)]
        firsts = max(0, limit - self.begun) + sum(turn.number < limit for turn in kept)
        return firsts * self._space.repeats.count + len(self._due)

    @property
    def total(self) -> int:
        """Trials that there will be, see `repeats.total`."""
        whole, broken = self._firsts[True], self._firsts[False]
        return repeats.total(self._space.limits.max_trials, whole, broken, self._space.repeats, self._stops)

    @property
    def more_may_come(self) -> bool:
        """Whether there is nothing to begin now, but trials that run may leave repeats to begin."""
        return self._space.repeats.count > 1 and self._going > 0
