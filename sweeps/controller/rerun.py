"""One trial of a sweep once more, as it was: does it come to the same, to the bit? Neither study nor MLflow hear of it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.controller.session import facts_of, job_of
from sweeps.core import logging_setup
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.origin import read_origin
from sweeps.core.processes import is_alive
from sweeps.core.resources import COSTS
from sweeps.core.result import to_json_value
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Report, Result, State
from sweeps.execution import cluster
from sweeps.plan import find_infeasible_shapes
from sweeps.space.saved_space import saved_space
from sweeps.study.objectives import Objectives

if TYPE_CHECKING:
    from sweeps.core.trial import Trial
    from sweeps.execution.messages import Job, Progress
    from sweeps.study.record import TrialRecord

# (step, what was reported there) of each report.
Reported = tuple[tuple[int, Mapping[str, float]], ...]


@dataclasses.dataclass(frozen=True)
class Compared:
    """A trial, and the same once more.

    Attributes:
        trial: its id.
        before, now: what it reported, of the metrics that objectives and constraints are about; of every metric where costs alone are.
        error: why the loop failed this time; None if it did not.
        failed: it had failed the first time.
    """

    trial: str
    before: Reported
    now: Reported
    error: str | None = None
    failed: bool = False

    @property
    def differs_from(self) -> int | None:
        """The first step of which a value is another or is missing; None if all are equal to the bit."""
        found = first_difference(self.before, self.now)
        return found and found[0]

    @property
    def equal(self) -> bool:
        """Whether both came to the same."""
        return self.differs_from is None and (self.error is not None) == self.failed

    def to_json(self) -> dict[str, Any]:
        """What `rerun --json` prints."""
        told = {"trial": self.trial, "equal": self.equal, "differs_from": self.differs_from, "steps": len(self.before)}
        return to_json_value({**told, "before": self.before, "now": self.now, "error": self.error})

    def __str__(self) -> str:
        if self.equal:
            steps = f"{len(self.before)} step{'s' * (len(self.before) != 1)}" + ", equal to the bit" * bool(self.before)
            return f"trial {self.trial}: " + (f"fails again after {steps}: {self.error.splitlines()[-1]}" if self.error else steps)
        found = first_difference(self.before, self.now)
        if found is None:
            return f"trial {self.trial}: {'does not fail any more' if self.failed else f'fails now: {self.error}'}"
        step, metric = found
        was, has = (repr(dict(told).get(step, {}).get(metric, "no report")).strip("'") for told in (self.before, self.now))
        return f"trial {self.trial}: differs from step {step} on: {metric} {was} then, {has} now" + (
            f"\n{self.error}" if self.error else ""
        )


def first_difference(before: Reported, now: Reported) -> tuple[int, str] | None:
    """The first step, and its first metric, at which two trials have not reported the same to the bit; NaN equals NaN."""
    a, b = dict(before), dict(now)
    for step in sorted(a.keys() | b.keys()):
        was, has = a.get(step, {}), b.get(step, {})
        for metric in (*was, *has):
            if metric not in was or metric not in has or repr(was[metric]) != repr(has[metric]):
                return step, metric
    return None


def rerun(sweep: str | os.PathLike[str], trial: str, *, address: str | None = None) -> Compared:
    """Run a trial of a sweep once more, with its parameters, its seed, its data and on as many workers, and compare.

    Args:
        sweep: its folder.
        trial: its id. One that was stopped or interrupted is run as far as it came.
        address: of a Ray cluster; by default as the sweep began.

    Raises:
        InputError: no such sweep or trial, the data has changed, or it can never run here.
    """
    from sweeps.controller import sweep_lookup
    from sweeps.study import record
    from sweeps.study.record import in_short
    from sweeps.study.trial_building import assembled

    folder = Path(sweep).resolve()
    space, roots = saved_space(folder)
    study = record.read(folder)
    recorded: TrialRecord = sweep_lookup.trial_of(study, trial)
    assert study is not None
    if recorded.result.given:
        raise InputError(Problem("trial", f"{recorded.id} is an initial point whose result was given: it was never run"))
    if recorded.result.state in (State.PRUNED, State.RUNNING) and not recorded.result.steps:
        raise InputError(Problem("trial", f"{recorded.id} was stopped before its first report: there is nothing to compare"))
    if recorded.lineage:
        said = f"trial {recorded.id} took over from others under pbt ({in_short(recorded.lineage)}), and cannot be trained alone"
        raise InputError(Problem("trial", said))
    wanted = dataclasses.replace(assembled(space, recorded.number, lambda d: recorded.keys[d.name]), seed=recorded.seed)
    reports = next(record.reports_of(t, study.judge.metric) for t in record.trials_of(folder) if t.number == recorded.number)
    with scratch_of(folder, space, roots, address) as (scratch, joined):
        return _compare(space, joined, scratch, wanted, recorded.result, reports, study.data)


@contextlib.contextmanager
def scratch_of(folder: Path, space: Any, roots: tuple[Path, ...], address: str | None) -> Iterator[tuple[Path, cluster.Joined]]:
    """A folder inside the sweep's for as long as this lasts, and Ray, as the sweep had it unless an address is given."""
    logging_setup.set_environment()
    import ray  # noqa: F401 - sets up its logging, which is then redirected

    from sweeps.core.folder_lock import FolderLock

    with contextlib.ExitStack() as held:
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix=".rerun-", dir=folder, ignore_cleanup_errors=True)))
        shutil.copy(SweepFolder(folder).origin, scratch)  # by which the nodes of a cluster show that they see the folder
        held.callback(FolderLock(scratch).release)  # a driver that takes up the sweep leaves it alone
        held.enter_context(logging_setup.redirect_to_file(scratch / "rerun.log"))
        address = address or read_origin(folder).get("address")
        if address:
            cluster.prepare_authentication(address)
        yield scratch, held.enter_context(cluster.ray_for(space, scratch, roots, address))


