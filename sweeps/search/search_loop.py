"""Search of one sweep: combines the queue, the sampler and the scheduler.

The sampler, the queue and the view depend only on the study. A resumed search therefore suggests
the same trials as a search without interruption.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import warnings
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna

from sweeps.core import clock
from sweeps.core.host.thread_pools import single_threaded
from sweeps.core.trial import Trial
from sweeps.space import Space
from sweeps.study import record_reader, trial_building
from sweeps.study.budgets import BudgetState
from sweeps.study.events import TrialDecided, TrialEnded, TrialEvent, TrialStarted
from sweeps.study.states import TrialState
from sweeps.study.study_store import StudyStore

from . import earlier_trials
from .configurations import configuration_of
from .exploit import exploit_donor
from .optuna_asker import OptunaAsker
from .plugins import scheduler_of
from .samplers.cell_sampler import MODEL_ATTEMPTS, CellSampler
from .schedulers.scheduler import Scheduler, all_rungs, row_steps
from .schedulers.view import StudyView
from .trial_queue import QueueItem, TrialQueue

# Largest number of attempts to sample a configuration that is not tried.
MOST_ATTEMPTS = 100
# In this number of first attempts, the grid cell and the values of an initial point stay.
ATTEMPTS_IN_CELL = 50


class SearchLoop:
    """The search of one sweep.

    Args:
        store: Reads and writes the sweep's study.
        scheduler: The sweep's scheduler.
        sampler: The sweep's sampler.

    Attributes:
        store, scheduler, sampler: The arguments.
        space: The search space.
        queue: Queue of trials to start.
        view: The trials as the scheduler sees them.
        interrupted: Numbers of the trials that were running when an earlier driver ended. This
            driver must continue these trials.
    """

    def __init__(self, store: StudyStore, scheduler: Scheduler, sampler: CellSampler):
        self.store = store
        self.scheduler = scheduler
        self.sampler = sampler
        self.space = store.space
        store.study.sampler = sampler
        compares = bool(scheduler.rungs())
        store.record_comparisons(compares)
        self.queue = TrialQueue(
            self.space, scheduler_stops=compares, starting_points=sampler.starting_points
        )
        self.view = StudyView(self.space.search.seed, store.minimize)
        self.interrupted: deque[int] = deque()
        store.followers.append(self._follow)
        self._asker = OptunaAsker(store.study)
        store.add_given_points()
        self._replay()

    @classmethod
    @single_threaded()
    def open(cls, folder: Path, space: Space, scheduler: Scheduler | None = None) -> SearchLoop:
        """Open the study in a sweep's folder, and rebuild the state of the search from the study.

        Args:
            folder: The sweep's folder.
            space: The search space.
            scheduler: The scheduler of the space; None to build it.

        Raises:
            InputError: The algorithm needs a package that is not installed, a user-defined sampler
                or scheduler cannot be built, the database cannot be reached, or the saved trials of
                earlier sweeps cannot be read.
            DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        """
        earlier = earlier_trials.read(folder, space) if space.search.earlier else ()
        if scheduler is None:
            scheduler = scheduler_of(space.scheduler)
        sampler = CellSampler(space, earlier)
        return cls(StudyStore(folder, space, all_rungs(scheduler)), scheduler, sampler)

    @property
    def budget(self) -> BudgetState:
        """Spent budget and best results of the sweep."""
        return self.store.sweep.budget

    @property
    def to_run(self) -> int:
        """Upper bound of the number of trials still to run, with all their repeats.

        These are the interrupted, paused and queued trials. Running trials and the repeats that
        they may still add are not counted.
        """
        return (
            len(self.interrupted) + len(self.view.paused)
        ) * self.space.repeats.count + self.queue.remaining

    # Start

    @single_threaded()
    def ask(self) -> Trial | None:
        """Start the next trial of the queue, and record its start. Named after Optuna's method.

        Returns:
            The trial, or None if the queue is empty now. Running trials may still add repeats to
            the queue; see `TrialQueue.may_grow`.
        """
        item = self.queue.next(lambda number: self.store.trials()[number].params)
        if item is None:
            return None
        optuna_trial, trial = self._sample(item)
        self.queue.record_start(optuna_trial.params, item.repeat_of, item.existing)
        self.queue.record_tried(trial.labels)
        if record_reader.is_enqueued(optuna_trial._cached_frozen_trial):
            trial = dataclasses.replace(trial, enqueued=True)
        bracket = None
        if self.scheduler.bracket_count > 1:
            bracket = self.scheduler.bracket(self.space.search.seed, trial.number)
        keys = dict(optuna_trial.params)
        event = TrialStarted(clock.time(), trial.number, trial, keys, bracket)
        state = self.store.start(optuna_trial, event)
        if trial.repeat_of is None:
            self._show(state, trial)
            self.view.all_started = not self.queue.configurations_left
        return trial

    def _sample(self, item: QueueItem) -> tuple[optuna.Trial, Trial]:
        """Sample a configuration that is not tried, if one is left.

        If the first `MODEL_ATTEMPTS` suggestions are tried configurations, others are drawn at
        random: from the untried configurations if they are listed, and else by the sampler. After
        `ATTEMPTS_IN_CELL` attempts, an initial point that is tried already is replaced, but a trial
        that a user enqueued is not.
        """
        trial_id = self._asker.ask(item)
        untried = self.queue.untried
        for attempt in range(MOST_ATTEMPTS):
            optuna_trial = self._asker.draft(trial_id)
            cell = item.cell
            if attempt >= MODEL_ATTEMPTS and untried:
                seed = f"{self.space.search.seed}/{item.configurations_before}/{attempt}"
                cell = random.Random(seed).choice([*untried.values()])  # with all dimensions
            is_enqueued = record_reader.is_enqueued(optuna_trial._cached_frozen_trial)
            if attempt >= ATTEMPTS_IN_CELL and not is_enqueued:
                optuna_trial._fixed_params = {}
                cell = {} if untried is None else cell
            self.sampler.begin(cell, item.configurations_before, item.in_cell_before, attempt)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trial = trial_building.build_trial(
                    self.space,
                    optuna_trial.number,
                    functools.partial(self._asker.key, optuna_trial),
                    item.repeat_of,
                )
            tried = configuration_of(trial.labels) in self.queue.tried
            if item.repeat_of is not None or not tried:
                break
        self._asker.save(optuna_trial)
        return optuna_trial, trial

    def enqueue(self, keys: Mapping[str, Any], command: str) -> int | None:
        """Add a configuration that starts before all others, except those enqueued earlier.

        Repeats start before it.

        Args:
            keys: Keys of some of the dimensions. The sampler chooses the other keys.
            command: Id of the command. A driver may die after this call and before it deletes the
                command. The next driver then makes the same call again, and gets the trial that
                exists already.

        Returns:
            The number of the trial; None if the number of configurations has reached
            `limits.max_trials`.
        """
        if (known := self.store.enqueued(command)) is not None:
            return known
        if not self.queue.takes_configurations:
            return None
        trial = self.store.enqueue(keys, command)
        self._asker.add_interrupted(trial)
        self.queue.record_waiting(trial.number, None, keys)
        return trial.number

    def row_steps(self, trial: Trial) -> tuple[int, ...]:
        """Return the steps at which a trial trains; see `schedulers.scheduler.row_steps`."""
        return row_steps(self.scheduler, self.space.search.seed, trial)

    # Follow

    def _follow(self, event: TrialEvent, state: TrialState) -> None:
        """Show a recorded event to the scheduler and to the queue."""
        self.view.follow(state)
        ended = isinstance(event, TrialEnded) and state.has_ended
        if ended and state.trial.repeat_of is None:
            self.queue.record_end(state.number, state.state)

    def exploit(self, number: int, donor: int, rung: int) -> TrialDecided | None:
        """Return the perturbation of a trial; None if the trial must stay unchanged.

        Args:
            number: Number of the trial.
            donor: Number of the trial whose checkpoint and parameters are copied.
            rung: Step at which the trial waits.
        """
        states = self.store.states
        explore = self.scheduler.explorer(self.view, number, rung)
        folder = self.store.folder
        return exploit_donor(self.space, folder, states[number], states[donor], explore, rung)

    # Resume

    def _replay(self) -> None:
        """Rebuild the state of the search from the study."""
        for t in self.store.trials():
            enqueued = record_reader.is_enqueued(t)
            if self._asker.add_interrupted(t):
                self.queue.record_waiting(
                    t.number,
                    record_reader.repeat_of(t),
                    record_reader.fixed_keys(t) if enqueued else None,
                )
                continue
            state = self.store.states[t.number]
            self.queue.record_tried(state.labels)
            if state.started.given is not None:  # an initial point with a known result
                continue
            self.queue.record_start(t.params, state.trial.repeat_of, enqueued=enqueued)
            if state.trial.repeat_of is None:
                self._show(state, self.store.trial(t.number))
            if not state.has_ended and state.paused_at is None:
                self.interrupted.append(t.number)
        self.view.all_started = not self.queue.configurations_left
        for state in self.store.sweep.ended():
            if state.trial.repeat_of is None:
                self.queue.record_end(state.number, state.state)

    def _show(self, state: TrialState, trial: Trial) -> None:
        """Show a new configuration to the scheduler."""
        bracket = self.scheduler.bracket(self.space.search.seed, state.number)
        self.view.add(state, bracket, self._population(trial))

    def _population(self, trial: Trial) -> str:
        """Return a text that identifies the population of a trial.

        Return "" if the scheduler does not perturb trials.

        Trials of one population can use each other's checkpoints. These trials have the same
        preprocessor, the same data and the same grid values of `params`. Sampled `params` and the
        `scaling` may differ.
        """
        if not self.scheduler.perturbs:
            return ""
        grids = [
            d.name for d in self.space.dimensions if d.is_grid and not d.name.startswith("scaling.")
        ]
        return repr((trial.preprocessor, trial.data, [trial.labels.get(name) for name in grids]))
