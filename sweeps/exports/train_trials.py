"""Train trials of a sweep outside of its search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.controller.session import SweepSession
from sweeps.core import clock
from sweeps.core.errors import InputError, SweepFailed
from sweeps.core.files.stores import store_of
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.trial import Trial
from sweeps.data.checks.preflight import locate_problems
from sweeps.study.events import TrialStarted
from sweeps.study.objectives import Objectives
from sweeps.study.states import TrialState
from sweeps.study.transitions import apply_all, initial_state

if TYPE_CHECKING:
    from ray import ObjectRef

    from sweeps.data.splits.refit_rows import RefitRows
    from sweeps.execution.messages import Ended, TrialUpdate

# Seconds between two looks at whether the training must stop.
LOOK_EVERY = 0.2


def train_on_rows(
    session: SweepSession,
    trials: Sequence[Trial],
    rows: RefitRows,
    settings: Mapping[str, Any],
    why_stop: Callable[[], str | None],
    objectives: Objectives | None = None,
) -> tuple[dict[int, tuple[TrialState, Ended]], str | None]:
    """Train trials of the search again, without rungs, on other rows.

    Args:
        session: See `train_trials`. It cannot run trials of the search afterwards.
        trials: The trials.
        rows: The rows, and the folder for the files of the trials.
        settings: Further new values of fields of `Job`, by name.
        why_stop: See `train_trials`.
        objectives: See `train_trials`.

    Returns:
        See `train_trials`.

    Raises:
        InputError: The data has changed.
        SweepFailed: The processes of the sweep were lost.
    """
    import ray

    folder = Path(rows.folder)
    own = {
        "rungs": frozenset(),
        "required_steps": frozenset(),
        "keeps_predictions": False,
        "tracking": None,
        "store": store_of(folder),
    }
    try:
        ray.get(session.pool.prepare_refit.remote({**own, **settings}, rows))
        return train_trials(session, trials, folder, why_stop=why_stop, objectives=objectives)
    except ray.exceptions.RayError as e:
        names = ", ".join(trial.id for trial in trials)
        raise SweepFailed(f"trial {names} could not be trained again: {e}") from e


def train_trials(
    session: SweepSession,
    trials: Sequence[Trial],
    scratch: Path,
    trains_at: tuple[int, ...] = (),
    why_stop: Callable[[], str | None] = lambda: None,
    objectives: Objectives | None = None,
) -> tuple[dict[int, tuple[TrialState, Ended]], str | None]:
    """Train some trials side by side. A trial ends at its first rung.

    The rungs are in the session's `job`.

    Args:
        session: The session (Ray, worker pool and data actor) in which the trials run. It has
            loaded the data.
        trials: The trials.
        scratch: Folder for the files of the trials; see `rerun.scratch_folder`.
        trains_at: The steps at which the trials train, each time on more rows; see
            `search.schedulers.scheduler.row_steps`. () to train once on all rows.
        why_stop: Function that is called again and again. It returns a text if the training must
            stop before its end, and says why.
        objectives: The objectives and constraints of the trials; None for those of the session.

    Returns:
        The state and the end of each trial that has ended, by the trial's number. The second result
        is the text that `why_stop` returned; None if all trials have ended.

    Raises:
        InputError: The data has changed.
    """
    import ray

    pool = session.pool
    if any(trial.shape.most is not None for trial in trials):
        pool.set_all_started.remote(True)
    objectives = objectives or Objectives.from_space(session.space)
    states = {
        trial.number: _start(session, trial, scratch, trains_at, objectives) for trial in trials
    }
    life = pool.life.remote()
    pending = {pool.step.remote(trial.id): trial for trial in trials}
    results: dict[int, tuple[TrialState, Ended]] = {}
    while pending:
        ready, _ = ray.wait([*pending, life], timeout=LOOK_EVERY)
        if (reason := why_stop()) is not None:
            for trial in pending.values():
                pool.stop.remote(trial.id)
            return results, reason
        if not ready:
            continue
        update = _update_of(session, ready[0])
        trial = pending.pop(ready[0])
        states[trial.number] = apply_all(states[trial.number], update.events)
        if update.end is not None:
            results[trial.number] = states[trial.number], update.end
            continue
        if update.rung is not None:
            pool.answer.remote(trial.id, update.rung, False)  # the trial does not continue
        pending[pool.step.remote(trial.id)] = trial
    return results, None


def _start(
    session: SweepSession,
    trial: Trial,
    scratch: Path,
    trains_at: tuple[int, ...],
    objectives: Objectives,
) -> TrialState:
    """Let the pool train a trial, and return the trial's state."""
    folder = SweepFolder(scratch).trial(trial.id)
    folder.mkdir(parents=True)
    state = initial_state(TrialStarted(clock.time(), trial.number, trial), objectives)
    session.pool.start.remote(state, str(folder), trains_at)
    return state


def _update_of(session: SweepSession, ready: ObjectRef[Any]) -> TrialUpdate:
    """Return what happened to a trial, given the reference that is ready.

    Raises:
        InputError: The data has changed.
    """
    import ray

    try:
        update: TrialUpdate = ray.get(ready)["update"]
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, InputError):
            raise locate_problems(session.space, e.cause.problems) from None
        raise
    return update