def _compare(
    space: Any, joined: cluster.Joined, scratch: Path, trial: Trial, result: Result, before: tuple[Report, ...], fingerprint: str | None
) -> Compared:
    # One that did not come to its own end is stopped where it stood.
    stop = frozenset({result.steps} if result.state in (State.PRUNED, State.RUNNING) and result.steps else ())
    job = dataclasses.replace(job_of(space, joined.roots), rungs=stop)
    now, last = trained(space, joined, scratch, trial, job, fingerprint)
    why = last.error or _no_value(Objectives.of(space), last.state, now)
    told = lambda r: (r.step, {name: r.metrics[name] for name in job.asked or r.metrics if name in r.metrics})  # noqa: E731
    return Compared(trial.id, tuple(map(told, before)), tuple(map(told, now)), why, result.state is State.FAIL)


def _no_value(judge: Objectives, state: State | None, reports: list[Report]) -> str | None:
    """Why a trial whose loop came to its end failed all the same, as the study has it; None if it did not."""
    curve = tuple((r.step, math.nan if judge.metric is None else r.metrics.get(judge.metric, math.nan)) for r in reports)
    others = {name: [(r.step, r.metrics[name]) for r in reports if name in r.metrics] for name in judge.asked[1:]}
    missing = judge.judge(State.COMPLETE, len(reports), curve, others, dict.fromkeys(COSTS, 0.0)).missing
    return None if state is not State.COMPLETE or missing is None else f"no value of `{missing}`"


def trained(
    space: Any, joined: cluster.Joined, scratch: Path, trial: Trial, job: Job, fingerprint: str | None, together: bool = False
) -> tuple[list[Report], Progress]:
    """Train one trial on a gang, outside of any sweep; at a rung of the job it is stopped.

    Args:
        space: of its sweep.
        joined: the Ray to train on.
        scratch: an empty folder; the trial's goes to `trial` in it, what is kept of the data to `prepared`.
        trial, job: what to run.
        fingerprint: of the data as the sweep had it; None if that is not known.
        together: on the rows of train and valid together, see `sweeps.data.data_actor`.

    Returns:
        Its reports, and what was heard of it last.

    Raises:
        InputError: the data has changed, or the trial can never run here.
        SweepsError: the process that holds the data was lost.
    """
    import ray

    from sweeps.data import data_actor
    from sweeps.execution.messages import Labels
    from sweeps.execution.pool import Pool
    from sweeps.execution.ray_train_run import ENVIRONMENT

    if problems := find_infeasible_shapes(dataclasses.replace(space, shapes=(trial.shape,)), joined.total, joined.nodes):
        raise InputError(problems)
    here = cluster.at_driver()
    pool = Pool.options(scheduling_strategy=here).remote(job, joined.total, str(scratch / "gangs"), 0, ENVIRONMENT, joined.room)
    actor = data_actor.start(joined.roots, scratch, (trial.shape.workers,), joined.cpus, here, train_on_valid=together)
    try:
        facts, holds = facts_of(actor, space, fingerprint), data_actor.process_id(actor)
        pool.configure.remote(actor, Labels(facts.label, facts.task, facts.classes))
        (scratch / "trial").mkdir()
        pool.start.remote(trial, str(scratch / "trial"))
        reports: list[Report] = []
        runner = ray.get(pool.attach.remote(trial.id))
        while True:
            news = pool.advance.remote(trial.id, runner)
            while not ray.wait([news], timeout=1.0)[0]:
                if holds is not None and not is_alive(holds):
                    raise SweepsError(data_actor.describe_loss(actor, holds))
            progress = ray.get(news)
            reports += progress.reports
            if progress.state is not None:
                return reports, progress
            if progress.rung is not None:
                pool.answer.remote(trial.id, progress.rung, False)
    finally:
        ray.get(pool.shutdown.remote())
        ray.kill(pool)
        ray.kill(actor)
