"""Start, continue, pause and end trials.

Each change is passed on to the study, the worker pool, the trackers and the live view.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from sweeps.checkpoints.cleaner import CheckpointCleaner
from sweeps.checkpoints.retention import RetentionPolicy
from sweeps.controller.ports import PoolHandle
from sweeps.controller.progress import SweepProgress
from sweeps.core.resources import COSTS
from sweeps.core.safe_names import loop_name
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import UNREADABLE_LINE, Action, Report, Result, State, Trial
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialEnded, TrialEvent, TrialStarted
from sweeps.study.states import TrialState
from sweeps.tracking import TrackerHub
from sweeps.tracking.history import concerns_trackers, with_logged_names

log = logging.getLogger(__name__)


class TrialLifecycle:
    """Moves trials from one state to the next.

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
        self._search = search
        self._store = search.store
        self._pool = pool
        self._trackers = trackers
        search.publish = self._publish
        self._folder = SweepFolder(search.store.folder)
        limits = search.space.checkpoints
        policy = RetentionPolicy(limits.per_trial, limits.top, limits.max_disk)
        self.cleaner = None if limits.all_stay else CheckpointCleaner.of_study(search.store, policy)

    def start(self, state: TrialState) -> str:
        """Record the start of a trial, let the pool run the trial, and return the trial's id."""
        self._folder.trial(state.id).mkdir(parents=True, exist_ok=True)
        self.record_start(state.trial)
        self._start_in_pool(state)
        self._store.sync()  # Meanwhile, the pool starts the trial.
        return state.id

    def _start_in_pool(self, state: TrialState) -> None:
        folder = str(self._folder.trial(state.id))
        self._pool.start.remote(state, folder, self._search.row_steps(state.trial))

    def resume(self, number: int) -> str:
        """Continue an interrupted or paused trial, and return its id."""
        return self.start(self._continued(number))

    def _continued(self, number: int) -> TrialState:
        """Return the state of a trial that the pool runs again."""
        state = self._store.existing(number)
        # The last driver or pool may have died before the driver heard of the first attempt.
        return state.changed(attempt=max(1, state.attempt))

    def record_start(self, trial: Trial) -> None:
        """Tell the trackers that a trial has started, and add the trial to the running trials."""
        number = trial.number
        self._trackers.publish(
            TrialStarted(time.time(), number, self._search.trial_at_start(number))
        )
        self.progress.on_start(number)

    def record(self, events: Sequence[TrialEvent]) -> None:
        """Record what happened to a trial in the pool."""
        known = len(self._store.states[events[0].number].own_reports)
        state = self._search.append(*events)
        new = state.own_reports[known:]
        for report in new:
            self.notes = notes_about(state.id, report) | self.notes
        if new:
            self.progress.on_reports(state)

    def pause(self, trial: str) -> None:
        """Let a trial give up its workers, after the pause has been recorded.

        The trial can continue later from its checkpoint; see `resume`.
        """
        self.progress.on_end(self._store.states[int(trial)])
        self._pool.forget.remote(trial)

    def perturb_running(self, trial: str, step: int) -> None:
        """Let the scheduler decide about a trial that waits at a perturbation step.

        Send the decision to the pool. The trial then continues: either unchanged, or from another
        trial's checkpoint with new parameters.
        """
        number = int(trial)
        if self._search.decide(number, step).action is Action.EXPLOIT:
            self._pool.renew.remote(step, self._store.existing(number))
        else:
            self._pool.answer.remote(trial, step, True)
        self._store.sync()

    def restart_running(self) -> None:
        """Pass all running trials to a pool that Ray has restarted.

        They continue from their checkpoints.

        The lost attempts do not count towards `limits.max_failures`, because no trial can have
        caused the restart.
        """
        for number in self.progress.running:
            self._start_in_pool(self._continued(number))

    def end(
        self,
        trial: str,
        state: State,
        error: str | None,
        reason: str | None,
        final: dict[str, float] | None,
    ) -> None:
        """Record the end of a trial, and let the pool forget the trial.

        Args:
            trial: The trial's id.
            state: State of the trial at its end. It is RUNNING if the trial was interrupted and can
                be resumed.
            error: Error with which the trial failed; None if it did not fail.
            reason: Reason why the trial was stopped; None if it was not stopped.
            final: Metrics of the finished model; None if the loop reported none.
        """
        number = int(trial)
        ended = self._store.states[number].trial
        result = self._search.end(number, state, error, reason, final)
        self.progress.on_end(self._store.states[number])
        if result.error is not None:
            log.warning("trial %s failed:\n%s", trial, result.error)
        self._pool.forget.remote(trial)
        if state is not State.RUNNING and self.cleaner is not None:
            self._clean_after(self.cleaner, ended, result)

    def _clean_after(self, cleaner: CheckpointCleaner, ended: Trial, result: Result) -> None:
        # After a power failure, the study must not name a checkpoint that the cleaner has deleted.
        self._store.sync()
        latest = self._store.states[ended.number].checkpoint
        cleaner.trial_ended(
            (ended.number, ended.repeat_of, result, latest.name if latest else None)
        )

    def close(self) -> None:
        """Delete all checkpoints that need not be kept, and wait until they are deleted."""
        if self.cleaner is not None:
            self.cleaner.close()

    def _publish(self, event: TrialEvent, state: TrialState) -> None:
        """Tell the trackers about a recorded event."""
        if isinstance(event, TrialEnded):
            event = replace(event, result=state.result)
        if concerns_trackers(event):
            self._trackers.publish(with_logged_names(event))


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
