"""What one worker of a gang does for its whole life: take a trial, run the loop, say how it ended, take the next.

The same for the only rank of a gang of one and for every rank of a Ray Train run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import inspect
import json
import logging
import math
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray
import ray.data
import ray.train

from sweeps.core import exit_causes, references, trial
from sweeps.core.errors import shorten
from sweeps.core.secrets import masked
from sweeps.core.sweep_folder import FILES
from sweeps.core.trial import CHECKPOINT_NOTE, Checkpoint, Current, Report, State
from sweeps.execution import isolation, leaked_threads, loop_mlflow, missing_value_hints, ray_train_adapter, ray_train_run, trial_logs
from sweeps.execution.messages import Data, Ended, Job, News, Order, Silence
from sweeps.execution.seeds import seeded

# What Ray's tutorials call the dataset that is `valid` here; a dataset of exactly that name comes first.
ALIASES = {"validation": "valid", "val": "valid", "eval": "valid", "evaluation": "valid"}
# A loop that has not reported for so long is looked at, in seconds.
SILENT_AFTER = 300.0
# Between rungs a rank tells the pool its news this often, in seconds.
NEWS_EVERY = 0.5


class Stopped(BaseException):
    """Raised by `report` on every rank at the same step. Not an Exception, or a loop's own `except Exception` would eat it."""


class MetricMissing(ValueError):
    """A trial's first report has not the objective's metric: the space file names one that the loop does not report."""

    place = "objective.metric"


class NotTakenUp(ValueError):
    """Under PBT, a loop does not go on from the checkpoint that it was given."""

    place = "scheduler.name"


