"""Nothing of one trial reaches the next: what a warm process is put back to after a trial, and when it is worn and had better go.

What cannot be put back is the state of the user's own modules: a module is imported once, and its globals stay.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from sweeps.execution import children, strays

# Beyond what it had after its first trial, a worker may grow by so much: by as much again as it had, but at least a gigabyte.
MEMORY_GROWTH = 1 << 30
DESCRIPTOR_GROWTH = 256
THREAD_GROWTH = 128


@dataclass(frozen=True)
class Knob:
    """A global setting of a library that loops are known to turn.

    Attributes:
        module: nothing is touched of one that is not imported.
        get, put: of the module.
        fresh: what it is in a process that has just imported the module, for a module that a loop imports; None where it is not known.
    """

    module: str
    get: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]
    fresh: Any = None


def _attribute(module: str, path: str, fresh: Any) -> Knob:
    """An attribute somewhere below a module."""
    *above, last = path.split(".")

    def holder(module: Any) -> Any:
        for name in above:
            module = getattr(module, name)
        return module

    return Knob(module, lambda m: getattr(holder(m), last), lambda m, value: setattr(holder(m), last, value), fresh)


def _options(pandas: Any) -> dict[str, Any]:
    """The options of pandas by their dotted names."""

    def flat(options: dict[str, Any], above: str = "") -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in options.items():
            found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
        return found

    return flat(pandas.options.d)


def _set_options(pandas: Any, before: dict[str, Any]) -> None:
    for name, value in _options(pandas).items():
        if name in before and before[name] is not value and before[name] != value:
            with warnings.catch_warnings():  # some are deprecated
                warnings.simplefilter("ignore")
                pandas.set_option(name, before[name])


@dataclass(frozen=True)
class _Method:
    """How `multiprocessing` starts processes; None until it is first asked for."""

    context: Any

    def put(self, module: Any) -> None:
        module._default_context._actual_context = self.context


def _precision(module: Any) -> tuple[Any, ...]:
    """The arithmetic of `decimal`, of this thread and of threads to come."""
    return module.getcontext().copy(), module.DefaultContext.copy()


def _set_precision(module: Any, before: tuple[Any, ...]) -> None:
    module.setcontext(before[0].copy())
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps", "flags"):
        setattr(module.DefaultContext, name, getattr(before[1], name))


KNOBS = (
    Knob("pandas", _options, _set_options),
    Knob("decimal", _precision, _set_precision),
    Knob("socket", lambda socket: socket.getdefaulttimeout() or -1.0, lambda socket, v: socket.setdefaulttimeout(v if v >= 0 else None)),
    Knob("gc", lambda gc: (gc.isenabled(), gc.get_threshold(), gc.get_debug()), lambda gc, value: _set_collector(*value)),
    Knob("locale", lambda locale: locale.setlocale(locale.LC_ALL), lambda locale, value: locale.setlocale(locale.LC_ALL, value)),
    Knob("multiprocessing.context", lambda m: _Method(m._default_context._actual_context), lambda m, value: value.put(m)),
    Knob(
        "torch",
        lambda torch: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda torch, value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
    ),
    Knob(
        "torch", lambda torch: str(torch.get_default_dtype()), lambda torch, v: torch.set_default_dtype(_dtype(torch, v)), "torch.float32"
    ),
    Knob("torch", lambda torch: str(torch.get_default_device()), lambda torch, value: torch.set_default_device(value), "cpu"),
    Knob("torch", lambda torch: torch.is_grad_enabled(), lambda torch, value: torch.set_grad_enabled(value), True),
    Knob("torch", lambda torch: torch.is_anomaly_enabled(), lambda torch, value: torch.autograd.set_detect_anomaly(value), False),
    Knob(
        "torch",
        lambda torch: torch.get_float32_matmul_precision(),
        lambda torch, value: torch.set_float32_matmul_precision(value),
        "highest",
    ),
    _attribute("torch", "backends.cudnn.benchmark", False),
    _attribute("torch", "backends.cudnn.deterministic", False),
    _attribute("torch", "backends.cudnn.enabled", True),
    _attribute("torch", "backends.cudnn.allow_tf32", True),
    Knob("numpy", lambda numpy: numpy.geterr(), lambda numpy, value: numpy.seterr(**value)),
    Knob("xgboost", lambda xgboost: xgboost.get_config(), lambda xgboost, value: xgboost.set_config(**value), {"verbosity": 1}),
    Knob("sklearn", lambda sklearn: sklearn.get_config(), lambda sklearn, value: sklearn.set_config(**value)),
)


def _set_collector(enabled: bool, threshold: tuple[int, int, int], debug: int) -> None:
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def _dtype(torch: Any, name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."))


@dataclass
class Left:
    """What a trial has left behind, known when it has ended.

    Attributes:
        threads: that it began and that live still.
        broken: why the process cannot be put back to what it was; None if it is.
    """

    threads: list[threading.Thread] = field(default_factory=list)
    broken: str | None = None


@contextlib.contextmanager
def apart(mark: str = "") -> Iterator[Left]:
    """Put the process back, after the trial inside, to what it was before it.

    Args:
        mark: in the environment of the processes that the trial starts; see `sweeps.execution.children`.
    """
    below = children.started() if mark else set()
    if mark:
        children.end(mark)  # of an attempt whose process was lost
    left, running = Left(), set(threading.enumerate())
    hooks = sys.excepthook, threading.excepthook, sys.unraisablehook
    bounds, standing = (sys.getrecursionlimit(), sys.getswitchinterval()), _standing()
    environment, folder, path, arguments = dict(os.environ), os.getcwd(), list(sys.path), list(sys.argv)
    mask, limits, known, watching = _umask(), _limits(), dict(vars(builtins)), (sys.gettrace(), sys.getprofile())
    filters, loggers = warnings.filters[:], _loggers()
    main = threading.current_thread() is threading.main_thread()
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)} if main else {}
    timer = signal.getitimer(signal.ITIMER_REAL) if main else (0.0, 0.0)
    streams, silenced = (sys.stdin, sys.stdout, sys.stderr), logging.root.manager.disable
    knobs = [(knob, knob.get(sys.modules[knob.module]) if knob.module in sys.modules else knob.fresh) for knob in KNOBS]
    if mark:
        os.environ[children.MARK] = mark
    try:
        yield left
    finally:
        _put_back_builtins(known)  # first: what follows needs them
        sys.settrace(watching[0])
        sys.setprofile(watching[1])
        left.threads = strays.left(running)
        why = (_stand_as(standing), _put_back_limits(limits), _closed(streams), _tensorflow_cluster(), strays.of_the_user(left.threads))
        left.broken = next(filter(None, why), None)
        sys.excepthook, threading.excepthook, sys.unraisablehook = hooks
        with contextlib.suppress(RecursionError):  # it is deeper in than that
            sys.setrecursionlimit(bounds[0])
        sys.setswitchinterval(bounds[1])
        sys.stdin, sys.stdout, sys.stderr = streams
        logging.disable(silenced)
        if main:
            signal.setitimer(signal.ITIMER_REAL, *timer)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        os.chdir(folder)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        time.tzset()
        os.umask(mask)
        sys.path[:], sys.argv[:] = path, arguments
        warnings.filters[:] = filters  # type: ignore[index]
        for knob, value in knobs:
            if value is not None and (module := sys.modules.get(knob.module)) is not None:
                with contextlib.suppress(Exception):  # a setting that this build does not have
                    if knob.get(module) != value:
                        knob.put(module, value)
        _put_back_loggers(loggers)
        if mark:
            children.end(mark, below)
        gc.collect()
        _empty_cuda()


def _standing() -> dict[int, tuple[int, frozenset[int]]]:
    """Niceness and CPUs of this thread and of the process's first, by thread id."""
    return {tid: (os.getpriority(os.PRIO_PROCESS, tid), _cpus(tid)) for tid in {threading.get_native_id(), os.getpid()}}


