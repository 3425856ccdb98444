"""The driver of one sweep, in order: Ray, data, search, export, record. Wires everything below once."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.controller import mlflow_summary, outcome
from sweeps.controller.status import starting_status
from sweeps.core import crash_cleanup, logging_setup, provenance, references
from sweeps.core.atomic_files import write_text
from sweeps.core.command_hints import resume_command
from sweeps.core.disk import check_disk_space
from sweeps.core.errors import InputError, SweepsError
from sweeps.core.resources import COSTS, concurrency
from sweeps.core.result import SweepResult, relocate
from sweeps.core.signals import Interrupt
from sweeps.core.sweep_folder import RESULT, SCRATCH, SweepFolder
from sweeps.core.trial import Trial
from sweeps.data.metric_checks import check_metrics
from sweeps.data.preflight import locate_problems
from sweeps.execution import child_processes, cluster
from sweeps.plan import find_infeasible_shapes
from sweeps.search.plugins import scheduler_of
from sweeps.search.schedulers.base import all_rungs
from sweeps.space import Space, known_fits
from sweeps.space.saved_space import roots_of, save_limits
from sweeps.study import budgets, repeats
from sweeps.study import storage as storages
from sweeps.tracking import TrackerHub
from sweeps.tracking.create import NamedTracker
from sweeps.tracking.events import ArtifactSaved, SweepEnded
from sweeps.tracking.mlflow.tracker import CLOSE_SOON, CLOSE_WITHIN, STOP_WITHIN

if TYPE_CHECKING:
    from sweeps.core.folder_lock import FolderLock
    from sweeps.data.prepared_store import DatasetInfo
    from sweeps.execution.messages import Job

log = logging.getLogger(__name__)

LOW_ON_MEMORY = "running low on memory"  # so says Ray
# A Tune trial must ask for something; a CPU would be taken from the workers.
RUNNER_MEMORY = 16 * 2**20


def _spoken(on_progress: Callable[[Any], None]) -> Callable[[Any], None]:
    """The user's callback, which may print: standard output is turned to the log while a sweep runs, but not for it."""
    stdout = sys.stdout

    def speak(snapshot: Any) -> None:
        with contextlib.redirect_stdout(stdout):
            on_progress(snapshot)

    return speak