class TrialSession:
    """The trial at hand, as the loop of one rank sees it through `ray.train`."""

    def __init__(self, pool: Any, gang: str, rank: int, job: Job, order: Order, store: _Store, strays: Collection[threading.Thread] = ()):
        self._store, self._strays = store, strays
        self.pool, self.gang, self.rank, self.job, self.order = pool, gang, rank, job, order
        self.name = f"{job.sweep}-{order.trial.id}"
        self.folder = order.folder
        self.step = 0
        self.stopped = False
        self.reports = 0  # made in this attempt
        self._lock = threading.Lock()
        self._booked = self._known = 0  # steps taken, and told
        self._wanted: int | None = None  # the pool waits for the news of this step
        self._reports: list[Report] = []
        self._checkpoints: list[Checkpoint] = []
        self._resumed: bool | None = None if order.checkpoint else False
        self._asked = False  # the loop called get_checkpoint
        self._thread = threading.get_ident()  # in which the loop runs
        self._heard = time.monotonic()  # when it last reported; infinite while it waits for a verdict
        self._silent = 0.0  # of these bounds of a silence, the one that the pool was told of

    def report(self, metrics: dict[str, Any], checkpoint: ray.train.Checkpoint | None) -> None:
        """Take a report of the loop; at a rung wait for the verdict.

        Raises:
            Stopped: the trial ends at this step.
            ValueError: rank 0 did not report the objective's metric, or the loop began anew under PBT.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(f"report takes a dict of metrics, such as {{'loss': 0.5}}; got {type(metrics).__name__}: {shown(metrics)}")
        if threading.current_thread() in self._strays:
            raise RuntimeError("the trial that began this thread has ended: what it reports is of no trial")
        if self.stopped:  # a loop with a bare `except:` has swallowed it
            raise Stopped
        if self._resumed is None:
            self._resumed = ray.get(self.pool.resumed.remote(self.order.trial.id, self.rank, self._asked))
            self.step = self.order.checkpoint.step if self._resumed and self.order.checkpoint else 0
            if self.job.milestones and not self._resumed:
                raise NotTakenUp(
                    "pbt needs a loop that goes on from its checkpoint; this one did not ask `ray.train.get_checkpoint()` for it"
                )
        self._heard, self._silent = time.monotonic(), 0.0
        self.step += 1
        self.reports += 1
        saved = None if checkpoint is None else self._persist(checkpoint)
        flat = flattened(metrics)
        numbers = numeric(flat)
        if self.rank == 0 and (metric := self.job.metric) is not None and metric not in numbers:
            if metric in flat:
                raise ValueError(f"the objective's metric `{metric}` must be a number, got {shown(flat[metric])} at step {self.step}")
            named = ", ".join(sorted(flat)) or "nothing"
            said = f"the objective's metric `{metric}` was not reported at step {self.step}; the loop reports: {named}"
            raise (MetricMissing if self.step == 1 else ValueError)(said)
        if self.rank == 0 and (unbeatable := too_good(numbers, self.job.goals)) is not None:
            said = f"`{unbeatable}` is {numbers[unbeatable]} at step {self.step}, which no trial could beat"
            raise ValueError(f"{said}; report a finite value, or nan where there is none")
        with self._lock:
            self._booked = self.step
            if saved is not None:
                self._checkpoints.append(saved)
            if self.rank == 0:
                self._reports.append(Report(self.step, numbers, time.time()))
            due = saved is not None or (self._wanted is not None and self._wanted <= self.step)
        if due:
            self._send()
        if self.job.max_t is not None and self.step >= self.job.max_t:
            self._stop()
        if self.step in self.job.rungs and not self._at_rung():
            self._stop()

    def _at_rung(self) -> bool:
        """Wait for the verdict; whether to go on."""
        self._heard = math.inf
        try:
            return self._tell(self.pool.at_rung)
        finally:
            self._heard = time.monotonic()

    def _stop(self) -> None:
        self.stopped = True
        raise Stopped

    @property
    def finished(self) -> bool:
        """Whether the trial came as far as the scheduler lets any trial come."""
        return self.job.max_t is not None and self.step >= self.job.max_t

    def _tell(self, method: Any, *more: Any) -> Any:
        """Tell the pool all it has not acknowledged yet, and wait for its answer."""
        news = self._news()
        answer = ray.get(method.remote(self.gang, self.order.trial.id, self.order.attempt, news, *more))
        self._acknowledged(news)
        return answer

    def _send(self) -> None:
        """Send the pool what `_tell` would, without waiting: what it does not acknowledge goes with the next news."""
        news = self._news()
        sent = self.pool.tell.remote(self.gang, self.order.trial.id, self.order.attempt, news)
        sent.future().add_done_callback(lambda answer: self._acknowledged(news) if answer.exception() is None else None)

    def _news(self) -> News:
        with self._lock:
            return News(self.rank, self._booked, tuple(self._reports), tuple(self._checkpoints))

    def _acknowledged(self, news: News) -> None:
        with self._lock:
            self._known = max(self._known, news.step)
            self._reports = [r for r in self._reports if r.step > news.step]
            self._checkpoints = [c for c in self._checkpoints if c.step > news.step]

    def hurry(self, step: int) -> None:
        """Tell the pool the news of a step at once, now or when the loop comes to it: a checkpoint of another rank waits for them."""
        with self._lock:
            self._wanted = step
            due = self._booked >= step
        if due:
            self._send()

    def tell(self) -> None:
        """Tell the pool what is new, if anything is."""
        if self._known != self._booked:
            self._tell(self.pool.tell)

    def look_at_silence(self) -> None:
        """Tell the pool, once for each bound, that the loop has not reported for long, and where it stands."""
        quiet, limits = time.monotonic() - self._heard, (SILENT_AFTER, self.job.report_timeout)
        passed = max((limit for limit in limits if limit is not None and limit <= quiet), default=0.0)
        if passed > self._silent:
            self._silent = passed
            silence = Silence(self.rank, quiet, stack_of(self._thread))
            print(f"--- {silence}", file=sys.stderr, flush=True)
            self.pool.silent.remote(self.order.trial.id, self.order.attempt, silence)

    def end(self, index: int, ended: Ended) -> None:
        """Tell the pool how the loop ended, and what it did not know yet."""
        self._tell(self.pool.ended, index, ended)

    def checkpoint(self) -> ray.train.Checkpoint | None:
        found = self.order.checkpoint
        self._asked = True
        return ray.train.Checkpoint.from_directory(found.path) if found else None

    def shard(self, name: str) -> Any:
        shards, opened = self._store.shards, self._store.opened
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
        return self._store.opened

    def _persist(self, checkpoint: ray.train.Checkpoint) -> Checkpoint:
        """Copy a reported checkpoint into the trial's folder; ranks that each report one meet in the same folder.

        Not by `Checkpoint.to_directory`: of several ranks it lets one copy and the others wait for that one.
        """
        target = Path(self.folder, f"checkpoint_{self.step:06d}")
        target.mkdir(parents=True, exist_ok=True)
        files: Any = checkpoint.filesystem
        pyarrow.fs.copy_files(checkpoint.path, str(target), source_filesystem=files)
        # not the copy: another rank may be writing its own over it
        note, best_step = f"{checkpoint.path}/{CHECKPOINT_NOTE}", self.step
        if files.get_file_info(note).type == pyarrow.fs.FileType.File:
            with files.open_input_file(note) as file:
                best_step = json.loads(file.read())["best_step"]
        return Checkpoint(str(target), self.step, best_step)


class Teller(threading.Thread):
    """Tells the pool, while a loop is at work, what it has reported: a loop may be silent for long after a report."""

    def __init__(self) -> None:
        super().__init__(name="teller", daemon=True)
        self.session: TrialSession | None = None
        self.log: Path | None = None  # of the trial at hand

    def run(self) -> None:
        seen: TrialSession | None = None
        while True:
            time.sleep(NEWS_EVERY)
            session = self.session
            if session is not None and session is seen:  # of a short trial its end tells all
                with contextlib.suppress(ray.exceptions.RayError):  # the pool is gone, and this process soon
                    session.tell()
            seen = session
            if session is not None:
                session.look_at_silence()
            if (log := self.log) is not None:
                trial_logs.shorten(log)


_teller: Teller | None = None


def hurry(trial_id: str, step: int) -> None:
    """Have the rank in this process tell the pool the news of a trial's step at once."""
    session = _teller.session if _teller is not None else None
    if session is not None and session.order.trial.id == trial_id:
        session.hurry(step)


