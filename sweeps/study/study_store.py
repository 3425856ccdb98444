"""Write and read the study of a sweep. The study is the only complete record of the sweep's trials.

The study has the events of each trial (`sweeps.study.events`) as user attributes of Optuna's trial;
see `event_records`. Optuna's own samplers read the parameters, the intermediate values, the
constraints and the state of Optuna's trial. `StudyStore` computes these from the events, and writes
them after the events.
"""

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from sweeps.core import clock
from sweeps.core.files.checkpoint_files import (
    checkpoint_exists,
    checkpoint_names,
    checkpoint_root,
    newest_checkpoints,
)
from sweeps.core.host.thread_pools import single_threaded
from sweeps.core.trial import Checkpoint, Result, State, Trial
from sweeps.space import Space
from sweeps.space.sections.search_models import InitialPoint

from . import event_records, ranking, record_reader, storage, trial_building
from .choice import CHOICE, TrialChoice, recorded_choice
from .distributions import distribution_of
from .ending import ending
from .event_records import ENQUEUED, EVENTS_PREFIX, OBJECTIVES_ATTRIBUTE, PAUSED, SWEEP_PAUSED
from .events import TrialEvent, TrialStarted
from .objectives import Objectives
from .repeats import Configurations
from .states import TrialState
from .sweep_state import SweepState