def _cpus(tid: int) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(tid)) if hasattr(os, "sched_getaffinity") else frozenset()


def _stand_as(before: dict[int, tuple[int, frozenset[int]]]) -> str | None:
    """Put niceness and CPUs back; why not, if that is not allowed."""
    try:
        for tid, (nice, cpus) in before.items():
            if os.getpriority(os.PRIO_PROCESS, tid) != nice:
                os.setpriority(os.PRIO_PROCESS, tid, nice)
            if _cpus(tid) != cpus:
                os.sched_setaffinity(tid, cpus)
    except OSError as e:
        return f"its loop changed how the process is scheduled, and that cannot be undone: {e.strerror}"
    return None


def _umask() -> int:
    """The mask of new files. Where the system tells it, it is not changed for that, as other threads may make files."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _limits() -> dict[int, tuple[int, int]]:
    """The resource limits of this process."""
    found = {}
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            with contextlib.suppress(OSError, ValueError):
                found[getattr(resource, name)] = resource.getrlimit(getattr(resource, name))
    return found


def _put_back_limits(before: dict[int, tuple[int, int]]) -> str | None:
    """Put resource limits back; why not, if that is not allowed."""
    for which, limits in before.items():
        if resource.getrlimit(which) != limits:
            try:
                resource.setrlimit(which, limits)
            except (OSError, ValueError) as e:
                return f"its loop lowered a resource limit, and that cannot be undone: {e}"
    return None


def _put_back_builtins(before: dict[str, Any]) -> None:
    now = vars(builtins)
    for name in [name for name in now if name not in before]:
        del now[name]
    now.update(before)


def _closed(streams: Iterable[Any]) -> str | None:
    """Which of Python's streams a loop has closed."""
    names = ("sys.stdin", "sys.stdout", "sys.stderr")
    found = [name for name, stream in zip(names, streams, strict=True) if getattr(stream, "closed", False)]
    return f"its loop closed {' and '.join(found)}" if found else None