def flattened(metrics: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """The metrics without nesting: `{"a": {"b": 1}}` is `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in metrics.items():
        flat |= flattened(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value}
    return flat


def numeric(metrics: dict[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, as floats; NumPy's and one-element tensors' too."""
    kept = {}
    for name, value in metrics.items():
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            continue
        with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
            kept[str(name)] = float(value)
    return kept


def too_good(metrics: Mapping[str, float], goals: Mapping[str, str]) -> str | None:
    """Return the objective whose value is infinite on the good side; None if there is none.

    >>> too_good({"loss": float("-inf")}, {"loss": "minimize"})
    'loss'
    >>> too_good({"loss": float("inf")}, {"loss": "minimize"}) is None
    True
    """
    best = {"minimize": -math.inf, "maximize": math.inf}
    return next((name for name, goal in goals.items() if metrics.get(name) == best[goal]), None)


def shown(value: Any) -> str:
    """A value in a message, at most 100 characters of it."""
    try:
        text = repr(value)
    except Exception as e:  # an integer of more than 4,300 digits, or a class of the user's
        text = f"a {type(value).__name__} that cannot be shown ({type(e).__name__})"
    return text if len(text) <= 100 else f"{text[:100]}..."


def stack_of(thread: int) -> str:
    """Return where a thread stands, from the user's code on, as a traceback shows it; "" of a thread that has ended."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = list(reversed(list(traceback.walk_stack(frame))))
    first = next((i for i, (one, _) in enumerate(frames) if leaked_threads.users(one.f_code.co_filename)), 0)
    return shorten("".join(traceback.StackSummary.extract(iter(frames[first:])).format()).rstrip())


def threads() -> int:
    """CPUs that Ray gave this process, at least one."""
    return max(1, math.floor(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def serve(pool: Any, gang: str, job: Job, rank: int, distributed: bool) -> None:
    """Run trials of a gang until the pool sends none.

    Args:
        pool: handle of the pool's actor.
        gang: the gang's id.
        job: what all trials of the sweep share.
        rank: of this process in the gang.
        distributed: it is a rank of a Ray Train run.
    """
    for root in reversed(job.roots):
        if root not in sys.path:
            sys.path.insert(0, root)
    # Ray Data speaks of every shard that is read; a trial's log is for what the loop says
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ready = pool.hello.remote(gang, rank, ray.get_runtime_context().current_actor)
    stores: dict[str, _Store] = {}
    strays: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # threads that earlier trials have left
    first: isolation.Wear | None = None
    groups = isolation.groups()
    alone = not distributed and job.backend == "torch"
    ray_train_adapter.read_data_where_it_lies()
    ray_train_adapter.keep_ray()
    exit_causes.log_os_exit()
    loop_mlflow.watch()
    global _teller
    teller = _teller = Teller()
    teller.start()
    if job.loop.startswith("sweeps.trainers."):  # ours say nothing as they are imported; there may be time for it before the first trial
        with contextlib.suppress(Exception):
            references.resolve(job.loop)
    elif not distributed and job.backend != "none":  # `ray.train.torch` is there in a larger gang though no loop has imported it
        ray_train_run.trainer_class(job.backend)
    ray.get(ready)
    index = 0
    while (order := ray.get(pool.next_order.remote(gang, rank, index))) is not None:
        isolation.destroy_groups(groups)
        if alone:
            groups = isolation.group_of_one(gpu=bool(ray.get_gpu_ids()))
        if job.backend == "lightgbm":
            with ray_train_adapter.free_address() as own:
                addresses = ray.get(pool.exchange.remote(gang, rank, index, own))
            ray_train_adapter.renew_lightgbm_network(rank, addresses)
        for key in stores.keys() - set(order.keep):  # the same on every rank
            del stores[key]
        if (store := stores.get(order.data_key)) is None:
            assert order.data is not None, "the pool names no data as kept that it has not sent"
            store = stores[order.data_key] = _Store(order.data)
        session = TrialSession(pool, gang, rank, job, order, store, strays)
        current = Current(
            trial=order.trial.id,
            seed=order.trial.seed,
            label=order.labels.label,
            task=order.labels.task,
            classes=order.labels.classes,
            metric=job.metric,
            goal=job.goal,
            max_t=job.max_t,
            threads=threads(),
            check=store.check,
            asked=job.asked,
            milestones=job.milestones,
            keep_last=job.keep_last,
            _folder=Path(order.folder, FILES),
            _kept=store.kept,
        )
        teller.session = session
        title = f"trial {order.trial.id}, attempt {order.attempt}, rank {rank} of {order.trial.shape.workers} on {gang}"
        if index == 0:
            isolation.settle()
        teller.log = trial_logs.log_of(order.folder, rank)
        with trial_logs.into(teller.log, title) as say:
            seconds = None if job.trial_timeout is None else max(0.1, job.trial_timeout - order.spent)
            if index == 0:  # what importing the user's module takes and changes is no trial's, and the same for all of them
                logs = loop_mlflow.logged(loop_mlflow.TrialRun(job.tracking, order.folder, rank), keep=True)
                with _stacks_after(seconds), contextlib.suppress(BaseException), logs:  # what is wrong with it the trial will say
                    references.resolve(job.loop)
                if rank == 0:
                    ray.get(pool.imported.remote(order.trial.id, order.attempt))
            with isolation.apart(f"{order.folder}/{rank}") as left, _stacks_after(seconds):
                ended = replace(run_one(session, current, distributed), reports=session.reports)
            strays.update(left.threads)
            say(f"{ended.state.value} after {ended.reports} reports" + (f"\n{ended.error}" if ended.error else ""))
        teller.session = teller.log = None
        if index == 0:
            isolation.settle()
        now = isolation.wear()
        first = first or now
        gone = "its process group is gone" if distributed and not groups <= isolation.groups() else None
        if (why := gone or left.broken or isolation.worn(first, now)) is not None:
            ended = replace(ended, broken=why)
        session.end(index, ended)
        index += 1


class _Store:
    """What a worker keeps of one data key: the shards, those it has opened, the check rows, and what loops built from them."""

    def __init__(self, data: Data):
        self.shards = data.shards
        self.check = ray.get(data.check) if data.check is not None else None
        self.opened: dict[str, Any] = {}
        self.kept: dict[str, Any] = {}


@contextlib.contextmanager
def _stacks_after(seconds: float | None) -> Iterator[None]:
    """A loop that hangs at its time limit will be killed soon after; before that, say in its log where every thread stands."""
    if seconds is None:
        yield
        return
    with open(2, "w", closefd=False) as log:
        faulthandler.dump_traceback_later(seconds, file=log)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def run_one(session: TrialSession, current: Current, distributed: bool) -> Ended:
    """Run the loop once, for the trial at hand, and say how it ended on this rank."""
    job, order = session.job, session.order
    trial.set_current(current)
    try:
        loop = references.resolve(job.loop)
        with ray_train_adapter.in_place(session, distributed):
            ray.train.get_context()  # its first call in a process draws from `random`: a gang's first trial would have other numbers
            logs = loop_mlflow.logged(loop_mlflow.TrialRun(job.tracking, order.folder, session.rank))
            with logs, seeded(order.trial.seed, current.threads):
                _take(session, loop(dict(order.trial.params)) if takes_config(loop) else loop())
    except Stopped:
        pass
    except BaseException as e:  # a loop's own kinds of exception are no death of its process
        if not session.stopped:
            refused = (e.place, str(e)) if isinstance(e, (MetricMissing, NotTakenUp)) else None
            lines = [trace(e), missing_value_hints.explain(e, session.opened, order.trial.preprocessor)]
            error = "\n".join(line for line in lines if line)
            return Ended(session.rank, State.FAIL, error, refused=refused, retry=refused is None and worth_a_retry(e, job.retry_on))
    finally:
        trial.set_current(None)
    # A loop may swallow the stop and come to its end, or to grief, all the same.
    return Ended(session.rank, State.PRUNED if session.stopped and not session.finished else State.COMPLETE, final=current.final)


def worth_a_retry(error: BaseException, names: Collection[str]) -> bool:
    """Whether one of the names is that of the error's class or of one of its bases, with or without their module."""
    return any(name in names for cls in type(error).__mro__ for name in (cls.__name__, f"{cls.__module__}.{cls.__qualname__}"))


def _take(session: TrialSession, returned: Any) -> None:
    """Report what a loop yields or returns, as Ray Tune does: each dict that it yields, or one that it returns.

    Everything else that a loop returns is ignored. So is a dict without the objective's metric after reports: Ray Train's loops may
    return what they like.
    """
    if inspect.isgenerator(returned):
        with contextlib.closing(returned):
            for metrics in filter(None, returned):
                if not isinstance(metrics, Mapping):
                    raise TypeError(f"the loop yielded {metrics!r}; a loop yields dicts of metrics, such as {{'loss': 0.5}}")
                session.report(dict(metrics), None)
    elif isinstance(returned, Mapping) and returned:
        silent = not session.reports and session.order.checkpoint is None
        if silent or session.job.metric is None or session.job.metric in numeric(flattened(returned)):
            session.report(dict(returned), None)


def takes_config(loop: Any) -> bool:
    """Whether a loop takes the config; Ray Train allows loops without arguments."""
    try:
        return bool(inspect.signature(loop).parameters)
    except (TypeError, ValueError):
        return True


def trace(error: BaseException) -> str:
    """Return the traceback of an error without our own frames around the user's, at most `errors.ERROR_LENGTH` characters."""
    here = str(Path(__file__).parent)
    told = traceback.TracebackException.from_exception(error)
    theirs = [number for number, frame in enumerate(told.stack) if not frame.filename.startswith(here)]
    if theirs:
        told.stack = traceback.StackSummary.from_list(told.stack[theirs[0] : theirs[-1] + 1])
    return shorten(masked("".join(told.format()).rstrip()))
