"""Run one trial of a sweep again, and compare its new and its recorded reports bit by bit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from sweeps.controller.reservation import reserve
from sweeps.controller.session import SweepSession
from sweeps.core import clock
from sweeps.core.errors import InputError
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.origin import read_origin
from sweeps.core.files.stores import store_of
from sweeps.core.files.sweep_folder import SweepFolder, refuse_other_entries
from sweeps.core.host import logging_setup
from sweeps.core.host.machine_share import Share
from sweeps.core.result import to_json_value
from sweeps.core.trial import State, Trial
from sweeps.search.schedulers.scheduler import row_steps
from sweeps.space import Space
from sweeps.space.python.saved_space import runnable_space
from sweeps.stored import stored_sweeps, sweep_lookup
from sweeps.study import record_reader
from sweeps.study.ending import ending
from sweeps.study.states import TrialState, lineage_text
from sweeps.study.trial_building import recorded_trial

from .train_trials import train_trials

# (step, metrics) of each report of a trial.
Reports = tuple[tuple[int, Mapping[str, float]], ...]


@dataclasses.dataclass(frozen=True)
class RerunComparison:
    """The reports of a trial in the sweep and in the new run.

    Attributes:
        trial: The trial's id.
        before: Reports of the trial in the sweep, with the metrics of objectives and constraints.
            If all objectives and constraints are costs, the reports have all metrics.
        now: Reports of the new run, with the same metrics.
        error: Error of the loop in the new run; None if the loop did not fail.
        failed: True if the trial failed in the sweep.
    """

    trial: str
    before: Reports
    now: Reports
    error: str | None = None
    failed: bool = False

    @property
    def difference(self) -> tuple[int, str] | None:
        """The first step at which a value differs or is missing, and the first such metric.

        NaN equals NaN. None if all values are bit-identical.
        """
        before = dict(self.before)
        now = dict(self.now)
        for step in sorted(before.keys() | now.keys()):
            old = before.get(step, {})
            new = now.get(step, {})
            for metric in (*old, *new):
                # The texts of equal floats are equal, also those of NaN.
                if repr(old.get(metric)) != repr(new.get(metric)):
                    return step, metric
        return None

    @property
    def equal(self) -> bool:
        """True if both runs had the same reports, and both failed or neither failed."""
        return self.difference is None and (self.error is not None) == self.failed

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that `rerun --json` prints."""
        content = dataclasses.asdict(self) | {"equal": self.equal, "steps": len(self.before)}
        content["differs_from"] = None if self.difference is None else self.difference[0]
        del content["failed"]
        json_object: dict[str, JsonValue] = to_json_value(content)
        return json_object

    def __str__(self) -> str:
        if self.equal:
            count = len(self.before)
            steps = f"{count} step{'s' * (count != 1)}"
            if count:
                steps += ", bit-identical to the original run"
            if self.error:
                steps = f"fails again after {steps}: {self.error.splitlines()[-1]}"
            return f"trial {self.trial}: {steps}"
        if self.difference is None:
            if self.failed:
                return f"trial {self.trial}: failed in the original run, but does not fail now"
            return (
                f"trial {self.trial}: did not fail in the original run, but fails now: {self.error}"
            )
        step, metric = self.difference
        old = dict(self.before).get(step, {}).get(metric, "missing")
        new = dict(self.now).get(step, {}).get(metric, "missing")
        error = f"\n{self.error}" if self.error else ""
        return (
            f"trial {self.trial}: differs from step {step} on: {metric} was {old} and is now "
            f"{new}{error}"
        )


def rerun(
    sweep: str | os.PathLike[str],
    trial: str,
    *,
    address: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    trust: bool = False,
) -> RerunComparison:
    """Run a trial of a sweep again and compare the new reports with the recorded ones.

    Both runs have the same parameters, seed, data and number of workers. An elastic trial changes
    its number of workers at the recorded steps. Neither the study nor MLflow changes.

    Args:
        sweep: The sweep's folder, or its address, such as `s3://BUCKET/PREFIX/SWEEP`.
        trial: The trial's id. A trial that was stopped or interrupted runs up to the step where it
            stopped.
        address: Address of a Ray cluster. The default is the address with which the sweep started.
        cpus: Largest number of CPUs that the trial uses. The default is that of the sweep.
        gpus: Largest number of GPUs that the trial uses. The default is that of the sweep.
        trust: True to run functions of a script even if this user's key has not signed them.

    Raises:
        InputError: There is no such sweep or trial, the data has changed, or the trial needs more
            resources than Ray has.
        SweepsError: The process of the data actor was lost.
    """
    folder = stored_sweeps.fetch(sweep)
    store_of(folder)  # Raises an error if the user has given the folder of a sweep in a store.
    refuse_other_entries(folder)
    space, roots = runnable_space(folder, trust)
    study = record_reader.read(folder)
    original: TrialState = sweep_lookup.trial_of(study, trial)
    assert study is not None
    _refuse_unrepeatable(original)
    repeated = _trial_to_repeat(space, original)
    wanted = Share(cpus, gpus)
    with (
        reopen(folder, "sweeps rerun", wanted, address) as (scratch, address, share),
        SweepSession(
            dataclasses.replace(space, shapes=(repeated.shape,)),
            scratch,
            roots,
            address,
            job={"rungs": _early_stop(original), "keeps_predictions": False},
            share=share,
            fingerprint=study.data,
        ) as session,
    ):
        return _compare(session, repeated, original)


