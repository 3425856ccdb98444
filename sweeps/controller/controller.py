"""Control a sweep while it runs: decide which trials start, continue and stop.

The controller also notices when the sweep is over. The study records everything, and every decision
is a function of the study. `trial_lifecycle` carries the decisions out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sweeps.controller.command_handler import CommandHandler
from sweeps.controller.deadline import Deadline
from sweeps.controller.pool_monitor import PoolMonitor
from sweeps.controller.ports import PoolHandle
from sweeps.controller.status import SweepStatus
from sweeps.controller.trial_lifecycle import TrialLifecycle
from sweeps.core.command_hints import resume_command
from sweeps.core.disk import check_disk_space
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.stores import check_store
from sweeps.core.trial import TIME_LIMITS, Action, State, format_trial_id
from sweeps.execution.messages import TrialUpdate
from sweeps.search.schedulers.base import rung_set
from sweeps.search.search_loop import SearchLoop
from sweeps.study import budgets, ranking
from sweeps.study.record import STOPPED
from sweeps.study.states import TrialState
from sweeps.tracking import TrackerHub

log = logging.getLogger(__name__)


# Seconds between two status updates. Commands and the pool's usage are polled at the same interval.
STATUS_INTERVAL = 0.25
# After this many deaths of the worker pool in a row, without the end of a trial in between, the
# sweep ends.
MAX_POOL_DEATHS = 10


class SweepController:
    """Controller of one sweep.

    The adapter of Ray Tune calls its methods in the main thread; see
    `sweeps.execution.tune_adapter`.

    Args:
        search: The sweep's search, which holds the study, the trial queue, the sampler and the
            scheduler.
        pool: Handle of the worker pool.
        trackers: Hub that receives the events of the sweep.
        began: Start of the sweep by the monotonic clock, moved forward by the length of all breaks
            between runs.
        interrupted: Function that returns whether the user has asked to stop the sweep.
        publish_status: Function that is called with a `SweepStatus` a few times a second.
        configure_pool: Function that passes the data actor and a description of the label column to
            a pool that Ray has restarted.
        prefit: Ray reference that resolves when the first preprocessing chains are fitted. These
            are the chains that are known before the first trial. None if there are no such chains.
        slots: Largest number of trials that run at the same time, until `slots_of` changes it. None
            if Ray Tune alone limits the number.
        slots_of: Function that takes the resources of the cluster, by name, and returns the new
            largest number. The controller calls it again and again, because nodes may join or
            leave. None if the number does not change.
        deadline: When the whole command must end. None if the user gave no `--minutes`.

    Attributes:
        trials: Object that starts, pauses and ends trials.
        progress: Object that follows the running trials and the best value.
        reason: Reason why no more trials start; None while trials can still start.
        refused: Error in the space file that ended the sweep; None if no such error was found.
        commands: Object that carries out the commands of users, such as `sweeps pause`.
    """

    def __init__(
        self,
        search: SearchLoop,
        pool: PoolHandle,
        trackers: TrackerHub,
        began: float,
        interrupted: Callable[[], bool],
        publish_status: Callable[[SweepStatus], None],
        configure_pool: Callable[[], None],
        prefit: Any = None,
        slots: int | None = None,
        slots_of: Callable[[Mapping[str, float]], int] | None = None,
        deadline: Deadline | None = None,
    ):
        self.search = search
        self.pool = pool
        self.trackers = trackers
        self.began = began
        self.study_store = search.store
        self.space = search.space
        self.scheduler = search.scheduler
        self.folder = search.store.folder
        self.rungs = rung_set(self.scheduler)
        self.trials = TrialLifecycle(search, pool, trackers, began)
        self.progress = self.trials.progress
        self.running = self.progress.running
        self.reason: str | None = None
        self.refused: InputError | None = None
        # Members of PBT's population that are started, but that Ray Tune has not asked for yet.
        self.population: deque[str] | None = None
        self._interrupted = interrupted
        self._publish_status = publish_status
        self._configure_pool = configure_pool
        self._elastic = any(shape.most is not None for shape in self.space.shapes)
        self._monitor = PoolMonitor(pool, self.folder, prefit)
        self._slots_of = slots_of
        self._slots = slots
        self._deadline = deadline
        # The best trial, and whether it could be trained again in time when it became the best.
        self._leader: tuple[str, bool] | None = None
        self.commands = CommandHandler(self)
        self._pool_deaths = 0  # since a trial last ended
        # Ids of running trials that end because of a command.
        self._stop_requested: set[str] = set()
        self._status_time = -math.inf
        # State to record for the trials that are running when the sweep stops.
        self._unfinished_state = State.RUNNING
        search.store.clock = lambda: time.monotonic() - began
        self._earlier_ended = self._forgive_failures()

    def _forgive_failures(self) -> int:
        """Forgive the failures that ended an earlier driver's search.

        Return the number of its ended trials that `should_abort` leaves out.
        """
        budget = self.search.budget
        # If an earlier driver stopped because its first trials all failed, this driver counts
        # failures from zero.
        left_out = len(budget.ended) if ranking.should_abort(budget.ended) else 0
        budget.forgive_failures(self.space.limits)
        return left_out

    # Start trials

    def start_trial(self) -> str | None:
        """Start the next trial and return its id.

        Return None if no trial starts now but one may start later.

        Raises:
            StopIteration: No more trials start.
        """
        if self.commands.paused and self._trials_left():
            return None
        if self._slots is not None and len(self.running) >= self._slots and self.reason is None:
            return None
        if self.scheduler.perturbs:
            self.population = (
                self._start_population() if self.population is None else self.population
            )
            if not self.population:
                raise StopIteration
            return self.population.popleft()
        if not self.reason and self.search.interrupted:
            return self.trials.resume(self.search.interrupted.popleft())
        if not self.reason and (number := self.search.next_paused()) is not None:
            return self.trials.resume(number)
        trial = None if self.reason else self.search.ask()
        if trial is None and not self.reason and self._may_wait():
            return None
        if trial is None:
            self._stop_paused()
            raise StopIteration
        return self.trials.start(self.study_store.states[trial.number])

    def _stop_paused(self) -> None:
        """Stop all paused trials.

        The reason: no other trial is left whose results could let a paused trial continue.

        If the sweep itself stops, the trials stay paused, so that a resumed sweep can continue
        them.
        """
        for number, rung in () if self.reason else tuple(self.search.view.paused.items()):
            self._end_without_run(
                number, State.PRUNED, f"{self.space.scheduler.name} at step {rung}"
            )

    def _start_population(self) -> deque[str]:
        """Start all trials of a population, and return their ids.

        The trials take turns on the workers.

        Interrupted trials come first, ordered by the step that they reached, the lowest first.
        """
        started: deque[str] = deque()
        waiting = (
            [self.study_store.existing(number) for number in sorted(self.search.interrupted)]
            if not self.reason
            else []
        )
        for live in waiting:
            step = live.checkpoint.step if live.checkpoint else 0
            undecided = (
                step == live.steps and step in self.scheduler.rungs() and step > live.decided_rung
            )
            if undecided:  # The last driver died before it decided about this step.
                self.search.decide(live.number, step)
        decided = {live.number: self.study_store.states[live.number] for live in waiting}
        for number in sorted(decided, key=lambda n: (decided[n].decided_rung, n)):
            self.search.interrupted.remove(number)
            started.append(self.trials.resume(number))
        while not self.reason and (trial := self.search.ask()) is not None:
            started.append(self.trials.start(self.study_store.states[trial.number]))
        return started

    def finish_leftover_trials(self) -> None:
        """End each interrupted trial that must not continue.

        Such a trial has reached `max_t`, or the scheduler stops or pauses it at its latest step.
        Call this before Ray Tune asks for trials.
        """
        if self._interrupted():
            self.stop("interrupted", State.RUNNING)
            return
        for number in list(self.search.interrupted):
            live = self.study_store.existing(number)
            # With several ranks, one rank may not have written its part of the last checkpoint, so
            # the last complete checkpoint counts.
            alone = live.trial.shape.sizes == range(1, 2)
            steps = live.steps if alone else live.checkpoint.step if live.checkpoint else 0
            if self.scheduler.max_t is not None and steps >= self.scheduler.max_t:
                state, reason = State.COMPLETE, None
            elif (action := self._leftover_action(live)) is Action.STOP:
                state, reason = State.PRUNED, f"{self.space.scheduler.name} at step {live.steps}"
            else:
                if action is Action.PAUSE:
                    self.search.interrupted.remove(number)
                continue
            self._end_without_run(number, state, reason)
        # The earlier driver may have spent a budget and died before it stopped the sweep.
        self._check_budgets()

    def _leftover_action(self, live: TrialState) -> Action:
        """Return what happens to an interrupted trial whose latest step is a rung, and record it.

        CONTINUE for any other trial.

        A trial that may be paused needs a checkpoint of this step. Without one, the trial reaches
        the rung again.
        """
        stops, pauses = self.scheduler.stops, self.scheduler.pauses
        saved = live.checkpoint is not None and live.checkpoint.step == live.steps
        if (
            self.scheduler.perturbs
            or not (stops or pauses)
            or live.steps not in self.rungs
            or (pauses and not saved)
        ):
            return Action.CONTINUE
        return self.search.decide(live.number, live.steps).action

    # Follow trials

    def on_update(self, update: TrialUpdate) -> Action:
        """Record what happened to a trial.

        If the trial waits at a rung, decide whether the trial continues, and send the decision to
        the pool.

        Returns:
            STOP if the trial has ended or was paused, else CONTINUE.
        """
        trial, end = update.trial, update.end
        if int(trial) not in self.running:
            return Action.STOP
        if update.events:
            self.trials.record(update.events)
        if end is not None:
            if end.state is State.FAIL:
                check_disk_space(self.folder, end.error or "")
                check_store(self.folder, end.error or "")
                self._check_prefit()
            # Every other trial would fail for the same reason.
            if end.refused is not None and not self.search.budget.ended:
                self.refuse(InputError(Problem(*end.refused)))
            self._finish(trial, end.state, end.error, final=end.final)
            return Action.STOP
        return Action.CONTINUE if update.rung is None else self._decide(trial, update.rung)

    def _decide(self, trial: str, rung: int) -> Action:
        """Decide whether a trial that waits at a rung continues, and send it the decision."""
        if self.scheduler.needs_checkpoint and not self._has_checkpoint(trial, rung):
            return Action.STOP if int(trial) not in self.running else Action.CONTINUE
        if self.scheduler.perturbs:
            self.trials.perturb_running(trial, rung)
            return Action.CONTINUE
        action = self.search.decide(int(trial), rung).action
        self.pool.answer.remote(trial, rung, action is Action.CONTINUE)
        if action is Action.STOP:
            self._finish(trial, State.PRUNED, None, f"{self.space.scheduler.name} at step {rung}")
        elif action is Action.PAUSE:
            self.trials.pause(trial)
            return Action.STOP
        return action

    def _has_checkpoint(self, trial: str, step: int) -> bool:
        """Return whether a trial reported the checkpoint that the scheduler needs at a rung.

        If not, the trial fails. If no trial has ended yet, the sweep ends, because every other
        trial would fail in the same way.
        """
        live = self.study_store.states[int(trial)]
        if step <= live.decided_rung or (
            live.checkpoint is not None and live.checkpoint.step == step
        ):
            return True
        name = self.space.scheduler.name
        rule = f"the scheduler {name} needs a checkpoint at each step at which it compares trials"
        todo = (
            "pass a checkpoint to `report` whenever `sweeps.trial.current().checkpoint_due` is true"
        )
        error = f"{rule}, but trial {trial} reported step {step} without a checkpoint; {todo}"
        if not self.search.budget.ended:  # Every other trial would fail in the same way.
            self.refuse(InputError("scheduler.name", error))
            return False
        self.pool.answer.remote(trial, step, False)
        self._finish(trial, State.FAIL, error)
        return False

    # Watch the sweep

    def poll(self) -> None:
        """Check budgets, commands, the pool and Ctrl-C.

        Ray Tune's adapter calls this in every round of Tune's loop.
        """
        self.study_store.sync()
        limits = self.space.limits
        if self._interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limits.timeout is not None or limits.max_gpu_hours is not None or self._deadline:
            self._check_budgets()
        self._check_prefit()
        if time.monotonic() - self._status_time > STATUS_INTERVAL:
            self._status_time = time.monotonic()
            if self._monitor.pool_was_restarted():
                self._restart_trials()
            if self._monitor.data_error is not None:
                self.stop("the data has changed", State.RUNNING)
            self.commands.poll()
            self._monitor.update_usage()
            if self._elastic:
                self._monitor.set_all_started(
                    self.reason is not None or self.commands.paused or not self._trials_left()
                )
            self.progress.usage = self._monitor.usage
            self._follow_cluster()
            self._publish_status(self.status())

    def _trials_left(self) -> bool:
        """Return whether this driver may still start or continue a trial.

        Repeats that are added when running trials end are not counted.
        """
        waiting = (
            bool(self.population)
            or bool(self.search.interrupted)
            or self.search.queue.remaining > 0
        )
        return waiting or (
            bool(self.search.view.paused)
            and self.scheduler.next_paused(self.search.view) is not None
        )

    def may_start_trials(self) -> bool:
        """Return whether a trial may still start or continue, now or after running ones end."""
        return self._trials_left() or self._may_wait()

    def _may_wait(self) -> bool:
        """Return whether a running trial may let others start or continue when it ends.

        It may add repeats to the queue, or let a paused trial continue.
        """
        return bool(self.running) and (self.search.queue.may_grow or bool(self.search.view.paused))

    def _follow_cluster(self) -> None:
        """Change the number of trials that run at the same time if nodes have joined or left."""
        if self._slots_of is None or self._monitor.usage is None:
            return
        slots = self._slots_of(self._monitor.usage.total)
        if slots != self._slots:
            log.info("up to %d trials run at the same time", slots)
            self._slots = slots

    def _check_budgets(self) -> None:
        """Stop the sweep if it has reached a limit of the space file and has trials left."""
        budget, limits = self.search.budget, self.space.limits
        if len(budget.ended) >= self.search.queue.known_total:
            return
        if (reason := self._time_limit(time.monotonic())) is not None:
            self.stop(reason, State.PRUNED)
            return
        spent = self.progress.usage.worker_seconds if self.progress.usage else {}
        states = self.study_store.states
        used = [
            (spent.get(states[number].id, 0.0), states[number].trial) for number in self.running
        ]
        unfinished = [*self.search.interrupted, *self.search.view.paused]
        used += [
            (live.worker_seconds, live.trial) for live in (states[number] for number in unfinished)
        ]
        gpus = sum(
            seconds * dict(trial.shape.per_worker).get("GPU", 0.0) for seconds, trial in used
        )
        if (reason := budgets.exhausted(limits, budget, gpus)) is not None:
            # After too many failures, the running trials stay resumable, because they did not fail
            # themselves.
            self.stop(
                reason, State.RUNNING if reason.startswith("limits.max_failures") else State.PRUNED
            )

    def _time_limit(self, now: float) -> str | None:
        """Return the time limit that the sweep has reached; None if it has reached none.

        Args:
            now: The current time by the monotonic clock.
        """
        timeout, deadline = self.space.limits.timeout, self._deadline
        ends = {} if timeout is None else {"limits.timeout": self.began + timeout}
        if deadline is not None:
            ends["--minutes"] = deadline.end - self._reserve(deadline, now)
        if not ends:
            return None
        reason = min(ends, key=lambda name: ends[name])
        self.progress.timeout = ends[reason] - self.began
        return reason if now > ends[reason] else None

    def _reserve(self, deadline: Deadline, now: float) -> float:
        """Return the seconds that the command needs after the search; see `Deadline.reserve`."""
        leader = self.progress.leader(self._can_win)
        if leader is None:
            return deadline.reserve(None, trains=False)
        trial, seconds = leader
        if self._leader is None or self._leader[0] != trial:
            self._leader = trial, deadline.fits(seconds, now)
        return deadline.reserve(seconds, self._leader[1])

    def _can_win(self, number: int) -> bool:
        """Return whether a trial that time ends may win.

        Its value must be that of one model that was trained on all rows. If the winner has a
        bundle, the trial must have a checkpoint.
        """
        space = self.space
        parts = space.data.folds or space.scheduler.counts_rows or space.repeats.count > 1
        saved = self.study_store.states[number].best is not None
        return not parts and (saved or space.trainer.load is None)

    def why_no_training(self) -> str | None:
        """Return why the winner must not be trained on all rows now; None if it may be."""
        if self.reason == "interrupted" or self._interrupted():
            return "the sweep was interrupted"
        deadline = self._deadline
        if self.space.data.folds:
            return None  # There is no other model, and a late one is better than none.
        if deadline is not None and time.monotonic() > deadline.training_ends:
            return "--minutes leaves too little time"
        return None

    def refuse(self, error: InputError) -> None:
        """End the sweep because of an error in the space file that only a running trial shows."""
        self.refused = self.refused or error
        self.stop("bad input", State.RUNNING)

    def _check_prefit(self) -> None:
        """End the sweep if a preprocessing chain could not be fitted.

        The reason: the error concerns all trials.
        """
        error = self._monitor.prefit_error()
        if error is not None and not self.search.budget.ended:
            self.refuse(error)

    def _restart_trials(self) -> None:
        """Pass all running trials to a pool that Ray has restarted.

        They continue from their checkpoints.

        Raises:
            SweepsError: The pool's process has died `MAX_POOL_DEATHS` times, and no trial ended in
                between.
        """
        self._pool_deaths += 1
        if self._pool_deaths == MAX_POOL_DEATHS:
            count = f"{MAX_POOL_DEATHS} times, and no trial ended in between"
            raise SweepsError(
                f"the process of the worker pool died {count}; find the cause in sweep.log, then "
                f"run `{resume_command(self.folder)}`"
            )
        log.warning(
            "the process of the worker pool died and was restarted; %d trials continue from their "
            "checkpoints",
            len(self.running),
        )
        self._configure_pool()
        if self.reason is not None:
            self.pool.interrupt.remote(State.RUNNING)
        self.trials.restart_running()

    def on_trial_lost(self, trial: str) -> None:
        """Record a trial as failed.

        The reason: the pool raised an error when Ray Tune asked what happened to the trial.
        """
        if int(trial) in self.running:
            self.pool.cancel.remote(trial)
            self._finish(
                trial,
                State.FAIL,
                "the worker pool could not say what happened to the trial; sweep.log has the error",
            )

    @property
    def data_error(self) -> InputError | None:
        """Error that ended the sweep because its data has changed; None if it has not."""
        return self._monitor.data_error

    # End trials and the sweep

    def _finish(
        self,
        trial: str,
        state: State,
        error: str | None,
        reason: str | None = None,
        final: dict[str, float] | None = None,
    ) -> None:
        """Record the end of a trial, and check whether the sweep ends now.

        The pool deletes its state of the trial.
        """
        if state is State.PRUNED and reason is None:
            reason = STOPPED if trial in self._stop_requested else self.reason
            if reason in TIME_LIMITS and not self._can_win(int(trial)):
                reason = f"{reason}, unfinished"
        self._stop_requested.discard(trial)
        self.trials.end(trial, state, error, reason, final)
        self._pool_deaths = 0
        if state is State.RUNNING:
            return
        if ranking.should_abort(self.search.budget.ended[self._earlier_ended :]):
            self.stop(
                f"the first {ranking.ABORT_AFTER_FAILURES} trials that ended have all failed",
                State.RUNNING,
            )
        else:
            self._check_budgets()

    def _end_without_run(self, number: int, state: State, reason: str | None) -> None:
        """Record the end of an interrupted or paused trial without running it again."""
        if number in self.search.interrupted:
            self.search.interrupted.remove(number)
        trial = self.study_store.states[number].trial
        self.trials.record_start(trial)
        self._finish(trial.id, state, None, reason)

    def stop_trial(self, number: int) -> None:
        """End one trial, because the user has asked for it.

        The trial may be running, paused or interrupted.

        A running trial ends when the pool has returned the trial's last reports. If the pool has
        been restarted meanwhile, call this method again.
        """
        trial = self.study_store.states[number].trial.id
        if number in self.running:
            self._stop_requested.add(trial)
            self.pool.stop.remote(trial)
        else:
            self._end_without_run(number, State.PRUNED, STOPPED)

    def stop(self, reason: str, state: State) -> None:
        """Start no more trials, and end the running trials.

        Args:
            reason: Reason why the sweep stops.
            state: State to record for the trials that are running. With RUNNING, a resume continues
                them; with PRUNED, they have ended.
        """
        if self.reason is None:
            self.commands.end_pause()
            self.reason, self._unfinished_state = reason, state
            self.pool.interrupt.remote(state)

    def close(self, failed: bool = False) -> None:
        """Record the end of all running trials.

        After a call of `stop` with PRUNED, the interrupted and paused trials that this driver did
        not continue are recorded as PRUNED too.

        Args:
            failed: True if an error has ended the search. An earlier write to the study may have
                failed, so errors of these writes are ignored.
        """
        # The study is then the same as after a killed driver.
        with contextlib.suppress(Exception) if failed else contextlib.nullcontext():
            for number in list(self.running):
                self._finish(format_trial_id(number), State.RUNNING, None)
            resumable = [*self.search.interrupted, *self.search.view.paused]
            for number in resumable if self._unfinished_state is State.PRUNED else ():
                self._end_without_run(number, State.PRUNED, None)
            self.study_store.sync()
        self._monitor.close()
        self.trials.close()

    def publish_stage(self, stage: str | None) -> None:
        """Publish the status of the sweep.

        `stage` is the current phase if no trials run, such as "exporting the winner".
        """
        self._publish_status(self.status(stage))

    def status(self, stage: str | None = None) -> SweepStatus:
        """Return the current status of the sweep.

        `stage` is the current phase if no trials run, such as "exporting the winner".
        """
        return dataclasses.replace(
            self.progress.status(self.reason, stage), paused=self.commands.paused
        )
