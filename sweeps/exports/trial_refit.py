"""Train trials again on the rows of several splits.

This serves `bundle.train_on: all` and `export --refit`.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from sweeps.bundle.export import Refitted
from sweeps.bundle.sweep_models import SweepModels
from sweeps.controller.session import SweepSession
from sweeps.core.errors import BundleError, InputError, SweepFailed, SweepsError
from sweeps.core.files.checkpoint_files import checkpoint_place, local_checkpoint
from sweeps.core.host.machine_share import Share
from sweeps.core.loop_context import BEST_FOLD_STEP, BEST_LOOP_STEP
from sweeps.core.trial import Checkpoint, Result, State, Trial
from sweeps.data.prepared_store import PreparedStore
from sweeps.data.splits.refit_rows import RefitRows
from sweeps.execution.messages import Ended
from sweeps.search.plugins import scheduler_of
from sweeps.study.states import TrialState
from sweeps.study.study_store import StudyStore

from .rerun import reopen, scratch_folder
from .train_trials import train_on_rows

log = logging.getLogger(__name__)


@contextlib.contextmanager
def refit(
    models: SweepModels, numbers: Sequence[int], wanted: Share
) -> Iterator[dict[int, Refitted]]:
    """Open a sweep that has ended, and train some of its trials again; see `train_again`.

    Args:
        models: The models of the sweep.
        numbers: Numbers of the trials.
        wanted: The CPUs and GPUs that the training may use. None means those of the sweep.

    Yields:
        The new models by the number of the trial. Their files exist until the `with` block ends.

    Raises:
        InputError: The data has changed, or a trial needs more resources than there are. See also
            `train_again`.
        SweepFailed, BundleError: See `train_again`.
    """
    store = models.study_store
    for number in numbers:
        steps_to_train(store, number)  # Refuse a trial that cannot be trained again.
    shapes = tuple(dict.fromkeys(store.trial(number).shape for number in numbers))
    with (
        reopen(store.folder, "sweeps export --refit", wanted) as (scratch, address, share),
        SweepSession(
            dataclasses.replace(models.space, shapes=shapes),
            scratch,
            models.roots,
            address,
            share=share,
            fingerprint=store.data,
        ) as session,
    ):
        session.load_data()
        with train_again(session, store, numbers) as refitted:
            yield refitted


@contextlib.contextmanager
def train_again(
    session: SweepSession,
    study_store: StudyStore,
    numbers: Sequence[int],
    why_stop: Callable[[], str | None] = lambda: None,
    some: bool = False,
) -> Iterator[dict[int, Refitted]]:
    """Train trials again, side by side, on the rows of several splits.

    The parameters, the seed, the workers and the fraction of the rows stay the same. The splits are
    `Space.refit_splits`. The preprocessing chain is fitted again, on the same rows. The sweep
    itself does not change.

    The new training ends at the step of the trial's best model, which an export without a refit
    contains. After a cross-validation, the training ends at the mean of the folds' best steps. If
    the scheduler counts rows, the loop runs once, on all rows, and ends at the best step of the
    trial's last run of the loop. The loop finds the step in `Current.max_t`.

    Args:
        session: A session that has loaded the data and runs no trial. It cannot run trials of the
            search afterwards.
        study_store: The sweep's study.
        numbers: Numbers of the trials, at least one.
        why_stop: See `train_trials`. Trials that have ended before are in the result.
        some: True if the new models of some of the trials are enough.

    Yields:
        The new models by the number of the trial, at least one. Their files exist until the `with`
        block ends.

    Raises:
        InputError: The data has changed. See also `steps_to_train`.
        SweepFailed: No loop has ended without an error, or none before `why_stop` returned a text.
        BundleError: No loop saved a checkpoint with the model of the last step.
    """
    folder = study_store.folder
    space = study_store.space
    splits = space.refit_splits
    trials = [study_store.trial(number) for number in numbers]
    steps = {trial.id: steps_to_train(study_store, trial.number) for trial in trials}
    refitted = {}
    errors: list[SweepsError] = []
    with contextlib.ExitStack() as files:
        scratch = files.enter_context(scratch_folder(folder))
        ended = _train(session, trials, steps, RefitRows(splits, str(scratch)), why_stop)
        for trial in trials:
            if trial.number not in ended:
                continue
            state, end = ended[trial.number]
            try:
                saved = last_checkpoint(state, end, steps[trial.id])
            except SweepsError as e:
                log.warning("%s", e)
                errors.append(e)
                continue
            place = checkpoint_place(scratch, trial.id, saved.name)
            rows = PreparedStore(folder).load_info(trial.data).rows
            # The train rows of a cross-validation include the rows of valid.
            counted = set(splits) - {"valid"} if space.data.folds else splits
            refitted[trial.number] = Refitted(
                scratch,
                files.enter_context(local_checkpoint(place)),
                steps[trial.id],
                sum(rows[name] for name in counted),
                splits=splits,
            )
        if errors and not (some and refitted):
            raise errors[0]
        yield refitted


def _train(
    session: SweepSession,
    trials: Sequence[Trial],
    steps: Mapping[str, int],
    rows: RefitRows,
    why_stop: Callable[[], str | None],
) -> dict[int, tuple[TrialState, Ended]]:
    """Train trials, and return the state and the end of those that have ended in time, by number.

    Args:
        session: See `train_again`.
        trials: The trials.
        steps: Number of steps of each trial, by the trial's id.
        rows: The rows to train on.
        why_stop: See `train_again`, which also lists the errors.
    """
    # No time limits: the sweep's time limits were chosen for fewer rows.
    settings = {
        "threads": session.final_threads(trials[0].shape) if len(trials) == 1 else 1,
        "refit_steps": steps,
        "trial_timeout": None,
        "report_timeout": None,
        "keep_last": True,
        "folds": 0,
    }
    results, reason = train_on_rows(session, trials, rows, settings, why_stop)
    if reason is not None and not results:
        raise SweepFailed(reason)
    return results


def steps_of(result: Result) -> int | None:
    """Return the step of the model in the trial's best checkpoint.

    Without a checkpoint, return the best step, which may be None.
    """
    return result.best_step if result.checkpoint is None else result.checkpoint.best_step


def steps_to_train(study_store: StudyStore, number: int) -> int:
    """Return the number of the loop's steps in a refit.

    If the trial ran its loop several times, this is the loop's best step in the last run, or the
    mean of these steps over the folds.

    Args:
        study_store: The sweep's study.
        number: Number of the trial.

    Raises:
        InputError: The trial reported no value, or the scheduler copies checkpoints between trials,
            as `pbt` does.
    """
    space = study_store.space
    if scheduler_of(space.scheduler).perturbs:
        raise InputError(
            "--refit",
            f"does not work with the scheduler {space.scheduler.name}, whose trials "
            "copy checkpoints of other trials and change their own parameters",
        )
    if space.data.folds or space.scheduler.counts_rows:
        reports = study_store.states[number].own_reports
        metric = BEST_FOLD_STEP if space.data.folds else BEST_LOOP_STEP
        steps = max(1, round(reports[-1].metrics[metric])) if reports else None
    else:
        steps = steps_of(study_store.results()[number])
    if steps is None:
        trial = study_store.trial(number).id
        raise InputError(
            "--refit",
            f"trial {trial} reported no value, so the number of steps to train is unknown",
        )
    return steps


def last_checkpoint(state: TrialState, end: Ended, steps: int) -> Checkpoint:
    """Return the checkpoint that holds the model of the last step of a refitted trial.

    Args:
        state: State of the trial after its training.
        end: How the training ended.
        steps: Number of steps that the trial had to train.

    Raises:
        SweepFailed: The loop failed.
        BundleError: No checkpoint holds the model of the last step.
    """
    if end.state is not State.COMPLETE:
        raise SweepFailed(f"trial {state.id} failed when it was trained again:\n{end.error}")
    if state.best is None:
        raise BundleError(
            f"trial {state.id} saved no checkpoint when it was trained again, so there is nothing "
            "to export"
        )
    if state.best.best_step != steps:
        raise BundleError(
            f"trial {state.id} was trained again, but its loop saved the model of step "
            f"{state.best.best_step} instead of the model of the last step, {steps}; see "
            "`Current.better` of sweeps.trial"
        )
    return state.best
