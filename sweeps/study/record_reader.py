"""Read a study without writing to it. Another process may write to the study at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.trial import Result, State
from sweeps.space.sections.search_models import Repeats

from . import storage, transitions
from .choice import TrialChoice, recorded_choice
from .event_records import (
    ENQUEUED,
    OBJECTIVES_ATTRIBUTE,
    PAUSED,
    REPEAT_OF,
    SWEEP_PAUSED,
    batches_of,
    has_started,
    is_given,
    read_batch,
    with_batch,
)
from .events import TrialEnded, TrialEvent, TrialPaused, TrialStarted
from .objectives import Objectives
from .repeats import Configurations, known_total
from .states import TrialState

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Reason in the record of a trial that `sweeps stop SWEEP TRIAL` stopped.
STOPPED = "stopped by the command `sweeps stop`"


@dataclass(frozen=True)
class Record:
    """A study as read from a sweep's folder.

    Attributes:
        objectives: Objectives and constraints of the sweep.
        trials: All trials that have started, and the initial points with known results, in the
            order of their numbers.
        data: Fingerprint of the data; None if the data has not been read yet.
        repeats: Number of trials of each configuration, and the aggregate of their values.
        stops: True if the scheduler may stop trials.
        paused: True if `sweeps pause` has paused the sweep. If no process runs the sweep, this says
            that the last process had been paused.
        choice: The choice of the exported trial; None if it is the best trial.
    """

    objectives: Objectives
    trials: tuple[TrialState, ...]
    data: str | None = None
    repeats: Repeats = Repeats()  # noqa: RUF009 - frozen
    stops: bool = True
    paused: bool = False
    choice: TrialChoice | None = None

    @property
    def goal(self) -> str:
        """Goal of the first objective: "minimize" or "maximize"."""
        return self.objectives.objectives[0].goal

    @property
    def metric(self) -> str:
        """Name of the first objective's metric."""
        return self.objectives.objectives[0].metric

    @property
    def ran(self) -> tuple[TrialState, ...]:
        """The trials that were run: all trials except initial points with known results."""
        return tuple(t for t in self.trials if not t.result.given)

    @property
    def configurations(self) -> Configurations:
        """The trials, grouped by configuration."""
        return Configurations.of(
            ((t.number, t.trial.repeat_of, t.result) for t in self.trials),
            self.repeats,
            self.choice,
        )

    def total(self, limit: int) -> int:
        """Return the expected number of trials of the sweep; see `repeats.known_total`.

        Args:
            limit: `limits.max_trials`.
        """
        # Number of first trials in each state
        counts = Counter(t.result.state for t in self.ran if t.trial.repeat_of is None)
        return known_total(
            limit,
            complete=counts[State.COMPLETE],
            incomplete=counts[State.PRUNED] + counts[State.FAIL],
            repeats=self.repeats,
            scheduler_stops=self.stops,
        )

    @property
    def front(self) -> list[TrialState]:
        """The trials of the Pareto front (see `ranking.front`); [] for a single objective."""
        by_number = {t.number: t for t in self.trials}
        return [by_number[number] for number in self.configurations.front(self.objectives.goals)]

    @property
    def best(self) -> TrialState | None:
        """The best trial of the best configuration.

        Return None if no trial has a value, or if there are several objectives.
        """
        number = self.configurations.winner(self.objectives.goals)
        return None if number is None else next(t for t in self.trials if t.number == number)

    @property
    def best_result(self) -> Result | None:
        """Result of the best configuration; None if there is no best trial."""
        best = self.best
        return None if best is None else self.configurations.results()[best.trial.first_trial]

    @property
    def best_value(self) -> float | None:
        """Value of the best configuration; None if there is no best trial."""
        result = self.best_result
        return None if result is None else result.value


def repeat_of(t: FrozenTrial) -> int | None:
    """Return the number of the trial that `t` repeats.

    Return None if `t` is the first trial of a configuration.
    """
    return t.user_attrs.get(REPEAT_OF)


def is_enqueued(t: FrozenTrial) -> bool:
    """Return True if `sweeps enqueue` added a trial."""
    return ENQUEUED in t.user_attrs


def fixed_keys(t: FrozenTrial) -> dict[str, Any]:
    """Return the keys that were fixed when a trial was enqueued, by dimension.

    {} if none were fixed.
    """
    keys: dict[str, Any] = t.system_attrs.get("fixed_params", {})
    return keys


def paused_at(t: FrozenTrial) -> int | None:
    """Return the rung at which a trial is paused; None if the trial is not paused."""
    return t.user_attrs.get(PAUSED)


def steps_of(t: FrozenTrial) -> int:
    """Return the step of the last report of a trial; 0 if it has none."""
    reported = [
        event["reports"][-1]["step"]
        for batch in batches_of(t.user_attrs)
        for event in batch["events"]
        if event.get("reports")
    ]
    return reported[-1] if reported else 0


