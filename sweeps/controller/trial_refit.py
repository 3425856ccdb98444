"""A trial trained once more, on train and valid together, for its bundle: what is left to learn from when all is decided."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.controller.rerun import scratch_of, trained
from sweeps.controller.session import job_of
from sweeps.controller.trial_export import Refitted
from sweeps.core.errors import BundleError, InputError, Problem, SweepFailed
from sweeps.core.trial import Checkpoint, Result, State
from sweeps.data.prepared_store import PreparedStore

if TYPE_CHECKING:
    from sweeps.execution.messages import Progress
    from sweeps.study.study_store import StudyStore
from sweeps.space import Space


@contextlib.contextmanager
def refitted(folder: Path, space: Space, study_store: StudyStore, number: int, roots: tuple[Path, ...]) -> Iterator[Refitted]:
    """Train a trial once more, with its parameters, its seed, its workers and its part of the rows, and those of valid.

    It is trained for the steps of the model that is exported of it otherwise: its loop left a checkpoint of that one. To the loop this is
    `max_t`. The chain is fitted anew on the same rows.

    Args:
        folder, space, ledger: of its sweep, which is not changed.
        number: the trial's.
        roots: folders of the user's modules.

    Yields:
        What was trained, there as long as this lasts.

    Raises:
        InputError: it has no best step, the data has changed, or it can never run here.
        SweepFailed: the loop failed.
        BundleError: the loop left no model of its last step.
    """
    from sweeps.search.plugins import scheduler_of

    if scheduler_of(space.scheduler).perturbs:
        text = f"is not for {space.scheduler.name}: its trials learnt from several trials, with parameters that changed"
        raise InputError(Problem("--refit", text))
    trial, steps = study_store.trial(number), steps_of(study_store.results()[number])
    if steps is None:
        raise InputError(Problem("--refit", f"trial {trial.id} reported no value: for how many steps is not known"))
    with scratch_of(folder, space, roots, None) as (scratch, joined):
        # The rows are more than the sweep's limits were made for
        job = dataclasses.replace(
            job_of(space, joined.roots), rungs=frozenset(), max_t=steps, trial_timeout=None, report_timeout=None, keep_last=True
        )
        known = study_store.study.user_attrs.get("data")
        _, last = trained(space, joined, scratch, trial, job, known, together=True)
        kept = left_of(trial.id, last, steps)
        rows = PreparedStore(scratch).load_info(trial.data).rows
        yield Refitted(scratch, Path(kept.path), steps, rows["train"] + rows["valid"])


def steps_of(result: Result) -> int | None:
    """The steps of the model that is exported of a trial, else those that were best; None if it reported no value."""
    return result.best_step if result.checkpoint is None else result.checkpoint.best_step


def left_of(trial: str, last: Progress, steps: int) -> Checkpoint:
    """The checkpoint that a trial left when it was trained once more.

    Args:
        trial: its id.
        last: what was heard of it last.
        steps: that it was to be trained.

    Raises:
        SweepFailed: the loop failed.
        BundleError: there is no model of the last step.
    """
    if last.state is not State.COMPLETE:
        raise SweepFailed(f"trial {trial} failed when it was trained once more:\n{last.error}")
    if last.best is None:
        raise BundleError(f"trial {trial} left no checkpoint when it was trained once more: nothing to export")
    if last.best.best_step != steps:
        left = f"its loop left the model of step {last.best.best_step}, not of the last, {steps}"
        raise BundleError(f"trial {trial} was trained once more, but {left}; see `Current.better` of sweeps.trial")
    return last.best
