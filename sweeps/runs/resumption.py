"""Decide whether a resume has work left, check what it needs, and find an earlier result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.core.files.checkpoint_files import checkpoint_place, local_checkpoint
from sweeps.core.files.stores import is_address
from sweeps.core.files.sweep_folder import refuse_special_files
from sweeps.core.files.trust import refuse_unsigned
from sweeps.core.host import logging_setup
from sweeps.core.plugins import references
from sweeps.core.result import SweepResult
from sweeps.core.trial import format_trial_id
from sweeps.space.python.saved_space import roots_of
from sweeps.space.sections.trainer_definition import definition_of
from sweeps.study import budgets

from . import mlflow_summary

if TYPE_CHECKING:
    from sweeps.search.search_loop import SearchLoop


def refuse_unsigned_checkpoints(search: SearchLoop, trust: bool) -> None:
    """Raise an error if a trial would continue from a checkpoint that is not trusted.

    The check covers interrupted and paused trials.
    """
    space = search.space
    for number in (*search.interrupted, *search.view.paused):
        if (checkpoint := search.store.without_deleted_checkpoints(number).checkpoint) is None:
            continue
        trainer = space.trainer_of(search.store.trial(number).labels)
        pickles = definition_of(references.parse(trainer.loop)[0], roots_of(space)).pickles
        place = checkpoint_place(search.store.folder, format_trial_id(number), checkpoint.name)
        if not pickles and is_address(place):  # A store has only regular files.
            continue
        with local_checkpoint(place) as files:
            refuse_special_files(files)
            refuse_unsigned(files, pickles, trust)


def spent_limit(search: SearchLoop, earlier: SweepResult) -> str | None:
    """Return the limit that would end the resumed search before its first trial.

    An example is `limits.timeout`. Return None if there is no such limit.

    Args:
        search: The sweep's search, opened again.
        earlier: The saved result.
    """
    limits = search.space.limits
    budget = search.budget
    if search.interrupted or not search.to_run or not (earlier.best or earlier.front):
        return None
    budget.forgive_failures(limits)
    if limits.timeout is not None and search.store.spent > limits.timeout:
        return "limits.timeout"
    return budgets.exhausted(limits, budget)


def earlier_result(
    search: SearchLoop, result: SweepResult, limit: str | None, tracking_uri: str | None
) -> SweepResult:
    """Return the saved result with a note that no trials are left.

    Send MLflow the data that its server did not receive.

    Args:
        search: The sweep's search, opened again.
        result: The saved result.
        limit: The limit that forbids further trials, such as `limits.timeout`. None if there is no
            such limit.
        tracking_uri: See `mlflow_summary.absolute_uri`.
    """
    reason = result.reason
    if limit and (reason or "").partition(":")[0] != limit.partition(":")[0]:
        reason = limit  # Otherwise, the earlier reason says more about the same limit.
    store = search.store
    if result.mlflow.get("ended"):  # MLflow missed events
        best = store.trial(int(result.best["trial"])) if result.best else None
        tracker = mlflow_summary.tracker_of(search.space, store.folder, tracking_uri)
        with logging_setup.redirect_to_file(store.folder / "sweep.log"):
            result = mlflow_summary.send_again(
                tracker, search.space, store.data or "", result=result, best=best
            )
    return result.with_note(nothing_left_note(reason))


def nothing_left_note(reason: str | None) -> str:
    """Return the note for a resume that has no work left.

    The note says why the sweep ended, and how the user can continue the sweep.
    """
    if reason:
        hint = ""
        if reason.startswith("limits."):
            hint = "; to continue with another limit, add --set limits.KEY=VALUE"
        elif reason == "--minutes":
            hint = "; to continue, add --minutes N"
        return f"nothing is left to do: the sweep has ended ({reason}){hint}"
    return "nothing is left to do: every trial has ended; to add trials, use --add-trials N"


def has_work_left(earlier: SweepResult, to_run: int, changed: bool) -> bool:
    """Return whether a resume of a sweep that has a result would run trials.

    Args:
        earlier: The sweep's result.
        to_run: Number of trials that have not ended.
        changed: True if the user passed new limits or additional trials.
    """
    if earlier.reason == "interrupted":  # perhaps while a trial was chosen
        return True
    if to_run <= 0:
        return False
    has_no_value = not earlier.best and not earlier.front
    if changed or has_no_value or earlier.reason is None:
        return True
    # The user may have removed the cause of the failures.
    return str(earlier.reason).startswith("limits.max_failures_in_a_row")