class SweepSession:
    """Drives one sweep, whether it begins or goes on."""

    def __init__(self, space, root, folder, began, address, tracking_uri, on_progress, trust=False, trackers=()):
        self.space: Space = space
        self.root: Path = root
        self.folder: Path = folder
        self.begun: float = began  # by its first driver
        self.began: float = began  # as if it had been driven without a break
        self.address: str | None = address
        self.uri = tracking_uri
        self.own_trackers: Sequence[NamedTracker] = trackers  # all but MLflow
        self.trust: bool = trust  # pickles of the folder that no key of this user's has signed
        self.on_progress = _spoken(on_progress) if on_progress else lambda snapshot: None
        self.interrupt = Interrupt(f"\nstopped at once; to go on: {resume_command(folder)}\n")
        self.search: Any = None
        self.front_before: set[int] = set()  # the trials of the front that an earlier driver came to
        # Of a sweep that is searched to its end, and of which MLflow missed something: what it came to, and why it does not go on
        self.over: tuple[SweepResult, str] | None = None
        self.roots = roots_of(space)
        self.drawing: Any = None  # of the report, which is written at the very end
        self.winner: Trial | None = None
        self.report = ""  # in Markdown
        self.trackers = TrackerHub()
        self.ended: float | None = None  # when the search came to its end

    def take_up(self, changed: bool) -> SweepResult | None:
        """Read what is on record, and put away what the last driver has left behind.

        Args:
            changed: the limits are others than before.

        Returns:
            What the sweep came to, if nothing is left to do.
        """
        with logging_setup.redirect_to_file(self.folder / "sweep.log"):
            ended = crash_cleanup.end_leftover_ray(self.folder) + child_processes.end(str(self.folder))
            self.search = self._open_search()
        said = _said(SweepFolder(self.folder).result)
        spent = self._spent(said) if said is not None else None
        if said is not None and (spent or not outcome.goes_on(said, self.search.to_run, changed)):
            reason = said.get("reason")
            if spent and (reason or "").partition(":")[0] != spent.partition(":")[0]:  # another limit than the one that ended it
                reason = spent
            before, note = SweepResult.from_json(relocate(said, self.folder)), _nothing_left(reason)
            if not before.mlflow.get("missed"):
                return before.with_note(note)
            self.over = before, note
        self.front_before = {int(trial["trial"]) for trial in (said or {}).get("front") or ()}
        if ended:
            log.warning("%d processes of the last driver's Ray were ended", ended)
        self.began = time.time() - self.search.store.spent
        crash_cleanup.remove_partial_files(self.folder, self.search.store.checkpoints())
        return None

    def _spent(self, said: dict[str, Any]) -> str | None:
        """The limit that ends the search before a trial is begun, if one does: of trials more were asked for, of that no more."""
        limits, course = self.space.limits, self.search.budget
        if self.search.interrupted or not self.search.to_run or not (said.get("best") or said.get("front")):
            return None
        course.forgive_failures(limits)
        return (
            "limits.timeout"
            if limits.timeout is not None and self.search.store.spent > limits.timeout
            else budgets.exhausted(limits, course)
        )

    def _open_search(self) -> Any:
        from sweeps.search.search_loop import SearchLoop

        # Of 10,000 trials a quarter of the time is the collector's, which looks again and again at what is only being read
        collects = gc.isenabled()
        gc.disable()
        try:
            return SearchLoop.open(self.folder, self.space)
        finally:
            if collects:
                gc.enable()

    def run(self, lock: FolderLock | None = None) -> SweepResult:
        """From here on all that is printed goes to the sweep's log.

        Args:
            lock: on the sweep's folder, if it is held already.
        """
        from sweeps.core.folder_lock import FolderLock

        lock = lock or FolderLock(self.folder)
        with logging_setup.redirect_to_file(self.folder / "sweep.log"), self.interrupt.listening():
            try:
                return self._run()
            except (SweepsError, KeyboardInterrupt):
                raise
            except Exception as e:
                safe = f"what is on record is safe; to go on: {resume_command(self.folder)}"
                if (why := storages.outage(e)) is not None:
                    log.exception("the sweep cannot go on")
                    raise SweepsError(f"{why}; {safe}") from None
                e.add_note(safe)
                raise
            finally:
                lock.release()

    def _run(self) -> SweepResult:
        from sweeps import report

        self.trackers = self._trackers()
        if self.over is not None:
            return self._send_to_mlflow(*self.over)
        result: SweepResult | None = None
        patience = CLOSE_WITHIN
        try:
            self._say("starting Ray")
            with cluster.ray_for(self.space, self.folder, self.roots, self.address) as joined:
                self.interrupt.again()
                result, error = self._search(joined)
            self.trackers.publish(ArtifactSaved(time.time(), RESULT, result.as_text()))
            made = report.write(self.folder, self.space, result, self.drawing)
            for name, text in (("report.md", made.markdown), ("report.html", made.html)) if made is not None else ():
                self.trackers.publish(ArtifactSaved(time.time(), name, text))
            self.report = made.markdown if made is not None else ""
        except Exception as e:
            if storages.outage(e) is not None:  # which MLflow may share
                patience = CLOSE_SOON
            raise
        finally:
            try:
                check_disk_space(self.folder)
            except OSError:  # MLflow's artifacts lie on the same disk by default, and a full disk stays full
                patience = CLOSE_SOON
            ended = self.ended or time.time()
            self.trackers.publish(SweepEnded(ended, result, self.winner, self.report, frozenset(self.front_before)))
            notes = self.trackers.close(min(patience, STOP_WITHIN) if self.interrupt.asked else patience)
        assert result is not None
        for note in notes:
            result = result.with_note(note)
        if self.trackers.mlflow is not None:
            result = mlflow_summary.add_mlflow(self.trackers.mlflow, self.trackers.mlflow_complete, result, ended)
        else:
            result = result.with_note("MLflow has no runs of this sweep: `trackers` does not list mlflow")
            write_text(SweepFolder(self.folder).result, result.as_text())
        if error is not None:
            error.result = result
            raise error
        return result

    def _send_to_mlflow(self, before: SweepResult, note: str) -> SweepResult:
        """Send what MLflow missed of a sweep with nothing left to do."""
        assert self.trackers.mlflow is not None, "only MLflow can have missed something"
        best = self.search.store.trial(int(before.best["trial"])) if before.best else None
        others = self.search.store.results() if before.front else ()  # an earlier driver may have had them in the front
        fingerprint = self.search.store.data or ""
        return mlflow_summary.send_again(self.trackers.mlflow, self.folder, self.space, fingerprint, before, best, others).with_note(note)

    def _trackers(self) -> TrackerHub:
        from sweeps import tracking

        if not self.space.has_mlflow:
            return TrackerHub(self.own_trackers)
        log_file = self.folder / "sweep.log"
        mlflow = tracking.TrackerProcess(self.tracking, self.root, self.space.name, self.folder.name, self.begun, log_file)
        return TrackerHub(self.own_trackers, mlflow)

    @property
    def tracking(self) -> str:
        """MLflow's tracking URI, which workers understand as well, whatever folder they are in."""
        from sweeps.tracking import default_uri

        uri = self.uri or default_uri(self.root)
        scheme, there, file = uri.partition(":///")
        return f"{scheme}:///{Path(file).absolute()}" if there and scheme.startswith("sqlite") else uri

    def _say(self, stage: str) -> None:
        """What goes on before the first trial."""
        limit, stops = self.space.limits.max_trials, bool(scheduler_of(self.space.scheduler).rungs())
        total = self.search.queue.known_total if self.search is not None else repeats.known_total(limit, 0, 0, self.space.repeats, stops)
        self.on_progress(starting_status(self.space, total, self.folder.name, self.began, stage))

    def _search(self, joined: cluster.Joined) -> tuple[SweepResult, SweepsError | None]:
        """The search and the export; what came of it, and what is wrong with that."""
        import ray

        from sweeps.controller.controller import SweepController
        from sweeps.data import data_actor
        from sweeps.execution.messages import Labels
        from sweeps.execution.pool import Pool
        from sweeps.execution.ray_train_run import ENVIRONMENT
        from sweeps.search.cells import first_shapes

        space, taken_up = self.space, self.search is not None
        if problems := find_infeasible_shapes(space, joined.total, list(joined.nodes)):
            raise InputError(problems)
        relocate = cluster.at_driver()
        job = replace(job_of(space, joined.roots), tracking=self.tracking if space.has_mlflow else None)
        storage, failures = str(self.folder / "gangs"), space.limits.max_failures
        pool = Pool.options(scheduling_strategy=relocate).remote(job, joined.total, storage, failures, ENVIRONMENT, joined.room)
        room = concurrency(space.shapes, joined.total, space.limits.max_trials)
        at_once = space.limits.max_concurrent_trials or space.scheduler.population or room  # members of a population take turns
        shapes = first_shapes(space, min(at_once, space.limits.max_trials))
        if joined.ours:  # elsewhere the tasks that read, and may fit, need the CPUs first
            pool.warm.remote(shapes)
        workers = tuple(sorted({shape.workers for shape in space.shapes}))
        numbers = space.trainer_definition.reads_numbers
        fits = known_fits(space)
        modules = sorted({step.name.partition(":")[0] for _, chain in fits for step in chain if step.name.startswith("sklearn.")})
        actor = data_actor.start(joined.roots, self.folder, workers, joined.cpus, relocate, numbers, modules=modules)
        try:
            if space.data.given:
                self._say("reading the data")
            facts = facts_of(actor, space, self.search.store.data if taken_up else None)
            holds = data_actor.process_id(actor)
            labels = Labels(facts.label, facts.task, facts.classes)
            if problems := check_metrics(space, facts.task):
                raise locate_problems(space, problems)

            def introduce() -> None:
                pool.configure.remote(actor, labels)

            introduce()
            search = self.search = self.search or self._open_search()
            search.store.record_data(facts.fingerprint)
            now, git = time.time(), provenance.git(space.data.base)
            files = provenance.record(self.folder, space.data.base, space.search.seed, facts.fingerprint, now)
            if taken_up:  # now that nothing speaks against it
                save_limits(self.folder, space)
                SweepFolder(self.folder).result.unlink(missing_ok=True)
            self.trackers.publish(mlflow_summary.sweep_started(self.folder, space, facts.fingerprint, git, now, taken_up))
            for name, text in files.items():
                self.trackers.publish(ArtifactSaved(now, name, text))
            conductor = SweepController(search, pool, self.trackers, self.began, lambda: self.interrupt.asked, self.on_progress, introduce)
            conductor.data_actor = holds
            conductor.prefit = pool.prefit.remote(fits, () if joined.ours else shapes)
            try:
                self._tune(conductor, at_once, min(at_once, room))
            finally:
                conductor.close()
            if conductor.refused is not None:
                raise locate_problems(space, conductor.refused.problems)
            if not joined.ours:  # our own Ray is shut down as a whole
                ray.get(pool.shutdown.remote())
            try:  # of the data actor, which can import what the chains are made of
                fitted = 0 if conductor.reason == data_actor.LOST_MESSAGE else ray.get(actor.count.remote())
            except ray.exceptions.RayActorError:
                conductor.reason = data_actor.LOST_MESSAGE
            if conductor.reason == data_actor.LOST_MESSAGE:
                raise SweepsError(f"{data_actor.describe_loss(actor, holds)}. To go on: {resume_command(self.folder)}")
            return self._conclude(conductor, fitted, facts.notes)
        finally:
            ray.kill(pool)
            ray.kill(actor)
            child_processes.end(str(self.folder))  # on this machine, of workers that were lost
            for scratch in SCRATCH:
                shutil.rmtree(self.folder / scratch, ignore_errors=True)

    def _tune(self, conductor: Any, at_once: int, slots: int) -> None:
        """Search, under Ray Tune: so many trials at once, of which so many find room; the others wait."""
        from ray import tune

        from sweeps.execution.tune_bridge import StudySearcher, VerdictScheduler
        from sweeps.execution.tune_runner import Runner

        limits = self.space.limits
        conductor.settle()
        if conductor.reason is not None or not conductor.search.to_run:  # all that is missing is the end
            return
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(Runner, pool=conductor.pool, slots=slots), {"memory": RUNNER_MEMORY}),
            tune_config=tune.TuneConfig(
                search_alg=StudySearcher(conductor),
                scheduler=VerdictScheduler(conductor),
                num_samples=-1
                if conductor.scheduler.pauses
                else conductor.search.to_run,  # a paused trial starts again as another of Tune's
                max_concurrent_trials=at_once,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self.folder),
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=limits.max_failures),
            ),
        )
        try:
            tuner.fit()
        except Exception as e:
            if conductor.broke is not None:  # of which Tune made text
                raise conductor.broke  # noqa: B904 - with the cause that it has
            if LOW_ON_MEMORY in str(e):  # a cluster's monitor, which takes the light processes first
                log.exception("the memory ran low")
                text = "Ray has ended processes of the sweep, as a node ran low on memory; what is on record is safe. To go on, with fewer"
                raise SweepsError(f"{text} trials at once: {resume_command(self.folder)} --set limits.max_concurrent_trials=N") from None
            raise
        self.on_progress(conductor.status())

    def _conclude(self, conductor: Any, fits: int, said: tuple[str, ...]) -> tuple[SweepResult, SweepsError | None]:
        """Export the winner, and return the result."""
        from sweeps.controller import trial_export
        from sweeps.report import Drawing

        self.drawing = Drawing(self.folder, storages.environment(self.folder))  # while the winner is exported and Ray shut down
        study_store, failures, reason = conductor.study_store, conductor.progress.failures, conductor.reason
        results, number, front = study_store.results(), study_store.winner(), study_store.front()
        counts = outcome.counts(results.values())
        chosen = next(iter(front), number)
        self.on_progress(conductor.status("writing the report" if number is None else "exporting the winner"))
        best = None if chosen is None else results[chosen]
        notes = (*said, *outcome.notes(counts, failures, self.space.constraints, best, bool(front)))
        done, error = None, None
        if number is not None:
            self.winner = study_store.trial(number)
            done = trial_export.export_trial(self.folder, self.space, study_store, number, self.folder, self.roots, trust=self.trust)
            notes, error = (*notes, *done.notes), done.error
        elif not front:
            error = outcome.failed(counts, failures, reason, self.folder)
        result = SweepResult(
            sweep=self.folder.name,
            dir=self.folder,
            trials=counts,
            best=done.best if done else None,
            bundle=done.bundle if done else None,
            checkpoint=done.checkpoint if done else None,
            mlflow=mlflow_summary.place(self.trackers.mlflow) if self.trackers.mlflow is not None else {},
            fits=fits,
            seconds=round(time.time() - self.began, 2),
            reason=reason,
            notes=notes,
            front=tuple(trial_export.described(study_store, n) for n in front),
            freed=conductor.cleaner.freed.to_json() if conductor.cleaner else None,
        )
        self.ended = time.time()
        self.on_progress(conductor.status("writing the report"))
        return result, error