class RecordReader:
    """Reads the study of a sweep's folder, also while another process writes to it.

    Later calls of `read` read only what is new.

    A study in a database is read from the start each time.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._study: Any = None
        self._inode: int | None = None  # of the journal, which a repair replaces
        self._states: dict[int, TrialState] = {}

    def read(self) -> Record | None:
        """Return the content of the study. See `read`, the function."""
        journal = storage.journal_in(self.folder)
        inode = journal.stat().st_ino if journal.is_file() else None
        if self._study is None or inode is None or inode != self._inode:
            self._study = _study(self.folder)
            self._states = {}
            self._inode = inode
        if self._study is None:
            return None
        objectives = _objectives(self._study)
        attributes = self._study.user_attrs
        if objectives is None:
            return None
        for t in self._study.get_trials(deepcopy=False):
            state = self._states.get(t.number)
            for batch in batches_of(t.user_attrs, state.batches if state else 0):
                state = with_batch(state, t.number, batch, objectives)
            if state is not None:
                self._states[t.number] = state
        return Record(
            objectives=objectives,
            trials=tuple(self._states[number] for number in sorted(self._states)),
            data=attributes.get("data"),
            repeats=Repeats(**attributes.get("repeats", {})),
            stops=attributes.get("stops", True),
            paused=bool(attributes.get(SWEEP_PAUSED)),
            choice=recorded_choice(attributes, len(self._states)),
        )


def read(folder: Path) -> Record | None:
    """Read the study of a sweep's folder. Another process may write to the study at the same time.

    Args:
        folder: The sweep's folder.

    Returns:
        The content of the study. None if there is no study yet, or if the objectives are not
        recorded in it yet.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    return RecordReader(folder).read()


def events_of(folder: Path, skip: Container[int] = ()) -> Iterator[TrialEvent]:
    """Yield the events of the trials of a sweep, one trial after the other.

    The last event of a trial is `TrialPaused` or `TrialEnded`, also if the trial was interrupted.
    Initial points that have known results are left out.

    Args:
        folder: The sweep's folder.
        skip: Numbers of the trials to skip.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    study = _study(folder)
    objectives = None if study is None else _objectives(study)
    if objectives is None:
        return
    for t in study.get_trials(deepcopy=False):
        if t.number not in skip and has_started(t) and not is_given(t):
            yield from _events_of_trial(t, objectives)


def _events_of_trial(t: FrozenTrial, objectives: Objectives) -> Iterator[TrialEvent]:
    state: TrialState | None = None
    for batch in batches_of(t.user_attrs):
        for event in read_batch(t.number, batch).events:
            if isinstance(event, TrialStarted):
                state = transitions.initial_state(event, objectives)
            else:
                assert state is not None
                state = transitions.apply(state, event)
            if not isinstance(event, TrialPaused | TrialEnded):
                yield event
    assert state is not None
    # `event` is the trial's last event.
    if state.paused_at is not None:
        yield TrialPaused(event.time, t.number, state.paused_at)
    else:
        yield TrialEnded(event.time, t.number, state.result)


def copy_study(folder: Path) -> Any:
    """Copy the Optuna study of a sweep into memory. Changes to the copy do not affect the sweep.

    Args:
        folder: The sweep's folder.

    Returns:
        The copy, an `optuna.Study`; None if there is no study yet.

    Raises:
        DamagedStudy: The study is damaged, or lacks trials that the sweep's result includes.
        InputError: The study is in a database that cannot be reached.
    """
    if (study := _study(folder)) is None:
        return None
    import optuna

    copy = optuna.create_study(study_name=study.study_name, directions=study.directions)
    for key, value in study.user_attrs.items():
        copy.set_user_attr(key, value)
    copy.add_trials(study.get_trials(deepcopy=False))
    return copy


def _study(folder: Path) -> Any:
    """Open the Optuna study of a sweep's folder for reading; None if there is no study yet."""
    journal = storage.journal_in(folder)
    place = storage.place_of(folder)
    if place is None and (not journal.is_file() or not journal.stat().st_size):
        storage.check_trial_count(folder)
        return None
    import optuna

    from .journal import JournalReader

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = JournalReader(journal).storage() if place is None else storage.connect(place[0])
    names = [
        study.study_name
        for study in opened.get_all_studies()
        if place is None or study.study_name == place[1]
    ]
    study = optuna.load_study(study_name=names[0], storage=opened) if names else None
    storage.check_trial_count(
        folder, lambda: study.get_trials(deepcopy=False) if study is not None else []
    )
    return study


def _objectives(study: Any) -> Objectives | None:
    """Return the objectives in a study; None if the driver has not recorded them yet."""
    content = study.user_attrs.get(OBJECTIVES_ATTRIBUTE)
    return None if content is None else Objectives.from_json(content)
