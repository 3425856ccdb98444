"""Carry out the commands that concern a single trial: start, continue, pause and end it.

Each change is first recorded in the study, which tells the scheduler, the live view and the
trackers. Then the change is sent to the worker pool.
"""

import logging
from collections import deque
from dataclasses import replace

from sweeps.checkpoints.cleaner import CheckpointCleaner
from sweeps.checkpoints.kept_predictions import PredictionKeeper
from sweeps.core import clock
from sweeps.core.errors import SweepsError
from sweeps.core.files.safe_names import loop_name
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.loop_context import UNREADABLE_LINE
from sweeps.core.resources import COSTS
from sweeps.core.text.command_hints import resume_command
from sweeps.core.trial import Report, State, format_trial_id
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import (
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialStarted,
)
from sweeps.study.states import TrialState
from sweeps.tracking import TrackerHub
from sweeps.tracking.earlier_events import concerns_trackers, rename_metrics

from .driver_commands import Continue, End, Exploit, PauseTrial, ResumeTrial
from .job_settings import keeps_predictions
from .ports import PoolHandle
from .progress import SweepProgress

log = logging.getLogger(__name__)

# After this many deaths of the worker pool in a row, without the end of a trial in between, the
# sweep ends.
MAX_POOL_DEATHS = 10


