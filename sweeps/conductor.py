"""The driver's decisions while a sweep runs: begin trials, hear their news, give verdicts, know when it is over.

The study is the record and the verdicts are pure; this passes between them, the pool and MLflow.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from sweeps.errors import InputError
from sweeps.gangs.messages import Progress
from sweeps.search import rules
from sweeps.search.study import Ledger
from sweeps.search.verdicts import Scheduler
from sweeps.space import Space
from sweeps.tracking import Tracker
from sweeps.trial import State, Trial, Verdict

log = logging.getLogger(__name__)


@dataclass
class Snapshot:
    """How a sweep stands, for the progress line.

    Attributes:
        states: trials by state.
        total: `limits.max_trials`.
        best: (trial id, value) of the best value so far; None before the first.
        seconds: since the sweep began.
        left: seconds it will still take, by the pace since the first trial began; None before one has ended.
        reason: why it is ending early; None if it is not.
    """

    states: Counter
    total: int
    best: tuple[str, float] | None
    seconds: float
    left: float | None
    reason: str | None


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
    prefit: Any = None  # resolves when the chains known beforehand are fitted
    refused: InputError | None = None
    running: dict[str, Trial] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)  # trial and error, in the order in which they ended
    best: tuple[str, float] | None = None
    first: float | None = None  # when the first trial began

    def __reduce__(self):
        """Tune pickles what it is given, for a restore of its own that nothing here relies on."""
        return type(None), ()

    def begin(self) -> str:
        """Begin the next trial; its id.

        Raises:
            StopIteration: the sweep begins no more trials.
        """
        trial = None if self.reason else self.ledger.next()
        if trial is None:
            raise StopIteration
        folder = self.folder / "trials" / trial.id
        folder.mkdir(parents=True, exist_ok=True)
        self.pool.start.remote(trial, str(folder))
        self.first = self.first or time.time()
        self.tracker.begin(trial, time.time())
        self.running[trial.id] = trial
        return trial.id

    def hear(self, trial: str, progress: Progress) -> Verdict:
        """Record a trial's news; at a rung decide and answer."""
        if trial not in self.running:
            return Verdict.STOP
        number = self.running[trial].number
        self.ledger.record(number, progress.reports, progress.checkpoint, progress.best, progress.attempts, progress.seconds)
        self.tracker.reports(number, progress.reports)
        for report in progress.reports:
            value = report.metrics[self.space.objective.metric]
            if rules.beats(value, self.best[1] if self.best else None, self.ledger.minimize):
                self.best = (trial, value)
        if progress.state is not None:
            self._finish(trial, progress.state, progress.error)
            return Verdict.STOP
        if progress.rung is None:
            return Verdict.CONTINUE
        value = self.ledger.value_at(number, progress.rung)
        verdict = self.scheduler.verdict(self.ledger.at_rung(progress.rung, number), value, self.ledger.minimize)
        self.pool.answer.remote(trial, progress.rung, verdict is Verdict.CONTINUE)
        if verdict is Verdict.STOP:
            self._finish(trial, State.PRUNED, None, f"{self.space.scheduler.name} at step {progress.rung}")
        return verdict

    def tick(self) -> None:
        """Look at the clock, at the fits and for Ctrl-C; called in every round of Tune's loop."""
        limit = self.space.limits.timeout
        if self.interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limit is not None and time.time() - self.began > limit:
            self.stop("limits.timeout", State.PRUNED)
        self._look_at_prefit()
        if time.monotonic() - self.shown > 0.25:
            self.shown = time.monotonic()
            self.on_progress(self.snapshot())

    def _look_at_prefit(self) -> None:
        """A chain that names a column that is not there is the user's error, known before any trial has failed of it."""
        if self.prefit is None or not ray.wait([self.prefit], timeout=0)[0]:
            return
        done, self.prefit = self.prefit, None
        try:
            ray.get(done)
        except ray.exceptions.RayTaskError as e:
            if isinstance(e.cause, InputError):
                self.refused = e.cause
                self.stop("bad input", State.RUNNING)

    def lost(self, trial: str) -> None:
        """Tune gave up on the trial's runner."""
        if trial in self.running:
            limit = self.space.limits.max_failures
            self.pool.cancel.remote(trial)
            self._finish(trial, State.FAIL, f"the trial's runner died more often than limits.max_failures ({limit})")

    def _finish(self, trial: str, state: State, error: str | None, reason: str | None = None) -> None:
        begun = self.running.pop(trial)
        if state is State.PRUNED and reason is None:
            reason = self.reason
        result = self.ledger.finish(begun.number, state, error, reason)
        if result.error is not None:
            self.failures.append((trial, result.error))
            log.warning("trial %s failed:\n%s", trial, result.error)
        self.tracker.end(begun.number, result, time.time())
        self.pool.forget.remote(trial)
        if rules.hopeless(self.ledger.ended):
            self.stop(f"the first {rules.FAILING_FROM_THE_START} trials to end have all failed", State.RUNNING)

    def stop(self, reason: str, state: State) -> None:
        """Begin no more trials and end those that run: RUNNING leaves them resumable, PRUNED counts them as stopped."""
        if self.reason is None:
            self.reason = reason
            self.pool.interrupt.remote(state)

    def close(self) -> None:
        """Put on record that what still runs does not run any more."""
        for trial in list(self.running):
            self._finish(trial, State.RUNNING, None)

    def snapshot(self) -> Snapshot:
        """How the sweep stands now."""
        states = Counter(s.value for s in self.ledger.ended)
        states["RUNNING"] = len(self.running)
        seconds, ended, total = time.time() - self.began, len(self.ledger.ended), self.space.limits.max_trials
        left = (time.time() - self.first) / ended * (total - ended) if ended and self.first else None
        if left is not None and self.space.limits.timeout is not None:
            left = min(left, max(0.0, self.space.limits.timeout - seconds))
        return Snapshot(states, total, self.best, seconds, left, self.reason)
