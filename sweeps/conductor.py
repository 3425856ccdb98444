"""The driver's decisions while a sweep runs: begin trials, hear their news, give verdicts, know when it is over.

The study is the record and the verdicts are pure; this passes between them, the pool and MLflow.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.gangs.messages import Progress
from sweeps.search import rules
from sweeps.search.study import Ledger
from sweeps.search.verdicts import Scheduler
from sweeps.space import Space
from sweeps.tracking import Tracker
from sweeps.trial import Result, State, Trial, Verdict


@dataclass
class Snapshot:
    """How a sweep stands, for the progress line.

    Attributes:
        states: trials by state.
        total: `limits.max_trials`.
        best: (trial id, value) of the best value so far; None before the first.
        seconds: since the sweep began.
        left: seconds it will still take, by the pace so far; None before there is one.
    """

    states: Counter
    total: int
    best: tuple[str, float] | None
    seconds: float
    left: float | None
    note: str = ""


@dataclass
class Conductor:
    """See the module. Called by the adapters of Tune, in the driver's main thread."""

    space: Space
    ledger: Ledger
    scheduler: Scheduler
    pool: Any
    tracker: Tracker
    folder: Path
    began: float
    interrupted: Callable[[], bool]
    on_progress: Callable[[Snapshot], None]
    shown: float = 0.0
    reason: str | None = None  # why no more trials are begun
    running: dict[int, Trial] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    best: tuple[str, float] | None = None

    def __reduce__(self):
        """Tune pickles what it is given, for a restore of its own that nothing here relies on."""
        return type(None), ()

    def begin(self) -> int | None:
        """Begin the next trial; its number.

        Raises:
            StopIteration: the sweep begins no more trials.
        """
        if self.reason is None and rules.hopeless(self.ledger.ended):
            self.reason = "the first trials have all failed"
        trial = None if self.reason else self.ledger.next()
        if trial is None:
            raise StopIteration
        folder = self.folder / "trials" / trial.id
        folder.mkdir(parents=True, exist_ok=True)
        self.pool.start.remote(trial, str(folder), 0, None, None)
        self.tracker.begin(trial, time.time())
        self.running[trial.number] = trial
        return trial.number

    def hear(self, number: int, progress: Progress) -> Verdict:
        """Record a trial's news; at a rung decide and answer."""
        if number not in self.running:
            return Verdict.STOP
        self.ledger.record(number, progress.reports, progress.checkpoint, progress.best, progress.attempts, progress.seconds)
        self.tracker.reports(number, progress.reports)
        metric = self.space.objective.metric
        for report in progress.reports:
            value = report.metrics[metric]
            if rules.beats(value, self.best[1] if self.best else None, self.ledger.minimize):
                self.best = (self.running[number].id, value)
        if progress.state is not None:
            self._finish(number, progress.state, progress.error)
            return Verdict.STOP
        if progress.rung is None:
            return Verdict.CONTINUE
        value = self.ledger.value_at(number, progress.rung)
        verdict = self.scheduler.verdict(self.ledger.at_rung(progress.rung, number), value, self.ledger.minimize)
        self.pool.answer.remote(self.running[number].id, progress.rung, verdict is Verdict.CONTINUE)
        if verdict is Verdict.STOP:
            self._finish(number, State.PRUNED, None, f"{self.space.scheduler.name} at step {progress.rung}")
        return verdict

    def tick(self) -> None:
        """Look at the clock and for Ctrl-C; called in every round of Tune's loop."""
        limit = self.space.limits.timeout
        if self.interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limit is not None and time.time() - self.began > limit:
            self.stop("limits.timeout", State.PRUNED)
        if time.monotonic() - self.shown > 0.25:
            self.shown = time.monotonic()
            self.on_progress(self.snapshot())

    def lost(self, number: int) -> None:
        """Tune gave up on the trial's runner."""
        if number in self.running:
            self._finish(
                number, State.FAIL, f"the trial's runner died more than limits.max_failures: {self.space.limits.max_failures} times"
            )

    def _finish(self, number: int, state: State, error: str | None, reason: str | None = None) -> None:
        trial = self.running.pop(number)
        if state is State.PRUNED and reason is None:
            reason = self.reason
        result = self.ledger.finish(number, state, error, reason)
        self.results[number] = result
        self.tracker.end(number, result, time.time())
        self.pool.forget.remote(trial.id)
        if rules.hopeless(self.ledger.ended) and self.reason is None:
            self.stop("the first trials have all failed", State.RUNNING)

    def stop(self, reason: str, state: State) -> None:
        """Begin no more trials and end those that run: RUNNING leaves them resumable, PRUNED counts them as stopped."""
        if self.reason is None:
            self.reason = reason
            self.pool.interrupt.remote(state)

    def snapshot(self) -> Snapshot:
        """How the sweep stands now."""
        states = Counter(s.value for s in self.ledger.ended)
        states["RUNNING"] = len(self.running)
        seconds, ended, total = time.time() - self.began, len(self.ledger.ended), self.space.limits.max_trials
        left = seconds / ended * (total - ended) if ended else None
        if left is not None and self.space.limits.timeout is not None:
            left = min(left, max(0.0, self.space.limits.timeout - seconds))
        return Snapshot(states, total, self.best, seconds, left)
