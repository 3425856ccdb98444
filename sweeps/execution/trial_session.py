"""The running trial, as the training loop of one rank sees it through `ray.train`."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray
import ray.train

from sweeps.core.errors import shorten
from sweeps.core.trial import CHECKPOINT_NOTE, Checkpoint, Report
from sweeps.execution import leaked_threads, ray_train_adapter
from sweeps.execution.messages import Assignment, Data, Job, News, Ranks, Silence
from sweeps.execution.metric_values import flatten, numeric, quote, unbeatable

# Names of Ray's tutorials for the dataset that is `valid` here. A dataset with exactly such a name comes first.
ALIASES = {"validation": "valid", "val": "valid", "eval": "valid", "evaluation": "valid"}
# After so many seconds without a report, the pool is told where the loop is.
SILENT_AFTER = 300.0


class Stopped(BaseException):
    """Raised by `report` on every rank at the same step. It is no Exception, which a loop's own `except Exception` would swallow."""


class MetricMissing(ValueError):
    """A trial's first report lacks the objective's metric: the space file names one that the loop does not report."""

    place = "objective.metric"


class CheckpointIgnored(ValueError):
    """Under PBT, a loop does not continue from the checkpoint that it was given."""

    place = "scheduler.name"


class DatasetCache:
    """What a worker keeps of one data key: its shards, those that a loop has opened, and what loops built from them.

    Attributes:
        shards: For each dataset name, a reference of one shard for each rank, or of one for all ranks.
        check: Rows for `Current.check`; None without data.
        opened: The shards that a loop has read, by name.
        kept: What loops keep for later trials on the same data.
    """

    def __init__(self, data: Data):
        self.shards = data.shards
        self.check = ray.get(data.check) if data.check is not None else None
        self.opened: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}


