"""The driver's decisions while a sweep runs: begin trials, hear their news, give verdicts, know when it is over.

The study is the record and the verdicts are pure; this passes between them, the pool and MLflow.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from sweeps.errors import InputError, Problem
from sweeps.gangs.messages import Past, Progress, Stage, Usage
from sweeps.pace import Going, Left, ahead, time_left
from sweeps.search import budgets, rules
from sweeps.search.cleaner import Cleaner
from sweeps.search.retention import Rule
from sweeps.search.study import Ledger
from sweeps.search.verdicts import Pbt, Scheduler
from sweeps.snapshot import Best, Pairs, Row, Snapshot, Use, configuration, workers
from sweeps.space import Space
from sweeps.tracking import Tracker
from sweeps.trial import Report, Result, State, Trial, Verdict

log = logging.getLogger(__name__)


# How often a snapshot is shown and the pool asked for what it holds, in seconds.
SHOW_EVERY = 0.25


@dataclass
class _Running:
    """A trial that was begun, and what is known of it.

    Attributes:
        began: seconds since the sweep began.
        shown: its configuration in short.
        first, last: its first report that was heard, and its latest.
        best: the best value of its reports.
        attempt: the gang it is on, counted.
    """

    trial: Trial
    began: float
    shown: Pairs
    first: Report | None = None
    last: Report | None = None
    best: float | None = None
    attempt: int = 1


def _past(row: Any, lost: int = 0) -> Past:
    """What a pool is told of a trial that goes on, from the ledger's row of it."""
    return Past(max(1, row.attempts), tuple(row.curve.items()), row.checkpoint, row.best, row.seconds, lost)


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
    introduce: Callable[[], None]  # tells a pool that was started again of the data
    shown: float = 0.0
    reason: str | None = None  # why no more trials are begun
    prefit: Any = None  # resolves when the chains known beforehand are fitted
    refused: InputError | None = None
    running: dict[str, _Running] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)  # trial and error, in the order in which they ended
    best: Best | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)  # (begin, end) of trials that ended, in seconds since the sweep began
    at_once: int = 0  # the most that have run side by side
    usage: Usage | None = None  # what the pool said last
    asked: Any = None  # resolves to what it says next
    life: Any = None  # fails when the pool's process is lost
    cleaner: Cleaner | None = None  # of the checkpoints, where they are bounded
    forgiven: int = 0  # trials that had ended, in vain, when a hopeless sweep was resumed
    population: deque[str] | None = None  # members of PBT that were begun and that Tune does not know yet

    def __post_init__(self) -> None:
        """Know what an earlier driver has put on record."""
        self.ledger.clock = lambda: time.time() - self.began
        results = self.ledger.results()
        self.failures += [(f"{n:04d}", r.error) for n, r in results.items() if r.error is not None]
        if rules.hopeless(self.ledger.course.ended):
            self.forgiven = len(self.ledger.course.ended)
        self.ledger.course.pardon(self.space.limits)
        leading: tuple[int, Result] | None = None
        for number, result in results.items() if self.direct else ():
            if not result.given and rules.beats(result.value, leading[1].value if leading else None, self.ledger.minimize):
                leading = number, result
        if leading is not None and leading[1].value is not None:
            self._note_best(self.ledger.trial(leading[0]), leading[1].value, leading[1].best_step or 0)
        self._note_leader()
        if not self.space.checkpoints.all_stay:
            kept, configurations = self.space.checkpoints, self.ledger.configurations()
            saved, origins = self.ledger.saved(), {n: first for first, own in configurations.trials.items() for n, _ in own if n != first}
            known = [(n, origins.get(n), r, saved[n][1]) for n, r in results.items() if r.state is not State.RUNNING]
            rule = Rule(kept.per_trial, kept.top, kept.max_disk)
            self.cleaner = Cleaner(self.folder, rule, self.space.repeats, self.ledger.judge.goals, known)

    def __reduce__(self):
        """Tune pickles what it is given, for a restore of its own that nothing here relies on."""
        return type(None), ()

    def begin(self) -> str | None:
        """Begin the next trial; its id, or None if there is none now but may be later.

        Raises:
            StopIteration: the sweep begins no more trials.
        """
        if isinstance(self.scheduler, Pbt):
            self.population = self._population() if self.population is None else self.population
            if not self.population:
                raise StopIteration
            return self.population.popleft()
        if not self.reason and self.ledger.interrupted:
            row = self.ledger.standing(self.ledger.interrupted.popleft())
            self._begin(row.trial, _past(row))
            return row.trial.id
        trial = None if self.reason else self.ledger.next()
        if trial is None and not self.reason and self.ledger.more_may_come:
            return None
        if trial is None:
            raise StopIteration
        self._begin(trial)
        return trial.id

    def _population(self) -> deque[str]:
        """Begin all members at once, as they take turns; those that go on first, and of these first who is furthest behind."""
        begun: deque[str] = deque()
        waiting = [self.ledger.standing(number) for number in sorted(self.ledger.interrupted)] if not self.reason else []
        for row in waiting:
            kept = row.checkpoint.step if row.checkpoint else 0
            if kept == row.steps and kept in self.scheduler.rungs and kept > row.decided:  # the last driver could not decide it
                self._perturb(row, kept)
        for row in sorted(waiting, key=lambda r: (r.decided, r.trial.number)):
            self.ledger.interrupted.remove(row.trial.number)
            self._begin(row.trial, _past(row))
            begun.append(row.trial.id)
        while not self.reason and (trial := self.ledger.next()) is not None:
            self._begin(trial)
            begun.append(trial.id)
        return begun

    def _begin(self, trial: Trial, past: Past | None = None) -> None:
        self._note(trial)
        folder = self.folder / "trials" / trial.id
        folder.mkdir(parents=True, exist_ok=True)
        self.pool.start.remote(trial, str(folder), past)
        self.ledger.sync()  # while the trial is on its way

    def _note(self, trial: Trial) -> None:
        self.tracker.begin(self.ledger.as_begun(trial.number), time.time())
        self.running[trial.id] = _Running(trial, time.time() - self.began, configuration(trial))
        self.at_once = max(self.at_once, len(self.running))

    def settle(self) -> None:
        """End the trials that an earlier driver left behind and that lack nothing but their end; before Tune is asked for others."""
        for number in list(self.ledger.interrupted):
            row = self.ledger.standing(number)
            if self.scheduler.max_t is not None and row.steps >= self.scheduler.max_t:
                state, reason = State.COMPLETE, None
            elif row.steps in self.scheduler.rungs and self._verdict(number, row.steps) is Verdict.STOP:
                state, reason = State.PRUNED, f"{self.space.scheduler.name} at step {row.steps}"
            else:
                continue
            self.ledger.interrupted.remove(number)
            self._note(row.trial)
            self._finish(row.trial.id, state, None, reason)
        self._look_at_budgets()  # it may be that the last driver died of having spent them

    def hear(self, trial: str, progress: Progress) -> Verdict:
        """Record a trial's news; at a rung decide and answer."""
        if trial not in self.running:
            return Verdict.STOP
        running = self.running[trial]
        number, running.attempt = running.trial.number, progress.attempts
        fresh = self.ledger.record(number, progress.reports, progress.checkpoint, progress.best, progress.attempts, progress.seconds)
        self.tracker.reports(number, fresh)
        for report in fresh:
            running.first, running.last = running.first or report, report
            value = None if self.ledger.judge.metric is None else report.metrics[self.ledger.judge.metric]
            if value is not None and rules.beats(value, running.best, self.ledger.minimize):
                running.best = value
                if self.direct and rules.beats(value, self.best.value if self.best else None, self.ledger.minimize):
                    self._note_best(running.trial, value, report.step)
        if progress.state is not None:
            if progress.refused is not None and not self.ledger.course.ended:  # every other trial would fail of it as well
                self.refuse(InputError(Problem(*progress.refused)))
            self._finish(trial, progress.state, progress.error)
            return Verdict.STOP
        if progress.rung is None:
            return Verdict.CONTINUE
        if isinstance(self.scheduler, Pbt):
            return self._milestone(trial, progress.rung)
        verdict = self._verdict(number, progress.rung)
        self.pool.answer.remote(trial, progress.rung, verdict is Verdict.CONTINUE)
        if verdict is Verdict.STOP:
            self._finish(trial, State.PRUNED, None, f"{self.space.scheduler.name} at step {progress.rung}")
        return verdict

    def _milestone(self, trial: str, step: int) -> Verdict:
        """A member of PBT's population has come to a milestone, and goes on as it is or with what it takes over."""
        row = self.ledger.standing(self.running[trial].trial.number)
        if step <= row.decided:  # it was lost beyond it
            self.pool.answer.remote(trial, step, True)
            return Verdict.CONTINUE
        if row.checkpoint is None or row.checkpoint.step != step:
            error = f"pbt needs a checkpoint with the report of every milestone; trial {trial} reported none at step {step}"
            if not self.ledger.course.ended:  # every other trial would fail of it as well
                self.refuse(InputError(Problem("scheduler.name", error)))
                return Verdict.CONTINUE
            self.pool.answer.remote(trial, step, False)
            self._finish(trial, State.FAIL, error)
            return Verdict.STOP
        if self._perturb(row, step):
            self.running[trial].trial, self.running[trial].shown = row.trial, configuration(row.trial)
            self.pool.renew.remote(row.trial, step, _past(row))
        else:
            self.pool.answer.remote(trial, step, True)
        self.ledger.sync()
        return Verdict.CONTINUE

    def _perturb(self, row: Any, step: int) -> bool:
        """Decide a milestone of a member; whether it takes over from another."""
        assert isinstance(self.scheduler, Pbt)
        if (taken := self.ledger.perturb(row.trial.number, step, self.scheduler)) is None:
            return False
        self.tracker.reports(row.trial.number, (Report(taken.origin, taken.metrics, taken.time),))
        self.tracker.tag(row.trial.number, {"sweeps.pbt": row.trial.lineage})
        return True

    def _verdict(self, number: int, rung: int) -> Verdict:
        """The scheduler's; of a trial that passes a rung again after it was lost beyond it, the one that it had."""
        row = self.ledger.standing(number)
        if row.steps > rung or row.trial.origin is not None:  # a repeat's configuration has come to the end already
            return Verdict.CONTINUE
        return self.ledger.verdict(number, rung)

    def tick(self) -> None:
        """Look at the clock, at the fits and for Ctrl-C; called in every round of Tune's loop."""
        self.ledger.sync()
        limit = self.space.limits.timeout
        if self.interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limit is not None and time.time() - self.began > limit:
            self.stop("limits.timeout", State.PRUNED)
        elif self.space.limits.max_gpu_hours is not None:
            self._look_at_budgets()
        self._look_at_prefit()
        self._look_whether_the_pool_lives()
        if time.monotonic() - self.shown > SHOW_EVERY:
            self.shown = time.monotonic()
            self._look_at_pool()
            self.on_progress(self.snapshot())

    @property
    def direct(self) -> bool:
        """Whether a report alone says how good a trial is."""
        return self.ledger.judge.plain and self.space.repeats.count == 1

    def _note_best(self, trial: Trial, value: float, step: int) -> None:
        self.best = Best(trial.id, value, step, (("workers", workers(trial.shape)), *configuration(trial)))

    def _note_leader(self) -> None:
        """Where a report alone does not say how good a trial is, the best is that of the trials that have ended."""
        best = self.ledger.course.best
        if not self.direct and best is not None and best[1].value is not None:
            self._note_best(self.ledger.trial(best[0]), best[1].value, best[1].best_step or 0)

    def _look_at_budgets(self) -> None:
        """End the sweep when a limit of what it may spend is reached, and there is more to come."""
        course, limits = self.ledger.course, self.space.limits
        if len(course.ended) >= self.ledger.total:
            return
        spent = self.usage.seconds if self.usage else {}
        gpus = sum(spent.get(name, 0.0) * r.trial.shape.total.get("GPU", 0.0) for name, r in self.running.items())
        if (reason := budgets.reason(limits, course, gpus)) is not None:
            # what fails is no fault of the others, which may go on another time
            self.stop(reason, State.RUNNING if reason.startswith("limits.max_failures") else State.PRUNED)

    def _look_at_prefit(self) -> None:
        """A chain that names a column that is not there is the user's error, known before any trial has failed of it."""
        if self.prefit is None or not ray.wait([self.prefit], timeout=0)[0]:
            return
        done, self.prefit = self.prefit, None
        try:
            ray.get(done)
        except ray.exceptions.RayActorError:  # the pool was lost; what was not fitted is fitted when it is wanted
            return
        except ray.exceptions.RayTaskError as e:
            if isinstance(e.cause, InputError):
                self.refuse(e.cause)

    def refuse(self, error: InputError) -> None:
        """The space file is wrong in a way that only a trial could show: the sweep ends, and leaves nothing behind."""
        self.refused = self.refused or error
        self.stop("bad input", State.RUNNING)

    def _look_whether_the_pool_lives(self) -> None:
        """If its process was lost, Ray has started another, which knows nothing: it is told what is on record of the trials that run."""
        if self.life is None:
            self.life = self.pool.life.remote()
        if not ray.wait([self.life], timeout=0)[0]:
            return
        log.warning("the pool's process was lost; %d trials go on from their checkpoints", len(self.running))
        self.life = self.pool.life.remote()
        self.introduce()
        if self.reason is not None:
            self.pool.interrupt.remote(State.RUNNING)
        for running in self.running.values():
            row = self.ledger.standing(running.trial.number)
            past = _past(row, lost=1 if isinstance(self.scheduler, Pbt) else max(1, row.attempts))  # PBT's attempts are no losses
            self.pool.start.remote(running.trial, str(self.folder / "trials" / running.trial.id), past)

    def _look_at_pool(self) -> None:
        """Take up what the pool has said of what it holds, and ask again; Tune's loop does not wait for it."""
        if self.asked is not None and ray.wait([self.asked], timeout=0)[0]:
            done, self.asked = self.asked, None
            with contextlib.suppress(ray.exceptions.RayError):
                self.usage = ray.get(done)
        self.asked = self.asked or self.pool.usage.remote()

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
        result = self.ledger.finish(begun.trial.number, state, error, reason)
        if state is not State.RUNNING:
            self.spans.append((begun.began, time.time() - self.began))
        if result.error is not None:
            self.failures.append((trial, result.error))
            log.warning("trial %s failed:\n%s", trial, result.error)
        self.tracker.end(begun.trial.number, result, self.ledger.ended_at(begun.trial.number))
        self.pool.forget.remote(trial)
        course = self.ledger.course
        self._note_leader()
        if state is State.RUNNING:
            return
        if self.cleaner is not None:
            self.ledger.sync()  # a machine that stops must not go on from a checkpoint that is gone
            latest = self.ledger.standing(begun.trial.number).checkpoint
            self.cleaner.ended((begun.trial.number, begun.trial.origin, result, Path(latest.path).name if latest else None))
        if rules.hopeless(course.ended[self.forgiven :]):
            self.stop(f"the first {rules.FAILING_FROM_THE_START} trials to end have all failed", State.RUNNING)
        else:
            self._look_at_budgets()

    def stop(self, reason: str, state: State) -> None:
        """Begin no more trials and end those that run: RUNNING leaves them resumable, PRUNED counts them as stopped."""
        if self.reason is None:
            self.reason = reason
            self.pool.interrupt.remote(state)

    def close(self) -> None:
        """Put on record that what still runs does not run any more."""
        for trial in list(self.running):
            self._finish(trial, State.RUNNING, None)
        self.ledger.sync()
        if self.cleaner is not None:
            self.cleaner.close()

    def snapshot(self, stage: str | None = None) -> Snapshot:
        """How the sweep stands now; `stage` says what is going on other than trials."""
        states = Counter(s.value for s in self.ledger.course.ended)
        states["RUNNING"] = len(self.running)
        now, total, objective = time.time() - self.began, self.ledger.total, self.space.objective
        failed, error = self.failures[-1] if self.failures else ("", "")
        return Snapshot(
            states=states,
            total=total,
            best=self.best,
            seconds=now,
            left=None if self.reason else self._left(now),
            reason=self.reason,
            name=self.folder.name,
            metric=", ".join(o.metric for o in self.space.objectives),
            goal=objective.goal,
            front=len(self.ledger.course.front),
            failure=(failed, error.strip().splitlines()[-1]) if error.strip() else None,
            rows=tuple(self._row(running, now) for running in self.running.values()),
            use=self._use(),
            fits=self.usage.fits if self.usage else 0,
            stage=stage,
        )

    def _left(self, now: float) -> Left | None:
        rungs = () if isinstance(self.scheduler.rungs, range) else self.scheduler.rungs
        stops = (*rungs, self.scheduler.max_t) if self.scheduler.max_t else ()
        going = []
        for r in self.running.values():
            known = r.first and r.last and ahead((r.first.step, r.first.time), (r.last.step, r.last.time), stops, time.time())
            going.append(Going(now - r.began, known or None))
        to_end = len(self.spans) + self.ledger.total - len(self.ledger.course.ended)
        return time_left(now, to_end, self.spans, going, self.at_once, self.space.limits.timeout)

    def _row(self, r: _Running, now: float) -> Row:
        stage, rung = self.usage.stages.get(r.trial.id, (None, None)) if self.usage else (None, None)
        if self.reason is not None:
            said = "stopping"
        elif rung is not None:
            said = f"at rung {rung}"
        elif r.last is not None and r.attempt == 1:  # heard of since the pool was asked
            said = Stage.TRAINING.value
        else:
            said = stage.value if stage else "beginning"
        metric = self.ledger.judge.metric
        return Row(
            trial=r.trial.id,
            stage=said,
            step=r.last.step if r.last else 0,
            max_t=self.scheduler.max_t,
            value=r.last.metrics[metric] if r.last and metric is not None else None,
            best=r.best,
            shape=r.trial.shape,
            seconds=now - r.began,
            attempt=r.attempt,
            configuration=r.shown,
        )

    def _use(self) -> tuple[Use, ...]:
        if self.usage is None:
            return ()
        u, asked = self.usage, {name for shape in self.space.shapes for name, _ in shape.per_worker}
        return tuple(Use(n, u.total[n], u.busy.get(n, 0.0), u.warm.get(n, 0.0)) for n in u.total if n in asked or n in ("CPU", "GPU"))
