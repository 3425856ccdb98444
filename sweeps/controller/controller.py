"""Control a sweep while it runs: start, continue and stop its trials.

The controller tells `decide` what happens, and carries its commands out. `trial_commands` carries
out those that concern a single trial. Everything is recorded in the study first.
"""

import contextlib
import dataclasses
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping

from sweeps.core import clock
from sweeps.core.errors import INTERRUPTED, InputError
from sweeps.core.files.disk import check_disk_space
from sweeps.core.files.stores import check_store
from sweeps.core.trial import State, format_trial_id
from sweeps.execution.messages import TrialUpdate
from sweeps.search.search_loop import SearchLoop
from sweeps.study.record_reader import STOPPED
from sweeps.tracking import TrackerHub

from .command_handler import CommandHandler
from .deadline import Deadline
from .decide import decide, reason_of_stop
from .driver_commands import (
    Ask,
    Continue,
    DriverCommand,
    DriverEvent,
    End,
    Exploit,
    LimitsChecked,
    PauseTrial,
    Refuse,
    ResumeTrial,
    StartNoMore,
    StopSweep,
    TrialLeft,
    TrialWanted,
)
from .driver_state import DriverState, Policy
from .pool_monitor import PoolMonitor
from .ports import PoolHandle
from .status import SweepStatus
from .time_limits import TimeLimits
from .trial_commands import TrialCommands

log = logging.getLogger(__name__)


# Seconds between two status updates. Commands and the pool's usage are polled at the same interval.
STATUS_INTERVAL = 0.25