def _tensorflow_cluster() -> str | None:
    """Why TensorFlow cannot join the cluster of the next trial: a process cannot leave the one that it is in."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if getattr(context, "_server_def", None) is None and getattr(context, "_collective_ops_server_def", None) is None:
        return None
    return "its loop has TensorFlow in a cluster, which a process cannot leave"


def settle() -> None:
    """Before the first trial: what is alive now stays alive, so the collector need not look at it after every trial."""
    gc.collect()
    gc.freeze()


# ---- logging


@dataclass(frozen=True)
class _Logger:
    handlers: tuple[logging.Handler, ...]
    filters: tuple[Any, ...]
    level: int
    propagate: bool
    disabled: bool


def _loggers() -> dict[str, _Logger]:
    known = {name: log for name, log in list(logging.Logger.manager.loggerDict.items()) if isinstance(log, logging.Logger)}
    return {
        name: _Logger(tuple(log.handlers), tuple(log.filters), log.level, log.propagate, log.disabled)
        for name, log in {"": logging.getLogger(), **known}.items()
    }


def _put_back_loggers(before: dict[str, _Logger]) -> None:
    """Take away what was added. A library that was imported in the meantime keeps the handlers it made for itself."""
    for name, log in [("", logging.getLogger()), *logging.Logger.manager.loggerDict.items()]:
        if not isinstance(log, logging.Logger):
            continue
        was = before.get(name)
        if was is None:
            if _installed(name.split(".")[0]):
                continue
            was = _Logger((), (), logging.NOTSET, True, False)
        for handler in [h for h in log.handlers if h not in was.handlers]:
            log.removeHandler(handler)
            with contextlib.suppress(Exception):
                handler.close()
        log.handlers[:] = was.handlers
        log.filters[:] = was.filters
        log.propagate, log.disabled = was.propagate, was.disabled
        if log.level != was.level:
            log.setLevel(was.level)


def _installed(module: str) -> bool:
    """Whether a module came from an installed package, and not from the user's folders."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


# ---- torch


def groups() -> frozenset[Any]:
    """The process groups of this process."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return frozenset()
    return frozenset(torch.distributed.distributed_c10d._world.pg_map)


def group_of_one(gpu: bool) -> frozenset[Any]:
    """Make the process group that Ray Train gives a single worker as well, and the environment that speaks of it, unless it is there.

    Args:
        gpu: the worker has one.

    Returns:
        The process groups of this process.
    """
    import torch.distributed as dist

    if dist.is_available() and not dist.is_initialized():
        os.environ.update(dict.fromkeys(("RANK", "LOCAL_RANK", "NODE_RANK"), "0") | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1"))
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", store=dist.HashStore(), rank=0, world_size=1)
    return groups()


def destroy_groups(own: frozenset[Any]) -> None:
    """Destroy what loops made beside the gang's `own` groups.

    Not before every rank has ended the trial: a rank whose peer has closed the group already would fail in the middle of making it.
    """
    for group in groups() - own:
        with contextlib.suppress(Exception):
            sys.modules["torch"].distributed.destroy_process_group(group)


def _empty_cuda() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# ---- wear


@dataclass(frozen=True)
class Wear:
    """What a process holds.

    Attributes:
        memory: resident bytes.
        descriptors: open ones.
        threads: alive.
    """

    memory: int
    descriptors: int
    threads: int


def wear() -> Wear:
    """Of this process, now."""
    process = psutil.Process()
    return Wear(process.memory_info().rss, process.num_fds() if hasattr(process, "num_fds") else 0, process.num_threads())


def worn(first: Wear, now: Wear) -> str | None:
    """Why a worker had better go; None while it is as good as new.

    Args:
        first: after its first trial.
        now: after its latest.
    """
    bounds = {"memory": max(MEMORY_GROWTH, first.memory), "descriptors": DESCRIPTOR_GROWTH, "threads": THREAD_GROWTH}
    for what, bound in bounds.items():
        had, has = getattr(first, what), getattr(now, what)
        if has - had > bound:
            unit, size = ("MB of memory", 1 << 20) if what == "memory" else (what, 1)
            return f"grew from {had // size} to {has // size} {unit}"
    return None