class StudyStore:
    """Record the starts, reports and ends of trials, and read them back.

    Args:
        folder: Folder of the sweep.
        space: The search space.
        rungs: Steps at which reported values are also recorded as Optuna's intermediate values.
            Needed only to record reports.

    Attributes:
        folder, space: The arguments.
        study: The Optuna study.
        objectives: Objectives and constraints of the sweep.
        minimize: True if smaller values of the leading metric (see `Objectives.metric`) are better.
        clock: Function that returns the wall time of the sweep in seconds, summed over all its
            drivers. Every batch of events stores this time.
        spent: Wall time of the sweep when the study was opened: the latest time in its events.
        sweep: The states of the trials, and the spent budget.
        followers: Functions that are called after each record, with an event and the state of its
            trial. The state is the one after all events that were recorded together.
        sync: Function that flushes all records to the disk.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The database cannot be reached.
    """

    def __init__(self, folder: Path, space: Space, rungs: Collection[int] = ()):
        self.folder = folder
        self.space = space
        # A range may be long, and finds a number as fast as a set.
        self._rungs = rungs if isinstance(rungs, range) else frozenset(rungs)
        self.objectives = Objectives.from_space(space)
        self.minimize = self.objectives.minimize
        # Optuna accepts intermediate values only for a study with a single objective.
        self._takes_last_value = (
            len(space.objectives) == 1 and self.objectives.metric == space.objective.metric
        )
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened, name, self.sync = storage.open_for_writing(folder)
            self.study = optuna.create_study(
                storage=opened,
                study_name=name or space.name,
                directions=[objective.goal for objective in space.objectives],
                load_if_exists=True,
            )
            self.study.set_user_attr(OBJECTIVES_ATTRIBUTE, self.objectives.to_json())
            self.study.set_user_attr("repeats", dataclasses.asdict(space.repeats))
        self.clock: Callable[[], float] = lambda: self.spent
        self.spent = 0.0
        self.followers: list[Callable[[TrialEvent, TrialState], None]] = []
        self._open: dict[int, optuna.Trial] = {}
        self._restore()

    def _restore(self) -> None:
        """Read the states of all trials, and write what Optuna's open trials lack.

        An earlier driver may have died after it wrote a batch of events, and before it wrote what
        Optuna reads of them.
        """
        states = []
        for t in self.trials():
            state = event_records.state_of(t, self.objectives)
            if state is None:
                continue
            if not state.has_ended:
                state = trial_building.complete(self.space, state)
            states.append(state)
            self.spent = max(self.spent, state.at)
            if not t.state.is_finished():
                self._open[t.number] = optuna.Trial(self.study, t._trial_id)
                known = t.intermediate_values
                missing = [pair for pair in state.compared if pair[0] not in known]
                self._write_to_optuna(state, missing, record_reader.paused_at(t))
        self.sweep = SweepState(self.objectives, self.space.repeats, states)

    @property
    def states(self) -> dict[int, TrialState]:
        """State of each started trial, by number."""
        return self.sweep.trials

    # Write

    def record_comparisons(self, compares: bool) -> None:
        """Record whether the scheduler compares trials, and so may stop them early."""
        self.study.set_user_attr("stops", compares)

    def record_sweep_pause(self, paused: bool) -> None:
        """Record whether the sweep is paused, in which case no trials start."""
        if paused != self.study.user_attrs.get(SWEEP_PAUSED, False):
            self.study.set_user_attr(SWEEP_PAUSED, paused)
            self.sync()

    def enqueue(self, keys: Mapping[str, Any], command: str) -> FrozenTrial:
        """Create a trial that starts later, with fixed keys for some of its dimensions.

        Args:
            keys: The fixed keys, by dimension.
            command: Id of the command that enqueues the trial.
        """
        self.study.enqueue_trial(dict(keys), {ENQUEUED: command})
        self.sync()
        return self.trials()[-1]

    def enqueued(self, command: str) -> int | None:
        """Return the number of the trial that a command has enqueued; None if there is none."""
        return next(
            (t.number for t in self.trials() if t.user_attrs.get(ENQUEUED) == command), None
        )

    def add_given_points(self) -> None:
        """Record the initial points with known results as COMPLETE trials.

        Points that are already recorded are skipped.
        """
        recorded = sum(state.started.given is not None for state in self.states.values())
        given_points = [p for p in self.space.search.initial_points if p.values is not None]
        for point in given_points[recorded:]:
            self._add_given_point(point)
        self.sync()

    def _add_given_point(self, point: InitialPoint) -> None:
        """Record one initial point with a known result; see `add_given_points`."""
        number = len(self.trials())
        trial = trial_building.build_trial(
            self.space, number, lambda dimension: point.keys[dimension.name]
        )
        dimensions = {dimension.name: dimension for dimension in self.space.dimensions}
        keys = {name: point.keys[name] for name in trial.labels}  # keys of the active dimensions
        event = TrialStarted(clock.time(), number, trial, keys, given=point.values)
        batch = event_records.batch_of([event], self.clock())
        given = optuna.trial.create_trial(
            params=keys,
            distributions={name: distribution_of(dimensions[name]) for name in keys},
            values=point.values,
            user_attrs={f"{EVENTS_PREFIX}0": batch},
        )
        self.study.add_trial(given)
        self.sweep.apply(event)

    def start(self, trial_to_start: optuna.Trial, event: TrialStarted) -> TrialState:
        """Record the start of a trial.

        Args:
            trial_to_start: The trial in the Optuna study.
            event: The start.
        """
        self._open[event.number] = trial_to_start
        return self.append(event)

    def append(self, *events: TrialEvent) -> TrialState:
        """Record events of one trial in one batch, and write what Optuna reads of them.

        Args:
            events: The events, in order; at least one.

        Returns:
            The state of the trial after the events.
        """
        number = events[0].number
        before = self.states.get(number)
        trial = self._open[number]
        batch = event_records.batch_of(events, self.clock())
        # `set_user_attr` of the trial would also keep the batch in the trial.
        name = f"{EVENTS_PREFIX}{before.batches if before else 0}"
        self.study._storage.set_trial_user_attr(trial._trial_id, name, batch)
        for event in events:
            after = self.sweep.apply(event)
        after = after.changed(at=batch["at"], batches=after.batches + 1)
        self.states[number] = after
        if before is None:
            self._write_to_optuna(after, after.compared, paused_at=None)
        else:
            new = after.compared[len(before.compared) :]
            self._write_to_optuna(after, new, before.paused_at)
        for event in events:
            for follow in self.followers:
                follow(event, after)
        return after

    @single_threaded()
    def end(
        self,
        number: int,
        state: State,
        error: str | None = None,
        reason: str | None = None,
        final: Mapping[str, float] | None = None,
    ) -> TrialState:
        """Record the end of a trial, and return its state after the end.

        The arguments are those of `ending`. With the state RUNNING, the trial was interrupted. The
        followers hear of it, but it is not recorded, so that a later driver can resume the trial.
        """
        before = self.states[number]
        event = ending(before, clock.time(), state, error, reason, final)
        if event.result.state is not State.RUNNING:
            return self.append(event)
        for follow in self.followers:
            follow(event, before)
        return before

    def _write_to_optuna(
        self, state: TrialState, compared: Iterable[tuple[int, float]], paused_at: int | None
    ) -> None:
        """Write what Optuna and its samplers read of a trial.

        Args:
            state: The trial.
            compared: The elements of `state.compared` that may be missing in Optuna's trial.
            paused_at: The rung at which the trial is paused according to Optuna's trial.
        """
        trial = self._open[state.number]
        for step, value in compared:
            if step in self._rungs and state.trial.repeat_of is None:
                self.study._storage.set_trial_intermediate_value(trial._trial_id, step, value)
        if state.paused_at != paused_at:
            trial.set_user_attr(PAUSED, state.paused_at)
        if state.has_ended:
            self._tell(state, trial)
            del self._open[state.number]

    def _tell(self, state: TrialState, trial: optuna.Trial) -> None:
        """Tell Optuna that a trial has ended."""
        result = state.result
        if state.state is State.FAIL:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.study.tell(trial, state=OptunaState.FAIL)
            return
        for name, violation in self.objectives.violations(result.metrics).items():
            trial.set_constraint(name, violation)
        if state.state is State.COMPLETE:
            values = [value for value in result.values if value is not None]
            self.study.tell(trial, values, state=OptunaState.COMPLETE)
            return
        if self._takes_last_value and state.trial.repeat_of is None and state.compared:
            step, value = state.compared[-1]
            if step not in self._rungs:
                self.study._storage.set_trial_intermediate_value(trial._trial_id, step, value)
        self.study.tell(trial, state=OptunaState.PRUNED)

    # Read

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study as Optuna's frozen trials.

        The frozen trials are not copies, so do not change them.
        """
        return self.study.get_trials(deepcopy=False)

    def trial(self, number: int) -> Trial:
        """Return a recorded trial, with its current parameters."""
        return trial_building.recorded_trial(self.space, self.states[number])

    def without_deleted_checkpoints(self, number: int) -> TrialState:
        """Return the state of a trial without the checkpoints that do not exist.

        Somebody may have deleted them.
        """
        state = self.states[number]
        root = checkpoint_root(self.folder, state.id)

        def existing(saved: Checkpoint | None) -> Checkpoint | None:
            return saved if saved and checkpoint_exists(f"{root}/{saved.name}") else None

        return state.changed(checkpoint=existing(state.checkpoint), best=existing(state.best))

    def checkpoints(self) -> dict[str, set[str]]:
        """Return the names of the checkpoints to keep for each ended trial, by trial id.

        These are the best and the latest recorded checkpoint. If `checkpoints.per_trial` is N > 2,
        they are the best and the N - 1 newest.
        """
        return {
            state.id: {saved.name for saved in (state.best, state.checkpoint) if saved}
            | self._latest_names(state)
            for state in self.states.values()
            if state.has_ended
        }

    def _latest_names(self, state: TrialState) -> set[str]:
        """Return the names of a trial's newest checkpoints.

        The set is empty unless `checkpoints.per_trial` is above 2.
        """
        count = self.space.checkpoints.per_trial - 1
        if count < 2 or state.checkpoint is None:
            return set()
        names = checkpoint_names(checkpoint_root(self.folder, state.id))
        return set(newest_checkpoints(names, state.checkpoint.name, count))

    @property
    def data(self) -> str | None:
        """Fingerprint of the data when it was first read for the sweep.

        Return None if the data has not been read yet.
        """
        return self.study.user_attrs.get("data")

    def record_data(self, fingerprint: str) -> None:
        """Record the fingerprint of the data, unless the study already has one."""
        if self.data is None:
            self.study.set_user_attr("data", fingerprint)

    def results(self) -> dict[int, Result]:
        """Return the result of every started trial, by number, in the order of the numbers."""
        return {number: self.states[number].result for number in sorted(self.states)}

    def configurations(self) -> Configurations:
        """Return the trials, grouped by configuration."""
        results = self.results().items()
        return Configurations.of(
            ((number, self.states[number].trial.repeat_of, result) for number, result in results),
            self.space.repeats,
            self.choice,
        )

    @property
    def choice(self) -> TrialChoice | None:
        """The recorded choice of the exported trial; see `choice.recorded_choice`."""
        return recorded_choice(self.study.user_attrs, len(self.states))

    def record_choice(self, choice: TrialChoice) -> None:
        """Record the choice of the exported trial."""
        self.study.set_user_attr(CHOICE, choice.to_json())
        self.sync()

    def winner(self) -> int | None:
        """Return the number of the sweep's best trial, or of the trial that was chosen.

        Return None if no trial has a value, or if there are several objectives.
        """
        return self.configurations().winner(self.objectives.goals)

    def ranked(self) -> list[int]:
        """Return the numbers of the trials with the best trial's tier, the best trial first.

        For tiers, see `ranking.tier`. With several objectives, the trials of the Pareto front come
        first. The other trials of this tier follow, ordered by the first objective's value.
        """
        front = self.front()
        results = self.results()
        ranked = ranking.ranked(results.items(), self.objectives.goals[0])
        best_tier = ranking.tier(results[ranked[0]]) if ranked else None
        others = [n for n in ranked if n not in front and ranking.tier(results[n]) == best_tier]
        return [*front, *others]

    def front(self) -> list[int]:
        """Return the numbers of the first trials of the configurations on the Pareto front.

        [] for a single objective.
        """
        return self.configurations().front(self.objectives.goals)