class SweepController:
    """Controller of one sweep.

    The adapter of Ray Tune calls its methods in the main thread; see
    `sweeps.execution.ray_apis.tune_adapter`.

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
        monitor: Watches the pool. None for a `PoolMonitor` that knows no preprocessing chains.
        slots: Largest number of trials that run at the same time, until `slots_of` changes it. None
            if Ray Tune alone limits the number.
        slots_of: Function that takes the resources of the cluster, by name, and returns the new
            largest number. The controller calls it again and again, because nodes may join or
            leave. None if the number does not change.
        deadline: When the whole command must end. None if the user gave no `--minutes`.

    Attributes:
        trials: Object that starts, pauses and ends trials.
        progress: Object that follows the running trials and the best value.
        driver: State of this driver, and whether the sweep is paused or ends.
        policy: Settings that stay the same while this driver runs.
        time_limits: The time limits of the search.
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
        monitor: PoolMonitor | None = None,
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
        self.trials = TrialCommands(search, pool, trackers, began)
        self.progress = self.trials.progress
        self.running = self.progress.running
        self.driver = DriverState(
            search.store.sweep, search.view, search.queue, search.interrupted, slots=slots
        )
        self.driver.running = self.running
        self.policy = Policy.of(self.space, self.scheduler, search.store.sweep)
        self.refused: InputError | None = None
        # Members of PBT's population that are started, but that Ray Tune has not asked for yet.
        self.population: deque[str] | None = None
        self._interrupted = interrupted
        self._publish_status = publish_status
        self._configure_pool = configure_pool
        self._elastic = any(shape.most is not None for shape in self.space.shapes)
        self._monitor = monitor or PoolMonitor(pool, self.folder)
        self._slots_of = slots_of
        self.deadline = deadline
        self.time_limits = TimeLimits(self.progress, self.policy, began, deadline)
        self.commands = CommandHandler(
            search, self.driver, self.stop, self.stop_trial, self.may_start_trials
        )
        self._status_time = -math.inf
        search.store.clock = lambda: clock.monotonic() - began
        search.budget.forgive_failures(self.space.limits)

    @property
    def reason(self) -> str | None:
        """Why no more trials start; None while trials can still start."""
        return self.driver.reason

    # Start trials

    def start_trial(self) -> str | None:
        """Start the next trial and return its id.

        Return None if no trial starts now but one may start later.

        Raises:
            StopIteration: No more trials start.
        """
        if not self.scheduler.perturbs:
            return self._decide(TrialWanted())
        if self.population is None:
            self.population = deque() if self.reason else self.trials.start_population()
        if not self.population:
            raise StopIteration
        return self.population.popleft()

    def finish_leftover_trials(self) -> None:
        """End or pause each trial that an earlier driver left running and that must not continue.

        Call this before Ray Tune asks for trials.
        """
        if self._interrupted():
            self.stop("interrupted", State.RUNNING)
            return
        for number in list(self.search.interrupted):
            self._decide(TrialLeft(self.study_store.without_deleted_checkpoints(number)))
        # The earlier driver may have spent a budget and died before it stopped the sweep.
        self._check_limits()

    def _decide(self, event: DriverEvent) -> str | None:
        """Decide what follows from an event, and do it.

        Return the id of the trial that starts, if one does.
        """
        started = None
        for command in decide(self.driver, event, self.policy):
            started = self._carry_out(command)
        return started

    def _carry_out(self, command: DriverCommand) -> str | None:
        """Carry a command out. Return the id of the trial that it starts or resumes, if any."""
        match command:
            case Ask():
                trial = self.search.ask()
                return None if trial is None else self.trials.start(trial.number)
            case ResumeTrial():
                if command.promoted_at is not None:
                    self.trials.promote(command)
                return self.trials.resume(command.number)
            case StartNoMore():
                raise StopIteration
            case Continue():
                self.trials.let_continue(command)
            case Exploit():
                self.trials.exploit(command)
            case PauseTrial():
                self.trials.pause(command)
            case End():
                self._end(command)
            case Refuse():
                self.refuse(command.error)
            case StopSweep():
                self.stop(command.reason, command.unfinished)
        return None

    def on_update(self, update: TrialUpdate) -> bool:
        """Record what happened to a trial, and decide what follows.

        Returns:
            False if the trial has ended or was paused.
        """
        number = int(update.trial)
        if number not in self.running:
            return False
        if update.events:
            self.study_store.append(*update.events)
        if update.end is not None and update.end.state is State.FAIL:
            error = update.end.error or ""
            check_disk_space(self.folder, error)
            check_store(self.folder, error)
            self._check_prefit()
        self._decide(update)
        return number in self.running

    def poll(self) -> None:
        """Check budgets, commands, the pool and Ctrl-C.

        Ray Tune's adapter calls this in every round of Tune's loop.
        """
        self.study_store.sync()
        limits = self.space.limits
        if self._interrupted():
            self.stop("interrupted", State.RUNNING)
        elif limits.timeout is not None or limits.max_gpu_hours is not None or self.deadline:
            self._check_limits()
        self._check_prefit()
        if clock.monotonic() - self._status_time > STATUS_INTERVAL:
            self._status_time = clock.monotonic()
            if self._monitor.pool_was_restarted():
                self._restart_trials()
            if self._monitor.data_error is not None:
                self.stop("the data has changed", State.RUNNING)
            self.commands.poll()
            self._monitor.update_usage()
            if self._elastic:
                self._monitor.set_all_started(
                    self.reason is not None or self.driver.paused or not self._trials_left()
                )
            self.progress.usage = self._monitor.usage
            self._follow_cluster()
            self._publish_status(self.status())

    def _trials_left(self) -> bool:
        """Return whether this driver may still start or continue a trial."""
        return bool(self.population) or self.driver.trials_left(self.scheduler)

    def may_start_trials(self) -> bool:
        """Return whether a trial may still start or continue, now or after running ones end."""
        return self._trials_left() or self.driver.may_wait

    def _follow_cluster(self) -> None:
        """Change the number of trials that run at the same time if nodes have joined or left."""
        if self._slots_of is None or self._monitor.usage is None:
            return
        slots = self._slots_of(self._monitor.usage.total)
        if slots != self.driver.slots:
            log.info("up to %d trials run at the same time", slots)
            self.driver.slots = slots

    def _check_limits(self) -> None:
        """Stop the sweep if it has reached a limit of the space file and has trials left."""
        limit = None if self.reason else self.time_limits.reached(clock.monotonic())
        active = self.progress.usage.trials if self.progress.usage else {}
        spent = {trial: usage.worker_seconds for trial, usage in active.items()}
        self._decide(LimitsChecked(limit, spent))

    def why_no_training(self) -> str | None:
        """Return why the winner must not be trained on all rows now; None if it may be."""
        if self.reason == "interrupted" or self._interrupted():
            return INTERRUPTED
        deadline = self.deadline
        if deadline is not None and clock.monotonic() > deadline.training_ends:
            return "--minutes leaves too little time"
        return None

    def refuse(self, error: InputError) -> None:
        """End the sweep because of an error in the space file that only a running trial shows."""
        self.refused = self.refused or error
        self.stop("bad input", State.RUNNING)

    def _check_prefit(self) -> None:
        """End the sweep if a preprocessing chain could not be fitted: this concerns all trials."""
        error = self._monitor.prefit_error()
        if error is not None and not self.search.budget.ended:
            self.refuse(error)

    def _restart_trials(self) -> None:
        """Continue all running trials in a pool that Ray has restarted."""
        self.trials.count_pool_death()
        log.warning(
            "the process of the worker pool died and was restarted; %d trials continue from their "
            "checkpoints",
            len(self.running),
        )
        self._configure_pool()
        if self.reason is not None:
            self.pool.interrupt.remote(self.driver.unfinished)
        self.trials.restart_running()

    def on_trial_lost(self, trial: str) -> None:
        """Record a trial as failed, because the pool raised an error when Ray Tune asked for it."""
        if int(trial) in self.running:
            self.pool.stop.remote(trial)
            error = "the worker pool could not say what happened to the trial; see sweep.log"
            self._end(End(int(trial), State.FAIL, error))

    @property
    def data_error(self) -> InputError | None:
        """Error that ended the sweep because its data has changed; None if it has not."""
        return self._monitor.data_error

    # End trials and the sweep

    def _end(self, end: End) -> None:
        """Record the end of a trial, and check whether the sweep ends now."""
        self.driver.stop_requested.discard(end.number)
        self.trials.end(end)
        if end.state is not State.RUNNING:
            self._check_limits()

    def stop_trial(self, number: int) -> None:
        """End one trial, because the user has asked for it.

        The trial may be running, paused or interrupted.

        A running trial ends when the pool has returned the trial's last reports. If the pool has
        been restarted meanwhile, call this method again.
        """
        if number in self.running:
            self.driver.stop_requested.add(number)
            self.pool.stop.remote(format_trial_id(number))
        else:
            self._end(End(number, State.PRUNED, reason=STOPPED))

    def stop(self, reason: str, state: State) -> None:
        """Start no more trials, and end the running trials.

        Args:
            reason: Reason why the sweep stops.
            state: State to record for the trials that are running. With RUNNING, a resume continues
                them; with PRUNED, they have ended.
        """
        if self.reason is None:
            self.commands.end_pause()
            self.driver.reason = reason
            self.driver.unfinished = state
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
                self._end(End(number, State.RUNNING))
            if self.driver.unfinished is State.PRUNED:
                for number in [*self.search.interrupted, *self.search.view.paused]:
                    reason = reason_of_stop(self.driver, number, self.policy)
                    self._end(End(number, State.PRUNED, reason=reason))
            self.study_store.sync()
        self._monitor.close()
        self.trials.close()

    def publish_stage(self, stage: str | None) -> None:
        """Publish the status of the sweep; see `status`."""
        self._publish_status(self.status(stage))

    def status(self, stage: str | None = None) -> SweepStatus:
        """Return the current status of the sweep.

        `stage` is the current phase if no trials run, such as "exporting the winner".
        """
        return dataclasses.replace(
            self.progress.status(self.reason, stage), paused=self.driver.paused
        )
