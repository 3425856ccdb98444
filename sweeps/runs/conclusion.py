"""Conclude a search: prepare the export, export the best trial, and build the result."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.core import clock
from sweeps.core.best_step import Constraint
from sweeps.core.errors import SweepFailed, SweepsError
from sweeps.core.files.stores import recorded_store
from sweeps.core.result import SweepResult, count_trials
from sweeps.core.text.command_hints import resume_command
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import Result, State, Trial, format_trial_id
from sweeps.data.checks.preflight import locate_problems
from sweeps.space import Space

from .final_model import FinalModel

if TYPE_CHECKING:
    from sweeps.controller.controller import SweepController
    from sweeps.controller.session import SweepSession

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """Outcome of a search.

    Attributes:
        result: The result of the sweep.
        error: Error that says why the sweep failed; None if the sweep did not fail.
        best: The best trial. None if no trial has a value, and always None with several objectives.
        ended: When the search ended, in seconds since the epoch.
    """

    result: SweepResult
    error: SweepsError | None
    best: Trial | None
    ended: float


def conclude(
    controller: SweepController, session: SweepSession, trust: bool, notes: tuple[str, ...]
) -> Conclusion:
    """Export the best trial of a search that has ended, and build the result.

    Args:
        controller: The controller of the search.
        session: The session of the search. Its workers are closed before the bundle is written.
        trust: True to read pickles in the sweep's folder that this user's key has not signed.
        notes: Notes about the data. The result contains these notes and the notes of the search.
    """
    from sweeps.bundle.trial_facts import describe_recorded
    from sweeps.evaluation.uncertain_front import uncertain_front

    from . import mlflow_summary

    store = controller.study_store
    folder = controller.folder
    tracker = controller.trackers.mlflow
    number = store.winner()
    front = store.front()
    counts = count_trials(store.results().values())
    cleaner = controller.trials.cleaner
    notes += _search_notes(controller, counts, number, front=front)
    uncertain = uncertain_front(store, front)
    if uncertain:
        trials = ", ".join(map(format_trial_id, uncertain))
        notes += (f"another trial may dominate {trials} of the front: the difference may be noise",)
    exported = None
    error: SweepsError | None = None
    final = None
    if number is not None:
        final = FinalModel(controller, session, trust)
        number = final.number  # An interrupt may end the choice.
    reason = controller.reason or controller.search.queue.exhausted
    if final is not None:
        exported = final.export()
        notes += exported.notes
        error = exported.error
    else:
        session.close_workers()
        if not front:
            error = failure_of(counts, controller.progress.failures, reason=reason, folder=folder)
    result = SweepResult(
        sweep=folder.name,
        dir=folder,
        trials=counts,
        best=exported.best if exported else None,
        bundle=exported.bundle if exported else None,
        checkpoint=exported.checkpoint if exported else None,
        mlflow={} if tracker is None else mlflow_summary.place(tracker),
        fits=session.count_fits(),
        seconds=round(clock.monotonic() - controller.began, 2),
        reason=reason,
        notes=notes,
        front=tuple(
            describe_recorded(store, n) | ({"uncertain": True} if n in uncertain else {})
            for n in front
        ),
        freed=dataclasses.asdict(cleaner.freed) if cleaner else None,
        store=recorded_store(folder),
    )
    ended = clock.time()
    controller.publish_stage("writing the report")
    return Conclusion(result, error, None if number is None else store.trial(number), ended)


def _search_notes(
    controller: SweepController, counts: Mapping[str, int], number: int | None, front: list[int]
) -> tuple[str, ...]:
    """Return the notes of a search: those of its commands, its trials and its outcome.

    Args:
        controller: The controller of the search.
        counts: Number of trials by state; see `count_trials`.
        number: Number of the best trial; None if there is none.
        front: Numbers of the trials on the Pareto front; [] for a single objective.
    """
    best = front[0] if front else number
    outcome = result_notes(
        counts,
        controller.progress.failures,
        controller.space.constraints,
        best=None if best is None else controller.study_store.results()[best],
        front=bool(front),
    )
    states = controller.study_store.states.values()
    trainers = trainer_notes((state.trial.trainer, state.state) for state in states)
    return (*controller.commands.notes, *controller.trials.notes.values(), *trainers, *outcome)


def result_notes(
    counts: Mapping[str, int],
    failures: Sequence[tuple[str, str]],
    constraints: Sequence[Constraint],
    best: Result | None,
    front: bool,
) -> tuple[str, ...]:
    """Return the notes of a result, one line each.

    Args:
        counts: Number of trials by state; see `count_trials`.
        failures: Id and traceback of each failed trial, in the order in which the trials failed.
        constraints: The constraints of the space.
        best: Result of the best trial; None if there is none.
        front: True if the sweep has several objectives, and therefore a Pareto front instead of a
            best trial.
    """
    notes = []
    if failures:
        text, traceback = _describe_failures(counts["failed"], failures, "")
        last_line = traceback.splitlines()[-1]
        notes.append(f"{text} {last_line} (all tracebacks are in sweep.log)")
    if best is not None and not best.feasible:
        note = (
            f"no trial meets the constraints ({', '.join(map(str, constraints))}); the result is "
            "the best trial that violates them"
        )
        unreported = [c.metric for c in constraints if c.metric not in best.metrics]
        if unreported:
            note += f"; this trial never reported {', '.join(unreported)}"
        notes.append(note)
    elif best is not None and best.state is State.PRUNED and not best.ended_by_time:
        steps = count_noun(best.steps, "step")
        notes.append(f"no trial was completed; the result is one that ended early, after {steps}")
    if front:
        notes.append(
            "no bundle was written, because the sweep has several objectives; `sweeps export "
            "--trial ID` exports one trial, and `sweeps export --pareto` exports the Pareto front"
        )
    return tuple(notes)


def trainer_notes(trials: Iterable[tuple[str, State]]) -> tuple[str, ...]:
    """Return a note for each of several trainers whose trials have all failed.

    Args:
        trials: The trainer's label and the state of each trial.
    """
    states: dict[str, list[State]] = {}
    for label, state in trials:
        states.setdefault(label, []).append(state)
    return tuple(
        f"the trainer `{label}` gave no model: {count_noun(len(ended), 'trial')}, all failed"
        for label, ended in states.items()
        if label and set(ended) == {State.FAIL}
    )


def failure_of(
    counts: Mapping[str, int], failures: Sequence[tuple[str, str]], reason: str | None, folder: Path
) -> SweepFailed | None:
    """Return the error of a sweep in which no trial has a value.

    Return None if the sweep was interrupted before any trial failed.

    Args:
        counts: Number of trials by state; see `count_trials`.
        failures: Id and traceback of each failed trial, in the order in which the trials failed.
        reason: Reason why the sweep ended early; None if it did not end early.
        folder: The sweep's folder.
    """
    if failures:
        no_value = ", and no trial has a value of the objective"
        text, traceback = _describe_failures(counts["failed"], failures, no_value)
        return SweepFailed(f"{text}\n{traceback}\n\nfolder  {folder}")
    if reason == "interrupted":
        return None
    cause = f"the sweep ended because of {reason}" if reason else "no trial ran"
    text = f"no trial has a value of the objective ({cause})\n\nfolder  {folder}"
    limit = str(reason).partition(":")[0]
    if limit == "--minutes" or limit.startswith("limits."):
        option = "--minutes 5" if limit == "--minutes" else f"--set {limit}=..."
        text += f"\nto continue the sweep with a higher limit: {resume_command(folder)} {option}"
    return SweepFailed(text)


def _describe_failures(
    count: int, failures: Sequence[tuple[str, str]], outcome: str
) -> tuple[str, str]:
    """Return a text about the failed trials, and the traceback of the first one.

    Args:
        count: Number of failed trials.
        failures: See `result_notes`.
        outcome: End of the sentence about the failed trials, such as ", and no trial has a value".
            "" if there is nothing to add.
    """
    trial, error = failures[0]
    trial_text = f"trial {trial}" if count == 1 else f"the first one, trial {trial}"
    return f"{count_noun(count, 'trial')} failed{outcome}; the error of {trial_text}:", error


def raise_refusal(controller: SweepController) -> None:
    """Raise the error that ended the search, if any: a wrong space file, or changed data."""
    if controller.refused is not None:
        raise locate_problems(controller.space, controller.refused.problems)
    if controller.data_error is not None:
        # Not an `InputError`, after which the folder of a new sweep is removed.
        problem = locate_problems(controller.space, controller.data_error.problems)
        raise SweepsError(
            f"{problem}. Restore the data, then continue: {resume_command(controller.folder)}"
        )


def prepare_export(space: Space, resources: contextlib.ExitStack) -> None:
    """In a thread, start the process that checks the bundle, and load what the export needs.

    Both take seconds of CPU time, and the export at the end does not wait for them. Before the
    first trial runs, they would delay it. If no bundle is made, start nothing.

    Args:
        space: The search space.
        resources: Ends the process when it is closed.
    """
    from sweeps.bundle import check_process

    trainers = [trainer for trainer in space.trainers.values() if trainer.load is not None]
    if not trainers or len(space.objectives) > 1:
        return
    backends = {trainer.backend for trainer in trainers}
    packages = sorted(backends & {"lightgbm", "torch", "xgboost"})
    resources.enter_context(check_process.started_early(packages))
    names = ("sweeps.bundle.export", "mlflow.pyfunc", *packages, "optuna.visualization")
    threading.Thread(target=_import_all, args=names, name="import", daemon=True).start()


def _import_all(*names: str) -> None:
    """Import modules, and read the sources of those that a bundle contains.

    Whoever needs a module later reports the error of its import.
    """
    with contextlib.suppress(Exception):
        from sweeps.bundle.model_code import find_shipped_modules

        find_shipped_modules()
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