def _nothing_left(reason: str | None) -> str:
    """Why a sweep does not go on, and what would make it."""
    if reason:
        return f"nothing was left to do: it ended by {reason}; --set limits.KEY=VALUE changes a limit"
    return "nothing was left to do: every trial has ended; --add-trials N adds trials"


def _said(file: Path) -> dict[str, Any] | None:
    """The result that an earlier driver has left; None if there is none that can be read."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def facts_of(actor: Any, space: Space, before: str | None) -> DatasetInfo:
    """Read the data and return its facts. If the loop reads its own data, the fingerprint is that of the loop's code.

    Args:
        actor: see `sweeps.data.data_actor`.
        space: of the sweep.
        before: the fingerprint that the sweep was begun with; None if it is being begun.

    Raises:
        InputError: the data cannot be read, or has changed. Code that has changed is noted: what it reads may well be the same.
        SweepsError: the data actor was lost.
    """
    import ray

    from sweeps.bundle.requirements import fingerprint
    from sweeps.data import data_actor

    if space.data.given:
        return data_actor.load(actor, space, before)
    loop, load = space.trainer.loop, space.trainer.load
    now = fingerprint([references.parse(name)[0] for name in (loop, load) if name is not None], roots_of(space))
    notes: tuple[str, ...] = ()
    if before is not None and now != before:
        said = f"the code of `{loop}` has changed since the sweep began (its fingerprint was {before[:12]}, now it is {now[:12]})"
        notes = (f"{said}; trials before and after the change may not be comparable",)
        log.warning(notes[0])
    return ray.get(actor.without_data.remote(now, notes))


def job_of(space: Space, roots: tuple[str, ...]) -> Job:
    """What is the same for all trials of a space; `roots` are the folders of the user's modules."""
    from sweeps.execution.messages import Job
    from sweeps.study.objectives import Objectives

    scheduler, judge = scheduler_of(space.scheduler), Objectives.of(space)
    rungs = all_rungs(scheduler)
    return Job(
        sweep=space.name,
        loop=space.trainer.loop,
        backend=space.trainer.backend,
        reuse=space.trainer.reuse,
        goals={o.metric: o.goal for o in space.objectives if o.metric not in COSTS},
        roots=roots,
        metric=judge.metric,
        goal="minimize" if judge.minimize else "maximize",
        asked=judge.asked,
        max_t=scheduler.max_t,
        rungs=rungs if isinstance(rungs, range) else frozenset(rungs),
        milestones=(rungs if isinstance(rungs, range) else frozenset(rungs)) if scheduler.needs_checkpoint else range(0),
        trial_timeout=space.limits.trial_timeout,
        report_timeout=space.limits.report_timeout,
        retry_on=space.limits.retry_on,
        keep_latest=max(1, space.checkpoints.per_trial - 1),
    )
