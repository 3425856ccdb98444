"""What there is to show of a sweep while it runs: who runs, what has ended, the best so far. A snapshot is made of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from sweeps.controller.eta import Going, Left, ahead, time_left
from sweeps.controller.snapshot import Best, Pairs, Row, Snapshot, Use, configuration, workers
from sweeps.core.trial import Report, Result, State, Trial
from sweeps.execution.messages import Stage, Usage
from sweeps.search.study_store import StudyStore
from sweeps.study import ranking


@dataclass
class Running:
    """A trial that was begun, and what is known of it.

    Attributes:
        trial: itself.
        began: seconds since the sweep began.
        shown: its configuration in short.
        first, last: its first report that was heard, and its latest.
        best, best_step: the best value of its reports, and the report that had it.
        attempt: the gang it is on, counted.
    """

    trial: Trial
    began: float
    shown: Pairs
    first: Report | None = None
    last: Report | None = None
    best: float | None = None
    best_step: int = 0
    attempt: int = 1


class SweepProgress:
    """See the module.

    Args:
        ledger: of the sweep; what an earlier driver put on record is known.
        began: when the sweep did, seconds since the epoch.

    Attributes:
        running: the trials that run, by id, in the order in which they were begun.
        failures: trial and error, in the order in which they ended.
        best: the best so far; None before there is one.
        spans: (begin, end) of the trials that this driver has seen end, in seconds since the sweep began.
        at_once: the most that have run side by side.
        usage: what the pool said last.
    """

    def __init__(self, study_store: StudyStore, began: float):
        self._ledger, self._space, self._began = study_store, study_store.space, began
        self.running: dict[str, Running] = {}
        self.spans: list[tuple[float, float]] = []
        self.at_once = 0
        self.usage: Usage | None = None
        self.best: Best | None = None
        results = study_store.results()
        self.failures = [(f"{n:04d}", r.error) for n, r in results.items() if r.error is not None]
        self._look_for_best()
        self._note_leader()

    def begun(self, trial: Trial) -> None:
        """A trial was begun."""
        self.running[trial.id] = Running(trial, time.time() - self._began, configuration(trial))
        self.at_once = max(self.at_once, len(self.running))

    def changed(self, trial: Trial) -> None:
        """A trial goes on with other parameters."""
        self.running[trial.id].trial, self.running[trial.id].shown = trial, configuration(trial)

    def heard(self, trial: str, attempt: int, fresh: tuple[Report, ...]) -> None:
        """There is news of a trial: the gang it is on, counted, and reports that were not known."""
        running, metric, minimize = self.running[trial], self._ledger.judge.metric, self._ledger.minimize
        running.attempt = attempt
        for report in fresh:
            running.first, running.last = running.first or report, report
            value = None if metric is None else report.metrics[metric]
            if value is not None and ranking.beats(value, running.best, minimize):
                running.best, running.best_step = value, report.step
                if self._direct and ranking.beats(value, self.best.value if self.best else None, minimize):
                    self._note_best(running.trial, value, report.step)

    def ended(self, trial: str, result: Result) -> None:
        """A trial has ended, or is left to be resumed."""
        begun = self.running.pop(trial)
        if result.state is not State.RUNNING:
            self.spans.append((begun.began, time.time() - self._began))
        if result.error is not None:
            self.failures.append((trial, result.error))
        if result.state is State.FAIL and self.best is not None and self.best.trial == trial:  # it cannot win
            self._look_for_best()
        self._note_leader()

    def _look_for_best(self) -> None:
        """The best of all that is known and can still win."""
        if not self._direct:
            return
        self.best, minimize = None, self._ledger.minimize
        leading: tuple[int, Result] | None = None
        for number, result in self._ledger.results().items():
            out = result.given or result.state is State.FAIL
            if not out and ranking.beats(result.value, leading[1].value if leading else None, minimize):
                leading = number, result
        self._note(leading)
        for running in self.running.values():
            if ranking.beats(running.best, self.best.value if self.best else None, minimize):
                assert running.best is not None
                self._note_best(running.trial, running.best, running.best_step)

    @property
    def _direct(self) -> bool:
        """Whether a report alone says how good a trial is."""
        return self._ledger.judge.plain and self._space.repeats.count == 1

    def _note_best(self, trial: Trial, value: float, step: int) -> None:
        self.best = Best(trial.id, value, step, (("workers", workers(trial.shape)), *configuration(trial)))

    def _note(self, leading: tuple[int, Result] | None) -> None:
        if leading is not None and leading[1].value is not None:
            self._note_best(self._ledger.trial(leading[0]), leading[1].value, leading[1].best_step or 0)

    def _note_leader(self) -> None:
        """Where a report alone does not say how good a trial is, the best is that of the trials that have ended."""
        if not self._direct:
            self._note(self._ledger.course.best)

    def snapshot(self, reason: str | None = None, stage: str | None = None) -> Snapshot:
        """How the sweep stands now.

        Args:
            reason: why it is ending early, if it is.
            stage: what is going on other than trials.
        """
        course, objective = self._ledger.course, self._space.objective
        states = Counter(s.value for s in course.ended)
        states["RUNNING"] = len(self.running)
        now = time.time() - self._began
        failed, error = self.failures[-1] if self.failures else ("", "")
        return Snapshot(
            states=states,
            total=self._ledger.queue.total,
            best=self.best,
            seconds=now,
            left=None if reason else self._left(now),
            reason=reason,
            name=self._ledger.folder.name,
            metric=", ".join(o.metric for o in self._space.objectives),
            goal=objective.goal,
            front=len(course.front),
            failure=(failed, error.strip().splitlines()[-1]) if error.strip() else None,
            rows=tuple(self._row(running, now, reason is not None) for running in self.running.values()),
            use=self._use(),
            fits=self.usage.fits if self.usage else 0,
            stage=stage,
        )

    def _left(self, now: float) -> Left | None:
        scheduler = self._ledger.scheduler
        rungs = () if isinstance(scheduler.rungs, range) else scheduler.rungs
        stops = (*rungs, scheduler.max_t) if scheduler.max_t else ()
        going = []
        for r in self.running.values():
            known = r.first and r.last and ahead((r.first.step, r.first.time), (r.last.step, r.last.time), stops, time.time())
            going.append(Going(now - r.began, known or None))
        to_end = len(self.spans) + self._ledger.queue.total - len(self._ledger.course.ended)
        return time_left(now, to_end, self.spans, going, self.at_once, self._space.limits.timeout)

    def _row(self, r: Running, now: float, stopping: bool) -> Row:
        silent: str | None = None
        stage, rung = self.usage.stages.get(r.trial.id, (None, None)) if self.usage else (None, None)
        if stopping:
            said = "stopping"
        elif rung is not None:
            said = f"at rung {rung}"
        elif self.usage is not None and (silent := self.usage.silent.get(r.trial.id)):
            said = "silent"
        elif r.last is not None and r.attempt == 1:  # heard of since the pool was asked
            said = Stage.TRAINING.value
        else:
            said = stage.value if stage else "beginning"
        metric = self._ledger.judge.metric
        return Row(
            trial=r.trial.id,
            stage=said,
            step=r.last.step if r.last else 0,
            max_t=self._ledger.scheduler.max_t,
            value=r.last.metrics[metric] if r.last and metric is not None else None,
            best=r.best,
            shape=r.trial.shape,
            seconds=now - r.began,
            attempt=r.attempt,
            configuration=r.shown,
            silent=(silent or "") if said == "silent" else "",
        )

    def _use(self) -> tuple[Use, ...]:
        if self.usage is None:
            return ()
        u, asked = self.usage, {name for shape in self._space.shapes for name, _ in shape.per_worker}
        return tuple(Use(n, u.total[n], u.busy.get(n, 0.0), u.warm.get(n, 0.0)) for n in u.total if n in asked or n in ("CPU", "GPU"))
