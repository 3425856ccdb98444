"""The driver's decisions while a sweep runs: begin trials, hear their news, give verdicts, know when it is over.

The study is the record and the verdicts are pure; this passes between them, the pool and MLflow.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from sweeps.checkpoints.cleaner import CheckpointCleaner
from sweeps.checkpoints.retention import RetentionPolicy
from sweeps.controller.progress import SweepProgress
from sweeps.controller.status import SweepStatus
from sweeps.core.atomic_files import write_text
from sweeps.core.disk import check_disk_space
from sweeps.core.errors import InputError, Problem
from sweeps.core.processes import is_alive
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Action, State, Trial
from sweeps.data.data_actor import LOST_MESSAGE
from sweeps.execution.messages import Past, Progress, Stage, Usage
from sweeps.search.schedulers.base import all_rungs
from sweeps.search.search_loop import SearchLoop
from sweeps.study import budgets, ranking
from sweeps.study.live_trial import LiveTrial
from sweeps.tracking import TrackerHub
from sweeps.tracking.events import TrialChanged, TrialEnded, TrialPaused, TrialReported, TrialStarted

log = logging.getLogger(__name__)


# How often a snapshot is shown and the pool asked for what it holds, in seconds.
SHOW_EVERY = 0.25


def _past(row: LiveTrial, lost: int = 0) -> Past:
    """What a pool is told of a trial that goes on, from the ledger's row of it."""
    return Past(max(1, row.attempts), tuple(row.curve.items()), row.checkpoint, row.best, row.seconds, lost)


