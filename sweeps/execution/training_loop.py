"""Run the user's training loop for one trial on one rank."""

from __future__ import annotations

import contextlib
import inspect
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import ray.train

from sweeps.core import references, trial
from sweeps.core.errors import shorten
from sweeps.core.secrets import masked
from sweeps.core.trial import Current, State
from sweeps.execution import loop_mlflow, missing_value_hints, ray_train_adapter
from sweeps.execution.messages import Ended
from sweeps.execution.metric_values import flatten, numeric
from sweeps.execution.seeds import seeded
from sweeps.execution.trial_session import CheckpointIgnored, MetricMissing, Stopped, TrialSession


def run_loop(session: TrialSession, current: Current) -> Ended:
    """Run the loop once and return how it ended on this rank."""
    job, assignment = session.job, session.assignment
    trial.set_current(current)
    try:
        loop = references.resolve(job.loop)
        with ray_train_adapter.in_place(session):
            ray.train.get_context()  # Its first call in a process draws from `random`, which would change the first trial's numbers.
            logs = loop_mlflow.logged(loop_mlflow.TrialRun(job.tracking, assignment.folder, session.rank))
            with logs, seeded(assignment.trial.seed, current.threads):
                _report_result(session, loop(dict(assignment.trial.params)) if takes_config(loop) else loop())
    except Stopped:
        pass
    except BaseException as e:  # A loop's own kind of exception is not the death of its process.
        if not session.stopped:
            refused = (e.place, str(e)) if isinstance(e, (MetricMissing, CheckpointIgnored)) else None
            lines = [trace(e), missing_value_hints.explain(e, session.opened, assignment.trial.preprocessor)]
            retry = refused is None and is_worth_a_retry(e, job.retry_on)
            return Ended(session.rank, State.FAIL, "\n".join(filter(None, lines)), refused=refused, retry=retry)
    finally:
        trial.set_current(None)
    # A loop may swallow the stop and still come to its end, or raise something else.
    return Ended(session.rank, State.PRUNED if session.stopped and not session.finished else State.COMPLETE, final=current.final)


def is_worth_a_retry(error: BaseException, names: Collection[str]) -> bool:
    """Return whether a name is that of the error's class or of one of its bases, with or without their module."""
    return any(name in names for cls in type(error).__mro__ for name in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}"))


def _report_result(session: TrialSession, returned: Any) -> None:
    """Report what a loop yields or returns, as Ray Tune does: each dict that it yields, or one dict that it returns.

    Other results are ignored. So is a dict without the objective's metric after reports, because a loop for Ray Train may return
    anything.
    """
    if inspect.isgenerator(returned):
        with contextlib.closing(returned):
            for metrics in filter(None, returned):
                if not isinstance(metrics, Mapping):
                    raise TypeError(f"the loop yielded {metrics!r}; a loop yields dicts of metrics, such as {{'loss': 0.5}}")
                session.report(dict(metrics), None)
    elif isinstance(returned, Mapping) and returned:
        never_reported = not session.reports and session.assignment.checkpoint is None
        if never_reported or session.job.metric is None or session.job.metric in numeric(flatten(returned)):
            session.report(dict(returned), None)


def takes_config(loop: Any) -> bool:
    """Return whether a loop takes the config. Ray Train allows loops without arguments."""
    try:
        return bool(inspect.signature(loop).parameters)
    except (TypeError, ValueError):
        return True


def trace(error: BaseException) -> str:
    """Return the traceback of an error without the frames of sweeps around the user's, at most `errors.ERROR_LENGTH` characters."""
    here = str(Path(__file__).parent)
    formatted = traceback.TracebackException.from_exception(error)
    theirs = [number for number, frame in enumerate(formatted.stack) if not frame.filename.startswith(here)]
    if theirs:
        formatted.stack = traceback.StackSummary.from_list(formatted.stack[theirs[0] : theirs[-1] + 1])
    return shorten(masked("".join(formatted.format()).rstrip()))
