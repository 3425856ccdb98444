"""Session of a running trial on one rank, which the training loop uses through `ray.train`."""

import contextlib
import math
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.train
from ray.data import DataIterator

from sweeps.core import loop_context
from sweeps.core.best_step import UNKNOWN
from sweeps.core.errors import shorten
from sweeps.core.files.checkpoint_files import checkpoint_root_in, local_checkpoint
from sweeps.core.loop_context import take_step
from sweeps.core.text.secrets import hide_known
from sweeps.core.trial import Checkpoint, Report
from sweeps.execution.isolation import user_code
from sweeps.execution.messages import Assignment, Job, Ranks, RankUpdate, Silence

from .dataset_cache import DatasetCache
from .loop_errors import CheckpointIgnored, LoopStopped, MetricMissing
from .metric_values import find_unbeatable, flatten, numbers_in, quote
from .store_checkpoint import store_checkpoint

# After this many seconds without a report, the worker sends the stack of the loop to the pool.
SILENT_AFTER = 300.0


class TrialSession:
    """One attempt at a trial on one rank.

    The functions of `ray.train` in the loop call this object.

    Args:
        pool: Handle of the pool.
        job: Settings that all trials of the sweep share.
        assignment: The attempt.
        cache: The worker's cache of the trial's data.

    Attributes:
        name: Name of the sweep, a hyphen and the id of the trial.
        folder: The trial's folder.
        step: Step of the latest report. Before the first report, it is the step of the checkpoint
            from which the attempt continues, or 0.
        cache: The worker's cache of the trial's data.
        stopped: True if `report` has raised `LoopStopped`.
        stops: True if the next report must raise `LoopStopped`, because the driver has ended the
            trial.
        reports: Number of reports in this attempt.
        best: The checkpoint with the best model of this attempt; None if there is none.
        best_predictions: The predictions that the loop reported last before the checkpoint `best`.
        train_stream: This rank's part of `train`, if the data is streamed to a gang of several
            workers; else None.
    """

    def __init__(self, pool: Any, job: Job, assignment: Assignment, cache: DatasetCache):
        self.pool = pool
        self.ranks: Ranks = assignment.ranks
        self.job = job
        self.assignment = assignment
        self.cache = cache
        self.name = f"{job.sweep}-{assignment.trial.id}"
        self.folder = assignment.folder
        self.step = 0
        self.stopped = False
        self.stops = False
        self.reports = 0
        self.best: Checkpoint | None = None
        self.best_predictions: np.ndarray | None = None
        self._keys: dict[int, tuple[int, float]] = {}  # see `StepOrder.key`, by step
        self.train_stream: DataIterator | None = None
        self._lock = threading.Lock()
        self._recorded_step = 0
        self._acknowledged_step = 0
        # The reports and checkpoints that the pool has not acknowledged
        self._reports: list[Report] = []
        self._checkpoints: list[Checkpoint] = []
        # True if rank 0's loop continues from its checkpoint; None before the first report
        self._resumed: bool | None = None
        self._has_read_checkpoint = False
        self._closing = contextlib.ExitStack()
        self._local: Path | None = None  # local copy of the checkpoint to continue from
        self._exchanges = 0  # number of exchanges between ranks so far
        self._thread = threading.get_ident()  # the thread that runs the loop
        self._began = time.monotonic()
        self._last_report = self._began  # infinite while the loop waits for a decision
        self._admitted = False  # True if `admit` was called since the last call of `send_if_new`
        self._silent_for = 0.0  # largest time limit that was exceeded since the latest report

    @property
    def seconds(self) -> float:
        """Seconds since the start of the attempt."""
        return time.monotonic() - self._began

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.ranks.rank

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: ray.train.Checkpoint | None,
        step: int | None = None,
    ) -> None:
        """Record a report of the loop. At a rung, wait for the driver's decision.

        Args:
            metrics: Dict of metrics, which may be nested.
            checkpoint: Checkpoint to copy into the trial's folder; None to report without a
                checkpoint.
            step: Step of the report. None for the step that `take_step` returns.

        Raises:
            LoopStopped: The trial ends at this step.
            TypeError: `metrics` is not a dict.
            ValueError: The report of rank 0 lacks the objective's metric, the metric is not a
                number, the value of an objective is infinitely good, the step is wrong (see
                `take_step`), or the loop does not continue from its checkpoint, although the
                scheduler needs this.
        """
        self._refuse_invalid(metrics)
        self._resolve_resumption()
        self._last_report = time.monotonic()
        self._silent_for = 0.0
        self.step = take_step(self.step) if step is None else step
        self.reports += 1
        saved = None if checkpoint is None else store_checkpoint(checkpoint, self.step, self._root)
        numbers = self._checked_numbers(metrics, self.step)
        self._keys[self.step] = self.job.order.key(numbers)
        if saved is not None and self._key_of(saved) <= self._key_of(self.best):
            self.best = saved
            self.best_predictions = loop_context.current().predictions
        with self._lock:
            self._recorded_step = self.step
            if saved is not None:
                self._checkpoints.append(saved)
            if self.rank == 0:
                self._reports.append(Report(self.step, numbers, time.time()))
        if saved is not None:
            self._send()
        must_ask = self.step in self.job.rungs or self.assignment.may_change_size
        if self.finished or self.stops or (must_ask and not self._may_continue()):
            self.stopped = True
            raise LoopStopped(self.finished)

    def admit(self, metrics: Any, step: int) -> dict[str, float]:
        """Check a report of the loop in a `RankLoop`, and return its numbers.

        The report does not leave this process.

        Args:
            metrics: The argument that the loop passed to `report`.
            step: Step of the report in the run.

        Raises:
            LoopStopped, TypeError, ValueError: See `report`.
        """
        self._refuse_invalid(metrics)
        self._last_report = time.monotonic()
        self._silent_for = 0.0
        self._admitted = True
        if self.stops:
            self.stopped = True
            raise LoopStopped(self.finished)
        return self._checked_numbers(metrics, step)

    def _refuse_invalid(self, metrics: Any) -> None:
        """Raise an error if a report is not a dict, or if the trial has ended."""
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"`report` takes a dict of metrics, such as {{'loss': 0.5}}, but got "
                f"{type(metrics).__name__}: {quote(metrics)}"
            )
        if self.stopped:  # The loop has caught the first `LoopStopped`.
            raise LoopStopped(self.finished)

    def _resolve_resumption(self) -> None:
        """At the first report, ask the pool whether rank 0's loop continues from its checkpoint.

        If so, the steps continue after the step of the checkpoint. Otherwise, they begin with 1.

        Raises:
            CheckpointIgnored: The loop does not continue from its checkpoint under PBT.
        """
        checkpoint = self.assignment.checkpoint
        if checkpoint is None or self._resumed is not None:
            return
        self._resumed = ray.get(
            self.pool.resumed.remote(self.assignment.id, self.rank, self._has_read_checkpoint)
        )
        self.step = checkpoint.step if self._resumed else 0
        if self.job.milestones and not self._resumed:
            raise CheckpointIgnored(
                "the scheduler needs a loop that continues from its checkpoint, but this loop did "
                "not call `ray.train.get_checkpoint()`"
            )

    def _checked_numbers(self, metrics: Mapping[Any, Any], step: int) -> dict[str, float]:
        """Return the metrics that are numbers. On rank 0, check the objectives.

        Secrets in the names are hidden, except in names that the space file has, too.

        Raises:
            ValueError: See `report`.
        """
        flat = flatten(metrics)
        numbers = {
            name if name in self.job.asked else hide_known(name): number
            for name, number in numbers_in(flat).items()
        }
        if self.rank != 0:
            return numbers
        metric = self.job.metric
        if metric in flat and metric not in numbers:
            raise ValueError(
                f"the objective's metric `{metric}` must be a number, got {quote(flat[metric])} at "
                f"step {step}"
            )
        if metric is not None and metric not in numbers:
            missing = (
                f"the objective's metric `{metric}` was not reported at step {step}; the loop "
                f"reported: {', '.join(sorted(flat)) or 'nothing'}"
            )
            raise (MetricMissing if step == 1 else ValueError)(missing)
        if (name := find_unbeatable(numbers, self.job.goals)) is not None:
            raise ValueError(
                f"the metric `{name}` is {numbers[name]} at step {step}, a value that no trial "
                "could beat; report a finite value, or nan if there is no value"
            )
        return numbers

    def _may_continue(self) -> bool:
        """Ask the pool whether the loop continues after the latest report."""
        self._last_report = math.inf
        try:
            update = self.unacknowledged()
            continues: bool = ray.get(self.pool.may_continue.remote(self.assignment.id, update))
            self._acknowledge(update.step)
            return continues
        finally:
            self._last_report = time.monotonic()

    @property
    def finished(self) -> bool:
        """True if the trial has reached the step at which every trial ends (`max_t`)."""
        max_t = self.job.max_t_of(self.assignment.trial)
        return max_t is not None and self.step >= max_t

    def _send(self) -> None:
        """Send the unacknowledged reports and checkpoints to the pool without waiting.

        Later messages contain the same reports and checkpoints until the pool acknowledges them.
        """
        update = self.unacknowledged()
        sent = self.pool.record_update.remote(self.assignment.id, update)
        sent.future().add_done_callback(
            lambda answer: self._acknowledge(update.step) if answer.exception() is None else None
        )

    def unacknowledged(self) -> RankUpdate:
        """Return all reports and checkpoints that the pool has not acknowledged."""
        with self._lock:
            return RankUpdate(
                self.rank, self._recorded_step, tuple(self._reports), tuple(self._checkpoints)
            )

    def _acknowledge(self, step: int) -> None:
        """Forget the reports and checkpoints up to a step, because the pool has recorded them."""
        with self._lock:
            self._acknowledged_step = max(self._acknowledged_step, step)
            self._reports = [report for report in self._reports if report.step > step]
            self._checkpoints = [saved for saved in self._checkpoints if saved.step > step]

    def send_if_new(self) -> None:
        """Send the unacknowledged reports and checkpoints, if there are any.

        If the loop has made reports that do not leave this process, send a message without reports.
        The pool then knows that this rank is not silent.
        """
        admitted = self._admitted
        self._admitted = False
        if admitted or self._acknowledged_step != self._recorded_step:
            self._send()

    def check_silence(self) -> None:
        """Send a notice to the pool if the loop has not reported for a long time.

        The notice has the loop's stack, and is also written to the trial's log. There are two time
        limits: `SILENT_AFTER` and `limits.report_timeout`. Between two reports, each limit causes
        at most one notice.
        """
        seconds = time.monotonic() - self._last_report
        limits = (SILENT_AFTER, self.job.report_timeout or math.inf)
        exceeded = max((limit for limit in limits if limit <= seconds), default=0.0)
        if exceeded > self._silent_for:
            self._silent_for = exceeded
            silence = Silence(self.rank, seconds, stack_of(self._thread))
            print(f"--- {silence}", file=sys.stderr, flush=True)
            self.pool.record_silence.remote(self.assignment.id, silence)

    def checkpoint(self) -> ray.train.Checkpoint | None:
        """Return the checkpoint to continue from; None if the trial starts from scratch.

        Record that the loop has read its checkpoint.
        """
        checkpoint = self.assignment.checkpoint
        self._has_read_checkpoint = True
        if checkpoint is None:
            return None
        if self._local is None:
            place = f"{self._root}/{checkpoint.name}"
            self._local = self._closing.enter_context(local_checkpoint(place))
        return ray.train.Checkpoint.from_directory(str(self._local))

    def _key_of(self, checkpoint: Checkpoint | None) -> tuple[int, float]:
        """Return the key that orders models. The latest model of several runs is the best one."""
        is_latest_best = self.job.folds or self.assignment.row_steps
        if checkpoint is None or is_latest_best:
            return UNKNOWN
        return self._keys.get(checkpoint.best_step, UNKNOWN)

    def expect_silence(self) -> None:
        """Note that the loop has ended, and that the rank reports nothing any more."""
        self._last_report = math.inf

    @property
    def _root(self) -> str:
        """Folder of the trial's checkpoints, or its address in the sweep's store."""
        return checkpoint_root_in(self.job.store, self.folder)

    @contextlib.contextmanager
    def open_best(self) -> Iterator[Path | None]:
        """Yield the local folder of `best`; None if there is no checkpoint."""
        if self.best is None:
            yield None
            return
        with local_checkpoint(f"{self._root}/{self.best.name}") as local:
            yield local

    def close(self) -> None:
        """Delete the local copy of a checkpoint that came from the sweep's store."""
        self._closing.close()

    def shard(self, name: str) -> DataIterator:
        """Return this rank's part of a dataset; see `DatasetCache.shard`."""
        if self.train_stream is not None and self.cache.resolve_name(name) == "train":
            return self.train_stream
        return self.cache.shard(name, self.ranks)

    def exchange(self, value: Any) -> list[Any]:
        """Wait until every rank has given a value; return all values, ordered by rank."""
        if self.ranks.world_size == 1:
            return [value]
        self._exchanges += 1
        values: list[Any] = ray.get(
            self.pool.exchange.remote(self.assignment.id, self.rank, self._exchanges, value)
        )
        return values


def stack_of(thread: int) -> str:
    """Return the stack of a thread in the format of a traceback.

    The stack starts at the first frame of the user's code. Return "" if the thread has ended.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = list(traceback.walk_stack(frame))[::-1]
    files = [frame.f_code.co_filename for frame, _ in frames]
    first = next((i for i, file in enumerate(files) if user_code.is_user_code(file)), 0)
    return shorten("".join(traceback.StackSummary.extract(iter(frames[first:])).format()).rstrip())
