"""Run one sweep in this process, from the start of Ray to the result."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.controller.commands import CommandQueue
from sweeps.controller.deadline import EXIT_SECONDS
from sweeps.controller.session import SweepSession
from sweeps.controller.signals import Interrupt
from sweeps.controller.status import SweepStatus
from sweeps.core import clock
from sweeps.core.errors import StoreError, SweepsError
from sweeps.core.files import provenance
from sweeps.core.files.disk import check_disk_space
from sweeps.core.files.origin import valid_origin_keys
from sweeps.core.files.result_file import read_result
from sweeps.core.files.sweep_folder import RESULT, SweepFolder
from sweeps.core.host import crash_cleanup, logging_setup
from sweeps.core.host.machine_share import EVERYTHING, Share
from sweeps.core.result import SweepResult
from sweeps.core.text.command_hints import resume_command
from sweeps.execution.isolation import child_processes
from sweeps.notebook.notebook_view import StatusCallback, live_view
from sweeps.notebook.output_cell import in_notebook
from sweeps.search.configurations import most_trials
from sweeps.space import Space
from sweeps.space.python.saved_space import roots_of, save_limits
from sweeps.stored.store_mirror import StoreMirror, mirror_to_store
from sweeps.study import storage as storages
from sweeps.study.events import ArtifactSaved, SweepEnded
from sweeps.tracking import TrackerHub
from sweeps.tracking.create import NamedTracker
from sweeps.tracking.mlflow.mlflow_tracker import CLOSE_SOON, CLOSE_WITHIN, STOP_WITHIN

from . import conclusion, mlflow_summary
from .conclusion import Conclusion, prepare_export
from .resumption import earlier_result, has_work_left, refuse_unsigned_checkpoints, spent_limit
from .search_setup import deadline_of, open_search, slots_of

if TYPE_CHECKING:
    from sweeps.controller.controller import SweepController
    from sweeps.search.search_loop import SearchLoop

log = logging.getLogger(__name__)


@dataclass
class SweepRun:
    """Runs a sweep in this process.

    The sweep is new, or an earlier process started it and it is resumed.

    Attributes:
        space: The search space.
        folder: The sweep's folder.
        address: Address of a Ray cluster; None starts Ray on this machine.
        tracking_uri: MLflow tracking URI; None selects a SQLite file in the root.
        on_progress: Function to call with a `SweepStatus` a few times a second. None shows a live
            view in notebooks only.
        trust: True to read pickles in the sweep's folder even if they are not signed with this
            user's key.
        trackers: All trackers except MLflow.
        share: The CPUs and GPUs that the sweep may use. Set it before `run`.
        notes: Lines that the live view of a notebook shows above the sweep.
        ends: When the whole command must end, by the monotonic clock. None if only the limits of
            the space count.
    """

    space: Space
    folder: Path
    address: str | None = None
    tracking_uri: str | None = None
    on_progress: StatusCallback | None = None
    trust: bool = False
    trackers: Sequence[NamedTracker] = ()
    share: Share = EVERYTHING
    notes: tuple[str, ...] = ()
    ends: float | None = None

    def __post_init__(self) -> None:
        self._publish_status: StatusCallback = lambda status: None
        self._publish_end_stage: Callable[[str], None] = lambda stage: None
        self._prepares_export = False
        self._export_soon = contextlib.ExitStack()  # ends the process that checks the bundle
        last = f"\nstopped at once; to continue the sweep: {resume_command(self.folder)}\n"
        self._interrupt = Interrupt(last, keeps_process=in_notebook())
        self._mirror: StoreMirror | None = None  # None if the sweep has no store
        self._commands = CommandQueue(self.folder)
        # None until `resume` has run, or in a new sweep until the data is loaded
        self._search_loop: SearchLoop | None = None
        # When the sweep would have started if it had run without breaks, by the monotonic clock.
        self._began = clock.monotonic()

    @functools.cached_property
    def _max_trials(self) -> int:
        """Largest number of configurations that the sweep starts."""
        return most_trials(self.space)

    # Resume

    def resume(self, changed: bool) -> SweepResult | None:
        """Open the study, and clean up after the process that ran the sweep before.

        If the sweep is not new, call this method before `run`.

        Args:
            changed: True if the user passed new limits or additional trials.

        Returns:
            The result that an earlier process saved, if there are no more trials to run. None if
            `run` must be called.

        Raises:
            UntrustedFile: A trial would continue from a checkpoint with a pickle that this user's
                key has not signed.
        """
        with logging_setup.redirect_to_file(self.folder / "sweep.log"):
            ended = crash_cleanup.end_leftover_ray(self.folder)
            ended += child_processes.end(str(self.folder))
            search = self._search_loop = open_search(self.folder, self.space)
        if (earlier := read_result(self.folder)) is not None:
            limit = spent_limit(search, earlier)
            if limit or not has_work_left(earlier, search.to_run, changed):
                with self._interrupt.installed():
                    return earlier_result(search, earlier, limit, self.tracking_uri)
        refuse_unsigned_checkpoints(search, self.trust)
        if ended:
            log.warning(
                "ended %d Ray processes that an earlier run of this sweep had left behind", ended
            )
        self._began = clock.monotonic() - search.store.spent
        crash_cleanup.remove_partial_files(self.folder, search.store.checkpoints())
        return None

    # Run

    def run(self) -> SweepResult:
        """Run the sweep. This process must hold the lock on the sweep's folder.

        While the sweep runs, stdout goes to its log.
        """
        with live_view(self.on_progress, self.notes) as show:
            if show:
                self._publish_status = _keep_stdout(show)
            return self._run_with_log()

    def _run_with_log(self) -> SweepResult:
        """Run the sweep while its log gets stdout, and its store gets its files.

        An error of the storage or the database gets the command that continues the sweep.
        """
        hint = (
            "everything that the study has recorded is safe; to continue the sweep: "
            f"{resume_command(self.folder)}"
        )
        with logging_setup.redirect_to_file(self.folder / "sweep.log"), self._interrupt.installed():
            try:
                with mirror_to_store(self.folder) as self._mirror:
                    mlflow = None
                    if self.space.has_mlflow:
                        mlflow = mlflow_summary.tracker_of(
                            self.space, self.folder, self.tracking_uri
                        )
                    result = self._run(TrackerHub(self.trackers, mlflow))
                problem = self._mirror.problem if self._mirror is not None else None
                return result.with_note(problem) if problem else result
            except StoreError as e:
                raise SweepsError(f"{e}; {hint}") from e
            except SweepsError:
                raise
            except Exception as e:
                if (outage := storages.outage(e)) is not None:
                    log.exception("the sweep cannot continue")
                    raise SweepsError(f"{outage}; {hint}") from None
                e.add_note(hint)
                raise

    def _run(self, trackers: TrackerHub) -> SweepResult:
        """Start Ray, run the search, and close the trackers, also after an error."""
        import ray

        concluded: Conclusion | None = None
        report = ""
        timeout = CLOSE_WITHIN
        self._commands.discard_stale()
        try:
            stage = "connecting to Ray" if self.address or ray.is_initialized() else "starting Ray"
            self._publish_stage(stage, () if self._search_loop else self._learned_from)
            began = clock.monotonic()
            with self._export_soon, self._session() as session:
                self._interrupt.install()
                start = clock.monotonic() - began
                concluded = self._search(session, trackers, start)
                trackers.publish(ArtifactSaved(clock.time(), RESULT, concluded.result.as_text()))
                # The trackers handle it while Ray shuts down.
                report = self._write_report(concluded, trackers)
        except Exception as e:
            if storages.outage(e) is not None:  # MLflow may use the same database.
                timeout = CLOSE_SOON
            raise
        finally:
            try:
                check_disk_space(self.folder)
            except OSError:  # By default, MLflow's artifacts are on the same disk.
                timeout = CLOSE_SOON
            end = SweepEnded(clock.time(), None)
            if concluded is not None:
                end = SweepEnded(concluded.ended, concluded.result, concluded.best, report)
            trackers.publish(end)
            if self._interrupt.asked:
                timeout = min(timeout, STOP_WITHIN)
            until = math.inf
            if self.ends is not None:  # A resume sends the data that MLflow misses.
                until = max(self.ends - EXIT_SECONDS, clock.monotonic() + CLOSE_SOON)
            notes = trackers.close(timeout, self._publish_end_stage, until)
        result = replace(concluded.result, notes=(*concluded.result.notes, *notes))
        result = mlflow_summary.save_result(result, concluded.ended, trackers)
        if concluded.error is not None:
            concluded.error.result = result
            raise concluded.error
        return result

    def _show(self, status: SweepStatus) -> None:
        """Publish a status of the search. When the first trial runs, prepare the export."""
        if status.rows and not self._prepares_export:
            self._prepares_export = True
            prepare_export(self.space, self._export_soon)
        self._publish_status(status)

    def _session(self) -> SweepSession:
        """Return the session (Ray, worker pool and data actor), which is not started yet."""
        uri = mlflow_summary.absolute_uri(self.tracking_uri, self.folder)
        return SweepSession(
            self.space,
            self.folder,
            roots_of(self.space),
            self.address,
            job={"tracking": uri if self.space.has_mlflow else None},
            max_failures=self.space.limits.max_failures,
            share=self.share,
            # None if the sweep is new.
            fingerprint=self._search_loop.store.data if self._search_loop is not None else None,
        )

    def _search(self, session: SweepSession, trackers: TrackerHub, start: float) -> Conclusion:
        """Search the space and export the best trial.

        `start` is the number of seconds that the start of the session took.
        """
        from sweeps.controller.controller import SweepController
        from sweeps.controller.pool_monitor import PoolMonitor
        from sweeps.search.cells import first_shapes

        space = self.space
        max_trials = self._max_trials
        # A population takes turns on the slots.
        fixed = space.limits.max_concurrent_trials or space.scheduler.population
        concurrency = fixed or slots_of(space, session.cluster.total)
        # Nodes may join a cluster that the sweep did not start. The number of slots then grows.
        may_grow = fixed is None and not session.cluster.ours
        shapes = first_shapes(space, min(concurrency, max_trials))
        session.warm_workers(shapes)
        search = self._load_data(session, trackers)
        if self._mirror is not None:
            self._mirror.pool = session.pool
        controller = SweepController(
            search=search,
            pool=session.pool,
            trackers=trackers,
            began=self._began,
            interrupted=self._is_interrupted,
            publish_status=self._show,
            configure_pool=session.configure_pool,
            monitor=PoolMonitor(session.pool, self.folder, session.prefit(shapes)),
            slots=concurrency if may_grow else None,
            slots_of=functools.partial(slots_of, space) if may_grow else None,
            deadline=deadline_of(session, self.ends, start),
        )
        self._run_trials(controller, max_trials if may_grow else concurrency)
        notes = (*self._learned_from, *session.dataset.notes)
        return conclusion.conclude(controller, session, self.trust, notes=notes)

    def _run_trials(self, controller: SweepController, concurrency: int) -> None:
        """Run the trials of a search with Ray Tune. Raise the error that ended it.

        `concurrency` is the largest number of trials that Ray Tune starts in parallel.
        """
        from sweeps.execution.ray_apis import tune_adapter

        self._publish_end_stage = controller.publish_stage
        # This queue has discarded the commands that earlier processes of the sweep got.
        controller.commands.queue = self._commands
        if self._mirror is not None and controller.trials.cleaner is not None:
            controller.trials.cleaner.before_delete = self._mirror.save_study
        failed = True
        try:
            controller.finish_leftover_trials()
            search = controller.search
            if controller.reason is None and search.to_run:
                # -1: trials that the scheduler pauses start again as further samples of Ray Tune.
                samples = -1 if search.scheduler.pauses else search.to_run
                tune_adapter.run(controller, controller.pool, self.folder, concurrency, samples)
                controller.publish_stage(None)
            failed = False
        finally:
            controller.close(failed)
            if self._mirror is not None:
                self._mirror.detach()
        conclusion.raise_refusal(controller)

    def _is_interrupted(self) -> bool:
        """Return whether the user asked to stop the sweep, or another process has continued it."""
        return self._interrupt.asked or (self._mirror is not None and self._mirror.taken_over)

    @property
    def _learned_from(self) -> tuple[str, ...]:
        """A message for each earlier sweep from which this sweep learns."""
        sweeps = valid_origin_keys(self.folder).get("learned_from", ())
        return tuple(f"learns from {text}" for text in sweeps)

    def _load_data(self, session: SweepSession, trackers: TrackerHub) -> SearchLoop:
        """Load the data, open the study, and tell the trackers that the sweep has started."""
        resumed = self._search_loop is not None
        if self.space.data.is_named:
            self._publish_stage("reading the data")
        info = session.load_data()
        if not resumed and info.summary is not None:
            from sweeps.data.summary.summary_text import data_messages

            messages = data_messages(info.summary, self.space)
            log.info("%s", "\n".join(messages))
            self._publish_stage("reading the data", messages)
        search = self._search_loop = self._search_loop or open_search(self.folder, self.space)
        search.store.record_data(info.fingerprint)
        now = clock.time()
        files = provenance.record(
            self.folder, self.space.data.base, self.space.search.seed, info.fingerprint, now
        )
        if resumed:  # All checks that can refuse the resume are done.
            save_limits(self.folder, self.space)
            SweepFolder(self.folder).result.unlink(missing_ok=True)
        trackers.publish(
            mlflow_summary.started_event(self.folder, self.space, info.fingerprint, now, resumed)
        )
        for name, text in files.items():
            trackers.publish(ArtifactSaved(now, name, text))
        return search

    def _publish_stage(self, stage: str, messages: tuple[str, ...] = ()) -> None:
        """Publish a status with the current phase of the sweep, and messages.

        Call this method only before the first trial starts.
        """
        search = self._search_loop
        ended = [] if search is None else search.budget.ended
        objective = self.space.objective
        self._publish_status(
            SweepStatus(
                states=Counter(state.value for state in ended),
                total=self._max_trials if search is None else search.queue.known_total,
                seconds=clock.monotonic() - self._began,
                name=self.folder.name,
                metric=objective.metric,
                goal=objective.goal,
                stage=stage,
                messages=messages,
            )
        )

    def _write_report(self, concluded: Conclusion, trackers: TrackerHub) -> str:
        """Write the report and return its Markdown, or "" if the report could not be written."""
        from sweeps.sweep_report import content

        written = content.write(self.folder, self.space, concluded.result)
        if written is None:
            return ""
        for name, text in (("report.md", written.markdown), ("report.html", written.html)):
            trackers.publish(ArtifactSaved(clock.time(), name, text))
        return str(written.markdown)


def _keep_stdout(callback: StatusCallback) -> StatusCallback:
    """Return a function that calls `callback` with the present stdout, also after a redirection."""
    stdout = sys.stdout

    def call(status: SweepStatus) -> None:
        with contextlib.redirect_stdout(stdout):
            callback(status)

    return call
