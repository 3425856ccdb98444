"""Gates of an elastic trial: steps at which all its ranks wait until the pool has decided whether the gang changes its size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sweeps.execution.trial_progress import TrialProgress

# Answer to ranks that stop.
STOP = 0


class Gates:
    """The gates of one trial.

    All ranks wait at a gate and get the same answer: the step of the next gate, or `STOP` if they
    must stop.

    Args:
        progress: Progress of the trial.

    Attributes:
        next_step: Step of the next gate. The ranks do not ask the pool before this step.
    """

    def __init__(self, progress: TrialProgress):
        self._progress = progress
        self.reset()

    def reset(self) -> None:
        """Prepare for another attempt. The first report of the attempt is a gate."""
        self.next_step = 1
        self._answers: dict[int, asyncio.Future[int]] = {}
        self._closed = False
        self._latest: tuple[float, int] | None = None  # Time and step of the latest use of `later`.

    def answer(self, step: int) -> asyncio.Future[int]:
        """Return the future of the answer for the ranks that wait at a step; see `Gates`."""
        if step not in self._answers:
            self._answers[step] = asyncio.get_running_loop().create_future()
            if self._closed:
                self._answers[step].set_result(STOP)
        return self._answers[step]

    def holds(self, rank: int) -> bool:
        """Return whether a rank waits at a gate for the other ranks."""
        return any(
            not answer.done() and self._progress.has_reached(rank, step)
            for step, answer in self._answers.items()
        )

    def update(self, decide: Callable[[int], int]) -> None:
        """Answer the ranks at each gate that all ranks have reached.

        Args:
            decide: Function that returns the answer for a step: the step of the next gate, or
                `STOP`. It is not called if a rank has ended, because the gang then keeps its size.
        """
        for step, answer in sorted(self._answers.items()):
            if answer.done() or not self._progress.all_have_reached(step):
                continue
            ended = any(self._progress.has_ended(rank) for rank in range(self._progress.workers))
            self.next_step = step + 1 if ended else decide(step)
            answer.set_result(self.next_step)
            self._answers = {other: kept for other, kept in self._answers.items() if other >= step}

    def later(self, step: int, seconds: float) -> int:
        """Estimate which step the trial will report `seconds` seconds from now, at its latest speed. The result is at least `step` + 1."""
        now, latest = time.monotonic(), self._latest
        self._latest = (now, step)
        if latest is None or step <= latest[1]:
            return step + 1
        steps = step - latest[1]
        each = max(1e-6, (now - latest[0]) / steps)
        return step + max(1, min(2 * steps, int(seconds / each)))

    def close(self) -> None:
        """Stop the ranks at their next gate, because another rank has died or raised an exception."""
        self._closed = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(STOP)