def _trial_to_repeat(space: Space, original: TrialState) -> Trial:
    """Return a trial as it started in the sweep, with its seed and its number of workers."""
    built = recorded_trial(space, original)
    shape = built.shape
    if original.sizes:
        shape = shape.of_size(original.sizes[0].workers)
    return dataclasses.replace(built, seed=original.trial.seed, shape=shape)


def _early_stop(original: TrialState) -> frozenset[int]:
    """Return the rung at which a trial that was stopped early stops again; no rung for others."""
    result = original.result
    if result.state in (State.PRUNED, State.RUNNING) and result.steps:
        return frozenset({result.steps})
    return frozenset()


def _refuse_unrepeatable(trial: TrialState) -> None:
    """Raise an error if a trial cannot be repeated.

    Raises:
        InputError: The trial never ran, reported nothing, or continued from checkpoints of other
            trials.
    """
    if trial.result.given:
        raise InputError(
            "trial",
            f"trial {trial.id} is an initial point whose result the space file gives, so the "
            "trial never ran",
        )
    if trial.result.state in (State.PRUNED, State.RUNNING) and not trial.result.steps:
        raise InputError(
            "trial",
            f"trial {trial.id} was stopped before its first report, so there is nothing to compare",
        )
    if trial.lineage:
        raise InputError(
            "trial",
            f"trial {trial.id} copied checkpoints of other trials under pbt "
            f"({lineage_text(trial.lineage)}), so it cannot be trained alone",
        )


@contextlib.contextmanager
def reopen(
    folder: Path, command: str, wanted: Share, address: str | None = None
) -> Iterator[tuple[Path, str | None, Share]]:
    """Prepare this process and this machine for a command that runs a sweep's trials again.

    Args:
        folder: The sweep's folder.
        command: The command, such as `sweeps rerun`.
        wanted: The CPUs and GPUs that the command may use. The default is those of the sweep.
        address: Address of a Ray cluster. The default is the address with which the sweep started.

    Yields:
        A temporary folder (see `scratch_folder`), the address, and the CPUs and GPUs that the
        command may use.
    """
    address = address or read_origin(folder).get("address")
    with (
        reserve(command, folder, address, wanted.cpus, wanted.gpus) as share,
        scratch_folder(folder) as scratch,
    ):
        yield scratch, address, share


@contextlib.contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """Make a temporary folder in a sweep's folder, locked like the folder of a running sweep.

    Log messages and stdout go to a file in the new folder.

    Args:
        folder: The sweep's folder. Every node of a cluster must be able to read it.
    """
    with (
        tempfile.TemporaryDirectory(
            prefix=".rerun-", dir=folder, ignore_cleanup_errors=True
        ) as created,
        contextlib.ExitStack() as stack,
    ):
        scratch = Path(created)
        origin = read_origin(folder)
        if (store := store_of(folder)) is not None:
            # The temporary folder has its own part of the sweep's store.
            origin["store"] = f"{store}/{scratch.name}"
            stack.callback(stored_sweeps.delete_store, origin["store"])
        # Each node of a cluster reads this file to check that it sees the folder.
        write_text(SweepFolder(scratch).origin, json.dumps(origin))
        # A resume deletes temporary folders that are not locked.
        stack.enter_context(FolderLock(scratch))
        stack.enter_context(logging_setup.redirect_to_file(scratch / "rerun.log"))
        yield scratch


def _compare(session: SweepSession, trial: Trial, original: TrialState) -> RerunComparison:
    """Run a trial again, and compare the new reports with the reports of the first run.

    Args:
        session: The session (Ray, worker pool and data actor) in which the trial runs.
        trial: The trial to run.
        original: The trial as it ran in the sweep.
    """
    steps = row_steps(session.scheduler, session.space.search.seed, trial)
    session.load_data()
    results, _ = train_trials(session, [trial], session.folder, trains_at=steps)
    state, end = results[trial.number]
    ended = ending(state, clock.time(), end.state, end.error, final=end.final)
    return RerunComparison(
        trial.id,
        before=_reports_to_compare(original),
        now=_reports_to_compare(state),
        error=ended.result.error,
        failed=original.result.state is State.FAIL,
    )


def _reports_to_compare(state: TrialState) -> Reports:
    """Return the reports of a trial; see `RerunComparison.before` for their metrics."""
    compared = state.objectives.reported_metrics
    reports = []
    for report in state.own_reports:
        names = compared or report.metrics
        metrics = {name: report.metrics[name] for name in names if name in report.metrics}
        reports.append((report.step, metrics))
    return tuple(reports)