class TrialCommands:
    """Carries out commands about trials.

    Args:
        search: The sweep's search, which holds the study, the trial queue, the sampler and the
            scheduler.
        pool: Handle of the worker pool.
        trackers: Hub that receives the events of the trials.
        began: Start of the sweep by the monotonic clock, moved forward by the length of all breaks
            between runs.

    Attributes:
        progress: Running and ended trials, from which the live view is made.
        cleaner: Deletes checkpoints that need not be kept; None if the space file keeps all
            checkpoints.
        notes: Notes for the sweep's result about reports; see `notes_about`.
    """

    def __init__(self, search: SearchLoop, pool: PoolHandle, trackers: TrackerHub, began: float):
        self.progress = SweepProgress(search, began)
        self.notes: dict[str, str] = {}
        self._pool_deaths = 0  # since a trial last ended
        self._search = search
        self._store = search.store
        self._pool = pool
        self._trackers = trackers
        search.store.followers.append(self._follow)
        self._folder = SweepFolder(search.store.folder)
        policy = search.space.checkpoints
        self.cleaner = None if policy.all_stay else CheckpointCleaner(search.store, policy)
        self._predictions = None
        if keeps_predictions(search.space):
            self._predictions = PredictionKeeper(search.store, policy.predictions)

    def start(self, number: int) -> str:
        """Let the pool run a new trial, and return the trial's id."""
        return self._run(self._store.states[number])

    def start_population(self) -> deque[str]:
        """Start all trials of a population, and return their ids.

        The trials take turns on the workers.

        Interrupted trials come first, ordered by the step that they reached, the lowest first.
        """
        rungs = {n: self._store.states[n].decided_rung for n in self._search.interrupted}
        started = deque(self.resume(n) for n in sorted(rungs, key=lambda n: (rungs[n], n)))
        while (trial := self._search.ask()) is not None:
            started.append(self.start(trial.number))
        return started

    def _forget_interrupted(self, number: int) -> None:
        if number in self._search.interrupted:
            self._search.interrupted.remove(number)

    def resume(self, number: int) -> str:
        """Let the pool run an interrupted or paused trial again, and return the trial's id."""
        self._forget_interrupted(number)
        self._publish_start(number)
        return self._run(self._resumed_state(number))

    def _run(self, state: TrialState) -> str:
        """Let the pool run a trial, and return the trial's id."""
        self.progress.on_start(state.number)
        self._folder.trial(state.id).mkdir(parents=True, exist_ok=True)
        self._start_in_pool(state)
        self._store.sync()  # Meanwhile, the pool starts the trial.
        return state.id

    def _start_in_pool(self, state: TrialState) -> None:
        folder = str(self._folder.trial(state.id))
        self._pool.start.remote(state, folder, self._search.row_steps(state.trial))

    def _resumed_state(self, number: int) -> TrialState:
        """Return the state of a trial that the pool runs again."""
        state = self._store.without_deleted_checkpoints(number)
        # The last driver or pool may have died before the driver heard of the first attempt.
        return state.changed(attempt=max(1, state.attempt))

    def _publish_start(self, number: int) -> None:
        """Tell the trackers that a trial continues."""
        trial = self._store.states[number].started.trial
        self._trackers.publish(TrialStarted(clock.time(), number, trial))

    def promote(self, command: ResumeTrial) -> None:
        """Record that a paused trial continues."""
        assert command.promoted_at is not None
        self._store.append(TrialDecided(clock.time(), command.number, command.promoted_at))

    def let_continue(self, command: Continue) -> None:
        """Let a trial that waits at a rung continue."""
        if command.is_new:
            self._store.append(TrialDecided(clock.time(), command.number, command.rung))
        if command.number in self.progress.running:
            self._pool.answer.remote(format_trial_id(command.number), command.rung, True)
            # The record survives the death of the driver. Other trials of a population copy this
            # one, so it must also survive a power failure.
            if self._search.scheduler.perturbs:
                self._store.sync()

    def exploit(self, command: Exploit) -> None:
        """Let a trial continue from a donor's checkpoint with other parameters.

        If the donor's checkpoint does not exist any more, the trial continues unchanged.
        """
        event = self._search.exploit(command.number, command.donor, command.rung)
        if event is None:
            self.let_continue(Continue(command.number, command.rung))
            return
        self._store.append(event)
        if command.number in self.progress.running:
            self._pool.renew.remote(
                command.rung, self._store.without_deleted_checkpoints(command.number)
            )
            self._store.sync()

    def pause(self, command: PauseTrial) -> None:
        """Let a trial give up its workers, after the pause has been recorded."""
        self._forget_interrupted(command.number)
        state = self._store.append(TrialPaused(clock.time(), command.number, command.rung))
        if command.number in self.progress.running:
            self.progress.on_end(state)
            self._pool.forget.remote(state.id)

    def count_pool_death(self) -> None:
        """Count a death of the pool's process.

        Raises:
            SweepsError: The process has died `MAX_POOL_DEATHS` times, and no trial ended in
                between.
        """
        self._pool_deaths += 1
        if self._pool_deaths == MAX_POOL_DEATHS:
            count = f"{MAX_POOL_DEATHS} times, and no trial ended in between"
            raise SweepsError(
                f"the process of the worker pool died {count}; find the cause in sweep.log, then "
                f"run `{resume_command(self._store.folder)}`"
            )

    def restart_running(self) -> None:
        """Pass all running trials to a pool that Ray has restarted.

        They continue from their checkpoints.

        The lost attempts do not count towards `limits.max_failures`, because no trial can have
        caused the restart.
        """
        for number in self.progress.running:
            self._start_in_pool(self._resumed_state(number))

    def end(self, command: End) -> None:
        """Record the end of a trial, and let the pool forget the trial.

        With the state RUNNING, the trial was interrupted and can be resumed.
        """
        number = command.number
        self._forget_interrupted(number)
        self._pool_deaths = 0
        if number not in self.progress.running:
            self._publish_start(number)
            self.progress.on_start(number)
        state = self._store.end(number, command.state, command.error, command.reason, command.final)
        self.progress.on_end(state)
        if state.error is not None:
            log.warning("trial %s failed:\n%s", state.id, state.error)
        self._pool.forget.remote(state.id)
        if self._predictions is not None:
            self._predictions.trial_ended(number, state.result)
        if command.state is not State.RUNNING and self.cleaner is not None:
            # After a power failure, the study must not name a checkpoint that was deleted.
            self._store.sync()
            self.cleaner.trial_ended(state)

    def close(self) -> None:
        """Delete all checkpoints and predictions that need not be kept, and wait for this."""
        if self._predictions is not None:
            self._predictions.close()
        if self.cleaner is not None:
            self.cleaner.close()

    def _follow(self, event: TrialEvent, state: TrialState) -> None:
        """Tell the live view and the trackers about a recorded event."""
        if isinstance(event, TrialReported) and event.reports:
            self.progress.on_reports(state)
            for report in event.reports:
                self.notes = notes_about(state.id, report) | self.notes  # earlier notes stay
        if isinstance(event, TrialEnded):
            event = replace(event, result=state.result)
        if concerns_trackers(event):
            self._trackers.publish(rename_metrics(event))


def notes_about(trial: str, report: Report) -> dict[str, str]:
    """Return notes about what is unusual in a report.

    Notes with the same key say the same about another trial or step.

    Args:
        trial: The trial's id.
        report: The report.
    """
    notes = {}
    for name in report.metrics:
        if (logged := loop_name(name)) != name:
            meaning = ", which objectives and constraints mean" if name in COSTS else ""
            notes[name] = (
                f"the loop's metric `{name}` is logged as `{logged}`, because sweeps has its own "
                f"`{name}`{meaning}"
            )
    if UNREADABLE_LINE in report.metrics:
        notes[UNREADABLE_LINE] = (
            f"trial {trial} printed a report that cannot be read, so step {report.step} has the "
            "value nan; the trial's log shows the line"
        )
    return notes