class TrialSession:
    """One attempt at a trial on one rank.

    Args:
        pool: Handle of the pool.
        ranks: Place of this process in the gang.
        job: What all trials of the sweep share.
        assignment: The attempt.
        cache: What the worker keeps of the trial's data.
        leaked: Threads that earlier trials left behind; what they report is refused.
    """

    def __init__(
        self,
        pool: Any,
        ranks: Ranks,
        job: Job,
        assignment: Assignment,
        cache: DatasetCache,
        leaked: Collection[threading.Thread] = (),
    ):
        self.pool, self.ranks, self.job, self.assignment = pool, ranks, job, assignment
        self.name = f"{job.sweep}-{assignment.trial.id}"
        self.folder = assignment.folder
        self.step = 0
        self.stopped = False
        self.reports = 0  # of this attempt
        self._cache, self._leaked = cache, leaked
        self._lock = threading.Lock()
        self._recorded = self._acknowledged_step = 0
        self._wanted: int | None = None  # The pool waits for the news of this step.
        self._reports: list[Report] = []
        self._checkpoints: list[Checkpoint] = []
        self._resumed: bool | None = None if assignment.checkpoint else False
        self._checkpoint_read = False
        self._exchanges = 0
        self._thread = threading.get_ident()  # The loop runs in it.
        self._last_report = time.monotonic()  # Infinite while the loop waits for a decision.
        self._silent_for = 0.0  # The bound of a silence that the pool was told of last.

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.ranks.rank

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None:
        """Record a report of the loop. At a rung, wait for the decision.

        Raises:
            Stopped: The trial ends at this step.
            TypeError: `metrics` is no dict.
            ValueError: Rank 0 did not report the objective's metric, or the loop started from scratch under PBT.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(f"report takes a dict of metrics, such as {{'loss': 0.5}}; got {type(metrics).__name__}: {quote(metrics)}")
        if threading.current_thread() in self._leaked:
            raise RuntimeError("the trial that started this thread has ended, so its report belongs to no trial")
        if self.stopped:  # A loop with a bare `except:` has swallowed the exception.
            raise Stopped
        self._resolve_resumption()
        self._last_report, self._silent_for = time.monotonic(), 0.0
        self.step += 1
        self.reports += 1
        saved = None if checkpoint is None else self._persist(checkpoint)
        numbers = self._checked(metrics)
        with self._lock:
            self._recorded = self.step
            if saved is not None:
                self._checkpoints.append(saved)
            if self.rank == 0:
                self._reports.append(Report(self.step, numbers, time.time()))
            due = saved is not None or (self._wanted is not None and self._wanted <= self.step)
        if due:
            self._send()
        if self.finished or (self.step in self.job.rungs and not self._continues_at_rung()):
            self.stopped = True
            raise Stopped

    def _resolve_resumption(self) -> None:
        """At the first report, learn whether the loop continues from its checkpoint, which rank 0 decides for all ranks."""
        if self._resumed is not None:
            return
        self._resumed = ray.get(self.pool.resumed.remote(self.assignment.trial.id, self.rank, self._checkpoint_read))
        self.step = self.assignment.checkpoint.step if self._resumed and self.assignment.checkpoint else 0
        if self.job.milestones and not self._resumed:
            raise CheckpointIgnored(
                "pbt needs a loop that continues from its checkpoint; this one did not call `ray.train.get_checkpoint()`"
            )

    def _checked(self, metrics: Mapping[Any, Any]) -> dict[str, float]:
        flat = flatten(metrics)
        numbers = numeric(flat)
        metric = self.job.metric
        if self.rank != 0:
            return numbers
        if metric is not None and metric not in numbers:
            if metric in flat:
                raise ValueError(f"the objective's metric `{metric}` must be a number, got {quote(flat[metric])} at step {self.step}")
            names = ", ".join(sorted(flat)) or "nothing"
            missing = f"the objective's metric `{metric}` was not reported at step {self.step}; the loop reports: {names}"
            raise (MetricMissing if self.step == 1 else ValueError)(missing)
        if (name := unbeatable(numbers, self.job.goals)) is not None:
            raise ValueError(
                f"`{name}` is {numbers[name]} at step {self.step}, which no trial could beat;"
                " report a finite value, or nan where there is none"
            )
        return numbers

    def _continues_at_rung(self) -> bool:
        self._last_report = math.inf
        try:
            news = self._news()
            go_on: bool = ray.get(self.pool.at_rung.remote(self.assignment.trial.id, self.assignment.attempt, news))
            self._acknowledge(news)
            return go_on
        finally:
            self._last_report = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether the trial has made as many steps as the scheduler allows any trial."""
        return self.job.max_t is not None and self.step >= self.job.max_t

    def _send(self) -> None:
        """Send the news without waiting. What the pool does not acknowledge goes with the next news."""
        news = self._news()
        sent = self.pool.tell.remote(self.assignment.trial.id, self.assignment.attempt, news)
        sent.future().add_done_callback(lambda answer: self._acknowledge(news) if answer.exception() is None else None)

    def _news(self) -> News:
        with self._lock:
            return News(self.rank, self._recorded, tuple(self._reports), tuple(self._checkpoints))

    def _acknowledge(self, news: News) -> None:
        with self._lock:
            self._acknowledged_step = max(self._acknowledged_step, news.step)
            self._reports = [r for r in self._reports if r.step > news.step]
            self._checkpoints = [c for c in self._checkpoints if c.step > news.step]

    def last_news(self) -> News:
        """Return all that the pool does not know yet, when the loop has ended."""
        return self._news()

    def hurry(self, step: int) -> None:
        """Send the news of a step at once, or when the loop reaches it: a checkpoint of another rank waits for them."""
        with self._lock:
            self._wanted = step
            due = self._recorded >= step
        if due:
            self._send()

    def send_if_new(self) -> None:
        """Send the news if there are any."""
        if self._acknowledged_step != self._recorded:
            self._send()

    def check_silence(self) -> None:
        """Tell the pool, once for each bound, that the loop has not reported for long, and where it is."""
        quiet, limits = time.monotonic() - self._last_report, (SILENT_AFTER, self.job.report_timeout)
        passed = max((limit for limit in limits if limit is not None and limit <= quiet), default=0.0)
        if passed > self._silent_for:
            self._silent_for = passed
            silence = Silence(self.rank, quiet, stack_of(self._thread))
            print(f"--- {silence}", file=sys.stderr, flush=True)
            self.pool.silent.remote(self.assignment.trial.id, self.assignment.attempt, silence)

    def checkpoint(self) -> ray.train.Checkpoint | None:
        """Return the checkpoint that the loop continues from; None at the start."""
        checkpoint = self.assignment.checkpoint
        self._checkpoint_read = True
        return ray.train.Checkpoint.from_directory(checkpoint.path) if checkpoint else None

    def shard(self, name: str) -> Any:
        """Return this rank's part of a dataset.

        Raises:
            KeyError: There is no such dataset.
        """
        shards, opened = self._cache.shards, self._cache.opened
        name = name if name in shards else ALIASES.get(name, name)
        if not shards:
            raise KeyError(f"no dataset `{name}`: the space names no data; name it under `data:`, or read it in the loop")
        if name not in shards:
            raise KeyError(f"no dataset `{name}`; there are: {', '.join(shards)}")
        if name not in opened:
            opened[name] = ray_train_adapter.Shard(ray.get(shards[name][self.rank % len(shards[name])]).materialize())
        return opened[name]

    @property
    def opened(self) -> dict[str, Any]:
        """The shards that the worker has read, by name."""
        return self._cache.opened

    def exchange(self, value: Any) -> list[Any]:
        """Wait until every rank has given a value; return all values by rank."""
        if self.ranks.world_size == 1:
            return [value]
        self._exchanges += 1
        trial, attempt = self.assignment.trial.id, self.assignment.attempt
        values: list[Any] = ray.get(self.pool.exchange.remote(trial, attempt, self.rank, self._exchanges, value))
        return values

    def _persist(self, checkpoint: ray.train.Checkpoint) -> Checkpoint:
        """Copy a reported checkpoint into the trial's folder. Ranks that each report one write to the same folder.

        `Checkpoint.to_directory` would let one rank copy and have the others wait for it.
        """
        target = Path(self.folder, f"checkpoint_{self.step:06d}")
        target.mkdir(parents=True, exist_ok=True)
        files: Any = checkpoint.filesystem
        pyarrow.fs.copy_files(checkpoint.path, str(target), source_filesystem=files)
        # The note is read from the source: another rank may be writing its own over the copy.
        note, best_step = f"{checkpoint.path}/{CHECKPOINT_NOTE}", self.step
        if files.get_file_info(note).type == pyarrow.fs.FileType.File:
            with files.open_input_file(note) as file:
                best_step = json.loads(file.read())["best_step"]
        return Checkpoint(str(target), self.step, best_step)


def stack_of(thread: int) -> str:
    """Return where a thread is, from the user's code on, as a traceback shows it; "" if the thread has ended."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = list(reversed(list(traceback.walk_stack(frame))))
    first = next((i for i, (one, _) in enumerate(frames) if leaked_threads.users(one.f_code.co_filename)), 0)
    return shorten("".join(traceback.StackSummary.extract(iter(frames[first:])).format()).rstrip())