def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what a method raises, and raise it again whenever Tune calls: Tune makes text of it, and in some places goes on."""

    @functools.wraps(method)
    def call(self: SweepController, *what: Any) -> Any:
        if self.broke is not None:
            raise self.broke
        try:
            return method(self, *what)
        except StopIteration:
            raise
        except Exception as e:
            self.broke = self.broke or e
            raise

    return call


@dataclass
class SweepController:
    """See the module. Called by the adapters of Tune, in the driver's main thread."""

    search: SearchLoop
    pool: Any
    trackers: TrackerHub
    began: float  # seconds since the epoch
    interrupted: Callable[[], bool]
    on_progress: Callable[[SweepStatus], None]
    introduce: Callable[[], None]  # tells a pool that was started again of the data
    shown: float = 0.0
    reason: str | None = None  # why no more trials are begun
    data_actor: int | None = None  # the process that holds the data, on this machine
    left: State = State.RUNNING  # how trials that have not ended are left then
    broke: Exception | None = None  # what ended the search in the middle
    prefit: Any = None  # resolves when the chains known beforehand are fitted
    refused: InputError | None = None
    asked: Any = None  # resolves to what the pool says next
    life: Any = None  # fails when the pool's process is lost
    cleaner: CheckpointCleaner | None = None  # of the checkpoints, where they are bounded
    forgiven: int = 0  # trials that had ended, in vain, when a hopeless sweep was resumed
    population: deque[str] | None = None  # members of PBT that were begun and that Tune does not know yet
    attempts: dict[str, int] = field(default_factory=dict)  # those that a trial had before this driver, by id
    stages: dict[str, str] = field(default_factory=dict)  # what the folder says of trials that do not train yet

    def __post_init__(self) -> None:
        """Know what an earlier driver has put on record."""
        self.study_store, self.space, self.scheduler = self.search.store, self.search.space, self.search.scheduler
        self.folder = self.study_store.folder
        SweepFolder(self.folder).stages.unlink(missing_ok=True)  # of a driver that was killed
        self.study_store.clock = lambda: time.time() - self.began
        rungs = all_rungs(self.scheduler)
        self.rungs = rungs if isinstance(rungs, range) else frozenset(rungs)
        self.progress = SweepProgress(self.search, self.began)
        self.running = self.progress.running
        if ranking.should_abort(self.search.budget.ended):
            self.forgiven = len(self.search.budget.ended)
        self.search.budget.forgive_failures(self.space.limits)
        if not self.space.checkpoints.all_stay:
            self.cleaner = self._cleaner()

    def _cleaner(self) -> CheckpointCleaner:
        """Keeps to the bounds of the checkpoints, from what is on record."""
        kept, configurations = self.space.checkpoints, self.study_store.configurations()
        saved, origins = self.study_store.saved(), {n: first for first, own in configurations.trials.items() for n, _ in own if n != first}
        known = [(n, origins.get(n), r, saved[n][1]) for n, r in self.study_store.results().items() if r.state is not State.RUNNING]
        rule = RetentionPolicy(kept.per_trial, kept.top, kept.max_disk)
        return CheckpointCleaner(self.folder, rule, self.space.repeats, self.study_store.objectives.goals, known)

    def __reduce__(self):
        """Tune pickles what it is given, for a restore of its own that nothing here relies on."""
        return type(None), ()

    @_kept
    def begin(self) -> str | None:
        """Begin the next trial; its id, or None if there is none now but may be later.

        Raises:
            StopIteration: the sweep begins no more trials.
        """
        if self.scheduler.perturbs:
            self.population = self._population() if self.population is None else self.population
            if not self.population:
                raise StopIteration
            return self.population.popleft()
        if not self.reason and self.search.interrupted:
            row = self.study_store.live_trial(self.search.interrupted.popleft())
            self._begin(row.trial, _past(row))
            return row.trial.id
        if not self.reason and (number := self.search.next_paused()) is not None:
            row = self.study_store.live_trial(number)
            self._begin(row.trial, _past(row))
            return row.trial.id
        trial = None if self.reason else self.search.ask()
        if trial is None and not self.reason and (self.search.queue.may_grow or (self.search.view.paused and self.running)):
            return None
        if trial is None:
            self._stop_paused()
            raise StopIteration
        self._begin(trial)
        return trial.id

    def _stop_paused(self) -> None:
        """Stop the paused trials when nothing is left that could let them continue. A sweep that is resumed may continue them."""
        for number, rung in () if self.reason else tuple(self.search.view.paused.items()):
            row = self.study_store.live_trial(number)
            self._note(row.trial)
            self._finish(row.trial.id, State.PRUNED, None, f"{self.space.scheduler.name} at step {rung}")

    def _population(self) -> deque[str]:
        """Begin all members at once, as they take turns; those that go on first, and of these first who is furthest behind."""
        begun: deque[str] = deque()
        waiting = [self.study_store.live_trial(number) for number in sorted(self.search.interrupted)] if not self.reason else []
        for row in waiting:
            kept = row.checkpoint.step if row.checkpoint else 0
            if kept == row.steps and kept in self.scheduler.rungs() and kept > row.decided_rung:  # the last driver died before it decided
                self._perturb(row, kept)
        for row in sorted(waiting, key=lambda r: (r.decided_rung, r.trial.number)):
            self.search.interrupted.remove(row.trial.number)
            self._begin(row.trial, _past(row))
            begun.append(row.trial.id)
        while not self.reason and (trial := self.search.ask()) is not None:
            self._begin(trial)
            begun.append(trial.id)
        return begun

    def _begin(self, trial: Trial, past: Past | None = None) -> None:
        folder = SweepFolder(self.folder).trial(trial.id)
        folder.mkdir(parents=True, exist_ok=True)
        self._note(trial)
        self.attempts[trial.id] = past.attempts if past is not None else 0
        self.pool.start.remote(trial, str(folder), past)
        self.study_store.sync()  # while the trial is on its way

    def _note(self, trial: Trial) -> None:
        self.trackers.publish(TrialStarted(time.time(), trial.number, self.search.trial_at_start(trial.number)))
        self.progress.on_start(trial)

    def settle(self) -> None:
        """End the trials that an earlier driver left behind and that lack nothing but their end; before Tune is asked for others."""
        if self.interrupted():
            self.stop("interrupted", State.RUNNING)
            return
        for number in list(self.search.interrupted):
            row = self.study_store.live_trial(number)
            # of several ranks one may not have written its part of the last checkpoint, which does not count then
            kept = row.steps if row.trial.shape.workers == 1 else row.checkpoint.step if row.checkpoint else 0
            if self.scheduler.max_t is not None and kept >= self.scheduler.max_t:
                state, reason = State.COMPLETE, None
            elif self.scheduler.stops and row.steps in self.rungs and self.search.decide(number, row.steps).action is Action.STOP:
                state, reason = State.PRUNED, f"{self.space.scheduler.name} at step {row.steps}"
            else:
                continue
            self.search.interrupted.remove(number)
            self._note(row.trial)
            self._finish(row.trial.id, state, None, reason)
        self._look_at_budgets()  # it may be that the last driver died of having spent them

    @_kept
    def hear(self, trial: str, progress: Progress) -> Action:
        """Record a trial's news; at a rung decide and answer."""
        if trial not in self.running:
            return Action.STOP
        number = self.running[trial].trial.number
        fresh = self.search.report(number, progress.reports, progress.checkpoint, progress.best, progress.attempts, progress.seconds)
        if fresh:
            self.trackers.publish(TrialReported(fresh[-1].time, number, fresh))
        self.progress.on_reports(trial, progress.attempts, fresh)
        if progress.state is not None:
            if progress.state is State.FAIL:
                check_disk_space(self.folder, progress.error or "")
            if progress.refused is not None and not self.search.budget.ended:  # every other trial would fail of it as well
                self.refuse(InputError(Problem(*progress.refused)))
            self._finish(trial, progress.state, progress.error, final=progress.final)
            return Action.STOP
        if progress.rung is None:
            return Action.CONTINUE
        if self.scheduler.needs_checkpoint and not self._has_checkpoint(trial, progress.rung):
            return Action.STOP if trial not in self.running else Action.CONTINUE
        if self.scheduler.perturbs:
            return self._perturbation_step(trial, progress.rung)
        action = self.search.decide(number, progress.rung).action
        self.pool.answer.remote(trial, progress.rung, action is Action.CONTINUE)
        if action is Action.STOP:
            self._finish(trial, State.PRUNED, None, f"{self.space.scheduler.name} at step {progress.rung}")
        elif action is Action.PAUSE:
            self._pause(trial, number)
            return Action.STOP
        return action

    def _pause(self, trial: str, number: int) -> None:
        """End a trial's run so that it can continue later from its checkpoint."""
        self.progress.on_end(trial, self.search.tell(number, State.RUNNING))
        self.trackers.publish(TrialPaused(time.time(), number, self.study_store.live_trial(number).steps))
        self.pool.forget.remote(trial)

    def _has_checkpoint(self, trial: str, step: int) -> bool:
        """Return whether a trial reported a checkpoint at a rung, as the scheduler needs; refuse the sweep or fail the trial if not."""
        row = self.study_store.live_trial(self.running[trial].trial.number)
        if step <= row.decided_rung or (row.checkpoint is not None and row.checkpoint.step == step):
            return True
        name = self.space.scheduler.name
        error = f"{name} needs a checkpoint with the report at every rung; trial {trial} reported none at step {step}"
        if not self.search.budget.ended:  # Every other trial would fail in the same way.
            self.refuse(InputError(Problem("scheduler.name", error)))
            return False
        self.pool.answer.remote(trial, step, False)
        self._finish(trial, State.FAIL, error)
        return False

    def _perturbation_step(self, trial: str, step: int) -> Action:
        """Let a trial at a perturbation step continue unchanged, or with another trial's checkpoint and new parameters."""
        row = self.study_store.live_trial(self.running[trial].trial.number)
        if step <= row.decided_rung:  # The trial was lost beyond this step.
            self.pool.answer.remote(trial, step, True)
            return Action.CONTINUE
        if self._perturb(row, step):
            self.progress.on_change(row.trial)
            self.pool.renew.remote(row.trial, step, _past(row))
        else:
            self.pool.answer.remote(trial, step, True)
        self.study_store.sync()
        return Action.CONTINUE

    def _perturb(self, row: LiveTrial, step: int) -> bool:
        """Decide a perturbation step; return whether the trial exploits another trial."""
        if self.search.decide(row.trial.number, step).action is not Action.EXPLOIT:
            return False
        taken = row.lineage[-1]
        self.trackers.publish(TrialChanged(taken.time, row.trial.number, row.trial, taken.origin, taken.metrics))
        return True

    @_kept
    def tick(self) -> None:
        """Look at the clock, at the fits and for Ctrl-C; called in every round of Tune's loop."""
        self.study_store.sync()
        limits = self.space.limits
        if self.interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limits.timeout is not None or limits.max_gpu_hours is not None:
            self._look_at_budgets()
        self._look_at_prefit()
        self._look_whether_the_pool_lives()
        if time.monotonic() - self.shown > SHOW_EVERY:
            self.shown = time.monotonic()
            self._look_at_pool()
            if self.data_actor is not None and not is_alive(self.data_actor):
                self.stop(LOST_MESSAGE, State.RUNNING)
            self.on_progress(self.status())

    def _look_at_budgets(self) -> None:
        """End the sweep when a limit of what it may spend is reached, and there is more to come."""
        course, limits = self.search.budget, self.space.limits
        if len(course.ended) >= self.search.queue.known_total:
            return
        if limits.timeout is not None and time.time() - self.began > limits.timeout:
            self.stop("limits.timeout", State.PRUNED)
            return
        spent = self.progress.usage.seconds if self.progress.usage else {}
        used = [(spent.get(name, 0.0), r.trial) for name, r in self.running.items()]
        used += [(row.seconds, row.trial) for row in map(self.study_store.live_trial, self.search.interrupted)]
        gpus = sum(seconds * trial.shape.total.get("GPU", 0.0) for seconds, trial in used)
        if (reason := budgets.exhausted(limits, course, gpus)) is not None:
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
            if isinstance(e.cause, InputError) and not self.search.budget.ended:  # else it is the trials' that have it
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
            row = self.study_store.live_trial(running.trial.number)
            lost = 0 if self.scheduler.perturbs else row.attempts - self.attempts[running.trial.id]  # perturbations start gangs, too
            past = _past(row, max(1, lost))
            self.pool.start.remote(running.trial, str(SweepFolder(self.folder).trial(running.trial.id)), past)

    def _look_at_pool(self) -> None:
        """Take up what the pool has said of what it holds, and ask again; Tune's loop does not wait for it."""
        if self.asked is not None and ray.wait([self.asked], timeout=0)[0]:
            done, self.asked = self.asked, None
            with contextlib.suppress(ray.exceptions.RayError):
                self.progress.usage = ray.get(done)
                self._note_stages(self.progress.usage)
        self.asked = self.asked or self.pool.usage.remote()

    def _note_stages(self, usage: Usage) -> None:
        """Leave word of the trials that do not train yet or are silent, for `sweeps show`: the study knows only that they were begun."""
        stages = {trial: stage.value for trial, (stage, _) in usage.stages.items() if stage is not Stage.TRAINING}
        stages |= {trial: f"silent: {said}" for trial, said in usage.silent.items()}
        if stages != self.stages:
            self.stages = stages
            write_text(SweepFolder(self.folder).stages, json.dumps(stages) + "\n")

    @_kept
    def lost(self, trial: str) -> None:
        """Tune gave up on the trial's runner."""
        if trial in self.running:
            limit = self.space.limits.max_failures
            self.pool.cancel.remote(trial)
            self._finish(trial, State.FAIL, f"the trial's runner died more often than limits.max_failures ({limit})")

    def _finish(
        self, trial: str, state: State, error: str | None, reason: str | None = None, final: dict[str, float] | None = None
    ) -> None:
        begun = self.running[trial].trial
        if state is State.PRUNED and reason is None:
            reason = self.reason
        result = self.search.tell(begun.number, state, error, reason, final)
        self.progress.on_end(trial, result)
        if result.error is not None:
            log.warning("trial %s failed:\n%s", trial, result.error)
        self.trackers.publish(TrialEnded(self.study_store.ended_at(begun.number), begun.number, result))
        self.pool.forget.remote(trial)
        if state is State.RUNNING:
            return
        if self.cleaner is not None:
            self.study_store.sync()  # a machine that stops must not go on from a checkpoint that is gone
            latest = self.study_store.live_trial(begun.number).checkpoint
            self.cleaner.trial_ended((begun.number, begun.origin, result, Path(latest.path).name if latest else None))
        if ranking.should_abort(self.search.budget.ended[self.forgiven :]):
            self.stop(f"the first {ranking.ABORT_AFTER_FAILURES} trials to end have all failed", State.RUNNING)
        else:
            self._look_at_budgets()

    def stop(self, reason: str, state: State) -> None:
        """Begin no more trials and end those that run: RUNNING leaves them resumable, PRUNED counts them as stopped."""
        if self.reason is None:
            self.reason, self.left = reason, state
            self.pool.interrupt.remote(state)

    def close(self) -> None:
        """Put on record that what still runs does not run any more.

        Where a budget is spent, what an earlier driver has left and was not begun again is stopped like what ran.
        """
        # A study that could not be written may not be writable now: then it says what it would if the driver had died
        with contextlib.nullcontext() if self.broke is None else contextlib.suppress(Exception):
            for trial in list(self.running):
                self._finish(trial, State.RUNNING, None)
            resumable = [*self.search.interrupted, *self.search.view.paused]
            for number in resumable if self.left is State.PRUNED else ():
                row = self.study_store.live_trial(number)
                self._note(row.trial)
                self._finish(row.trial.id, State.PRUNED, None)
                if number in self.search.interrupted:
                    self.search.interrupted.remove(number)
            self.study_store.sync()
        SweepFolder(self.folder).stages.unlink(missing_ok=True)
        if self.cleaner is not None:
            self.cleaner.close()

    def status(self, stage: str | None = None) -> SweepStatus:
        """How the sweep stands now; `stage` says what is going on other than trials."""
        return self.progress.status(self.reason, stage)
