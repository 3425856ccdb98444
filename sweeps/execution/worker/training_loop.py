"""Run the user's training loop for one trial on one rank."""

import contextlib
import copy
import inspect
import os
import traceback
from collections.abc import Collection, Mapping
from typing import Any

import ray.train

from sweeps.core import installed_package, loop_context
from sweeps.core.errors import SweepsError, shorten
from sweeps.core.loop_context import Current
from sweeps.core.plugins import references
from sweeps.core.text.secrets import masked
from sweeps.core.trial import State
from sweeps.execution.isolation.seeds import seed_trial
from sweeps.execution.messages import Ended
from sweeps.execution.ray_apis import ray_train_adapter

from . import loop_mlflow
from .error_hints import gpu_memory_hint, missing_values_hint
from .fold_runs import run_folds
from .loop_errors import CheckpointIgnored, LoopStopped, MetricMissing
from .loop_run import RankLoop
from .metric_values import flatten, numbers_in
from .row_runs import run_on_rows
from .trial_session import TrialSession
from .valid_predictions import keep_predictions

# The paths of the files of sweeps begin with this text.
PACKAGE = f"{installed_package.FOLDER}{os.sep}"


def run_loop(session: TrialSession, current: Current) -> Ended:
    """Run the loop once and return its result on this rank.

    Args:
        session: The trial that the loop reports to.
        current: Description of the trial that the loop can read with `sweeps.trial.current()`.
    """
    job = session.job
    assignment = session.assignment
    trainer = job.trainer_of(assignment.trial)
    loop_context.set_current(current)
    loop: Any = None
    try:
        for reference in trainer.references:
            references.resolve(reference)
        loop = references.resolve(trainer.loop)

        def train(running: TrialSession | RankLoop) -> None:
            arguments = [copy.deepcopy(assignment.trial.params)] if takes_config(loop) else []
            mlflow_run = loop_mlflow.TrialRun(job.tracking, assignment.folder, session.rank)
            with loop_mlflow.log_to(mlflow_run):
                _report_result(running, loop(*arguments))

        with ray_train_adapter.redirect_calls(session):
            # The first call in a process draws from `random`, so it must come before the seeds are
            # set.
            ray.train.get_context()
            if job.folds:
                run_folds(session, current, train)
            elif assignment.row_steps:
                run_on_rows(session, current, train)
            else:
                with seed_trial(assignment.trial.seed, current.threads):
                    train(session)
    except LoopStopped:
        pass
    except BaseException as e:  # A `SystemExit` of the loop must not end the process either.
        if not session.stopped:
            return _failure(e, session, is_imported=loop is not None)
    finally:
        loop_context.set_current(None)
    # A stopped loop may also catch `LoopStopped` and return, or raise another exception.
    state = State.PRUNED if session.stopped and not session.finished else State.COMPLETE
    # A trial that only the end of the sweep stops may be the best one.
    keeps = session.job.keeps_predictions and (state is State.COMPLETE or session.stops)
    if keeps and session.rank == 0:
        keep_predictions(session, current)
    return Ended(session.rank, state, final=current.final)


def _failure(error: BaseException, session: TrialSession, is_imported: bool) -> Ended:
    """Return the result of a loop that raised an exception, or that could not be imported."""
    refused = None
    if not is_imported:
        refused = "trainer", masked(str(error))
    elif isinstance(error, (MetricMissing, CheckpointIgnored)):
        refused = error.place, str(error)
    steps = session.assignment.trial.preprocessor
    lines = [
        traceback_text(error),
        gpu_memory_hint(error),
        missing_values_hint(error, session.cache.opened, steps),
    ]
    return Ended(
        session.rank,
        State.FAIL,
        "\n".join(filter(None, lines)),
        refused=refused,
        retry=refused is None and names_error(session.job.retry_on, error),
    )


def names_error(names: Collection[str], error: BaseException) -> bool:
    """Return whether `names` contains the name of an exception's class or of a base class of it.

    Args:
        names: Names of classes, with or without their module.
        error: The exception.
    """
    return any(
        name in names
        for cls in type(error).__mro__
        for name in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}")
    )


def _report_result(session: TrialSession | RankLoop, returned: Any) -> None:
    """Report the metrics that a loop yields or returns, as Ray Tune does.

    A loop is a generator or a function. Each dict that a generator yields is a report. If a
    function has not reported, the dict that it returns is a report, and a number that it returns is
    the objective's metric. If a function has reported, the dict that it returns has the final
    metrics, among them the trial's value.

    Other returned values are ignored, because a loop for Ray Train may return any value. For the
    same reason, a returned dict without the objective's metric is ignored if the loop has reported
    before.

    Raises:
        TypeError: The loop yielded a value that is not a dict.
    """
    if inspect.isgenerator(returned):
        with contextlib.closing(returned):
            for metrics in filter(None, returned):
                if not isinstance(metrics, Mapping):
                    raise TypeError(
                        f"the loop yielded {metrics!r}, but must yield dicts of metrics, such as "
                        f"{{'loss': 0.5}}"
                    )
                session.report(dict(metrics), None)
        return
    metric = session.job.metric
    never_reported = not session.reports and session.assignment.checkpoint is None
    if isinstance(returned, Mapping) and returned:
        final = numbers_in(flatten(returned))
        if never_reported:
            session.report(dict(returned), None)
        elif metric is None or metric in final:
            loop_context.current().report_final(final)
    elif isinstance(returned, (int, float)) and not isinstance(returned, bool) and never_reported:
        session.report({metric or "value": returned}, None)


def takes_config(loop: Any) -> bool:
    """Return whether the loop takes an argument, the config.

    Ray Train also allows loops without arguments.
    """
    try:
        return bool(inspect.signature(loop).parameters)
    except (TypeError, ValueError):
        return True


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an error, cut to `errors.ERROR_LENGTH` characters.

    Passwords are masked. Frames of sweeps' own code at both ends of the stack are left out. An
    error that a trainer of sweeps explains, such as a script that failed, has no traceback.
    """
    execution = str(installed_package.FOLDER / "execution")
    formatted = traceback.TracebackException.from_exception(error)
    if isinstance(error, SweepsError) and all(
        frame.filename.startswith(PACKAGE) for frame in formatted.stack
    ):
        return shorten(masked(f"{type(error).__name__}: {error}"))
    frames = list(formatted.stack)
    others = [i for i, frame in enumerate(frames) if not frame.filename.startswith(execution)]
    if others:
        frames = frames[others[0] : others[-1] + 1]
        formatted.stack = traceback.StackSummary.from_list(frames)
    return shorten(masked("".join(formatted.format()).rstrip()))
