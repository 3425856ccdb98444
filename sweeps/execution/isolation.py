"""Reset a worker's process after each trial, so that a trial cannot affect later trials, and decide when the worker must be closed.

Two kinds of state cannot be reset. The globals of the user's own modules stay, because a module is
imported once. State inside a C library stays if Python cannot read this state.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import logging
import operator
import os
import resource
import signal
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psutil

from sweeps.core.processes import working_directory
from sweeps.execution import child_processes, leaked_threads
from sweeps.execution.global_settings import GLOBAL_SETTINGS, UNKNOWN

# Public functions and classes of these modules are restored if a loop has replaced them. Names with
# other values are not restored.
PATCHED = (
    *(
        "json",
        "logging",
        "math",
        "os",
        "os.path",
        "pickle",
        "random",
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "sys",
        "threading",
    ),
    *("time", "warnings", "numpy", "torch"),
)
SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@dataclass
class ResetResult:
    """Result of resetting a process after a trial.

    `isolated` sets the attributes when the trial has ended.

    Attributes:
        threads: Threads that the trial started and that are still running.
        broken: Reason why the process could not be reset completely, so that the worker must be
            closed; None if the reset succeeded.
    """

    threads: list[threading.Thread] = field(default_factory=list)
    broken: str | None = None


@contextlib.contextmanager
def isolated(mark: str = "") -> Iterator[ResetResult]:
    """Run a trial in the block, then reset the process to its state before the trial.

    Args:
        mark: Value of an environment variable that marks the processes that the trial starts. After
            the block, processes with this mark are killed; see `sweeps.execution.child_processes`.
            With "", these processes stay alive.

    Yields:
        The result of the reset. Its attributes are set after the block.
    """
    processes = psutil.pids() if mark else []
    reset, running = ResetResult(), set(threading.enumerate())
    bounds, scheduling = (
        (sys.getrecursionlimit(), sys.getswitchinterval()),
        _scheduling_of_threads(),
    )
    environment, folder, path, arguments = (
        dict(os.environ),
        working_directory(),
        list(sys.path),
        list(sys.argv),
    )
    mask, limits, known, watching = (
        _umask(),
        _limits(),
        dict(vars(builtins)),
        (sys.gettrace(), sys.getprofile()),
    )
    modules, functions, finders = dict(sys.modules), _functions(), list(sys.meta_path)
    filters, loggers = warnings.filters[:], _loggers()
    main = threading.current_thread() is threading.main_thread()
    handlers = {s: signal.getsignal(s) for s in SIGNALS} if main else {}
    timers = {timer: signal.getitimer(timer) for timer in TIMERS} if main else {}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    streams, silenced = (sys.stdin, sys.stdout, sys.stderr), logging.root.manager.disable
    settings = [(setting, setting.value()) for setting in GLOBAL_SETTINGS]
    if mark:
        os.environ[child_processes.MARK] = mark
    try:
        yield reset
    finally:
        _put_back_builtins(known)  # First, because the code below needs the builtins.
        _put_back_functions(functions, modules)
        _put_back_modules(modules)
        _put_back_finders(finders)
        sys.settrace(watching[0])
        sys.setprofile(watching[1])
        for timer, value in timers.items():
            signal.setitimer(timer, *value)
        if (
            signal.pthread_sigmask(signal.SIG_BLOCK, ()) != blocked
        ):  # Before the handlers, so that the loop handles pending signals.
            with contextlib.suppress(Exception):
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        reset.threads = leaked_threads.started_since(running)
        why = (
            *(
                _restore_scheduling(scheduling),
                _put_back_limits(limits),
                _put_back_handlers(handlers),
            ),
            *(_closed(streams), _joined_cluster(), leaked_threads.describe_first(reset.threads)),
        )
        reset.broken = next(filter(None, why), None)
        with contextlib.suppress(RecursionError):  # The stack may be deeper than the old limit now.
            sys.setrecursionlimit(bounds[0])
        sys.setswitchinterval(bounds[1])
        sys.stdin, sys.stdout, sys.stderr = streams
        if logging.root.manager.disable != silenced:
            logging.disable(silenced)  # This empties the caches of all loggers.
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment.items() - os.environ.items())
        time.tzset()
        os.umask(mask)
        sys.path[:], sys.argv[:] = path, arguments
        warnings.filters[:] = filters  # type: ignore[index]
        for setting, value in settings:
            if value is not UNKNOWN and (module := sys.modules.get(setting.module)) is not None:
                with contextlib.suppress(Exception):  # This build of the module lacks the setting.
                    if setting.get(module) != value:
                        setting.set(module, value)
        _put_back_loggers(loggers)
        if mark:
            child_processes.end(mark, processes)
        modules.clear()  # Otherwise the garbage collector would scan these two large dicts.
        functions.clear()
        gc.collect()
        empty_cuda()


@dataclass(frozen=True)
class _Scheduling:
    """CPU scheduling of a thread.

    Attributes:
        nice: Niceness, from -20 to 19.
        cpus: Numbers of the CPUs on which the thread may run; empty if the system does not report
            them.
        policy: Scheduling policy, such as `os.SCHED_OTHER`, and priority; None if the system does
            not report them.
    """

    nice: int
    cpus: frozenset[int]
    policy: tuple[int, int] | None


def _scheduling_of(tid: int) -> _Scheduling:
    policy = (
        (os.sched_getscheduler(tid), os.sched_getparam(tid).sched_priority)
        if hasattr(os, "sched_getscheduler")
        else None
    )
    cpus = frozenset(os.sched_getaffinity(tid)) if hasattr(os, "sched_getaffinity") else frozenset()
    return _Scheduling(os.getpriority(os.PRIO_PROCESS, tid), cpus, policy)


def _scheduling_of_threads() -> dict[int, _Scheduling]:
    """Return the scheduling of this thread and of the process's main thread, by thread id."""
    return {tid: _scheduling_of(tid) for tid in {threading.get_native_id(), os.getpid()}}


def _restore_scheduling(before: dict[int, _Scheduling]) -> str | None:
    """Restore the process's CPU scheduling.

    If the system does not allow this, return the reason as text; else return None.
    """
    try:
        for tid, was in before.items():
            now = _scheduling_of(tid)
            if was.policy is not None and now.policy != was.policy:
                os.sched_setscheduler(tid, was.policy[0], os.sched_param(was.policy[1]))
            if now.nice != was.nice:
                os.setpriority(os.PRIO_PROCESS, tid, was.nice)
            if now.cpus != was.cpus:
                os.sched_setaffinity(tid, was.cpus)
    except OSError as e:
        return (
            "the training loop changed how the process is scheduled, and sweeps cannot undo this "
            f"change: {e.strerror}"
        )
    return None


def _umask() -> int:
    """Return the umask.

    The umask is read from `/proc` if possible, because `os.umask` changes the umask for a moment.
    """
    with contextlib.suppress(OSError, StopIteration), open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _limits() -> dict[int, tuple[int, int]]:
    """Return the soft and hard resource limits of this process, keyed by the `RLIMIT_*` constants of the module `resource`."""
    found = {}
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            with contextlib.suppress(OSError, ValueError):
                found[getattr(resource, name)] = resource.getrlimit(getattr(resource, name))
    return found


def _put_back_limits(before: dict[int, tuple[int, int]]) -> str | None:
    """Restore the resource limits.

    If the system does not allow this, return the reason as text; else return None.
    """
    for which, limits in before.items():
        if resource.getrlimit(which) != limits:
            try:
                resource.setrlimit(which, limits)
            except (OSError, ValueError) as e:
                return (
                    "the training loop lowered a resource limit of the process, and sweeps "
                    f"cannot undo this change: {e}"
                )
    return None


def _put_back_builtins(before: dict[str, Any]) -> None:
    now = vars(builtins)
    for name in [name for name in now if name not in before]:
        del now[name]
    now.update(before)


def _put_back_handlers(before: dict[Any, Any]) -> str | None:
    """Restore the handlers of signals.

    Returns:
        A message if the loop has replaced a handler that C code had set, because Python cannot
        restore such a handler; else None.
    """
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            if handler is None:
                return (
                    f"the training loop replaced the handler of {signal.Signals(number).name} "
                    "that a C library had set, and "
                    "sweeps cannot restore it"
                )
            signal.signal(number, handler)
    return None


def _functions() -> dict[str, dict[str, Any]]:
    """Return a copy of the namespace of each module in `PATCHED` that is imported, by module name."""
    return {
        name: dict(vars(module))
        for name in PATCHED
        if isinstance(module := sys.modules.get(name), types.ModuleType)
    }


def _put_back_functions(before: dict[str, dict[str, Any]], modules: dict[str, Any]) -> None:
    """Restore the public functions and classes that a loop has replaced.

    A replacement stays if an installed package made it and the trial was the first to import
    modules of this package. Packages such as torch and Lightning replace functions when they are
    imported, and need these replacements in later trials too.

    Args:
        before: Namespace of each module before the trial, by module name.
        modules: Modules that were imported before the trial, by name.
    """
    for module, names in before.items():
        now = vars(modules[module])
        if not any(map(operator.is_not, names.values(), map(now.get, names))):
            continue
        for name in [
            name
            for name, value in names.items()
            if now.get(name) is not value and callable(value) and name[0] != "_"
        ]:
            package = _package(now.get(name))
            if not _installed(package) or not any(
                new.split(".")[0] == package for new in sys.modules.keys() - modules.keys()
            ):
                now[name] = names[name]


def _package(value: Any) -> str:
    """Return the name of the package that defines a function or class; "" if the package is not known."""
    name = (
        value.__module__
        if isinstance(value, type)
        else getattr(value, "__globals__", {}).get("__name__", "")
    )
    return str(name).split(".")[0]


def _put_back_modules(before: dict[str, Any]) -> None:
    """Undo each `sys.modules[name] = None` of a loop.

    Such an entry makes the import of the module fail.
    """
    for name in [name for name, module in sys.modules.items() if module is None]:
        if name not in before:
            del sys.modules[name]
        else:
            sys.modules[name] = before[name]


def _put_back_finders(before: list[Any]) -> None:
    """Restore the import finders in `sys.meta_path`.

    Finders of installed packages stay, because packages such as `six` need them later.
    """
    stay = [
        f
        for f in sys.meta_path
        if f in before or _installed(_package(f if isinstance(f, type) else type(f)))
    ]
    if [f for f in stay if f in before] != before:
        stay = before + [f for f in stay if f not in before]
    sys.meta_path[:] = stay


def _closed(streams: Iterable[Any]) -> str | None:
    """Return a message with the names of the standard streams that a loop has closed; None if all are open."""
    names = ("sys.stdin", "sys.stdout", "sys.stderr")
    found = [
        name
        for name, stream in zip(names, streams, strict=True)
        if getattr(stream, "closed", False)
    ]
    return f"the training loop closed {' and '.join(found)}" if found else None


def _joined_cluster() -> str | None:
    """Return a message if the loop has made this process a member of a cluster of TensorFlow or JAX; else None.

    Such a process cannot join another cluster later, so it cannot run another trial.
    """
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    if (
        getattr(context, "_server_def", None) is not None
        or getattr(context, "_collective_ops_server_def", None) is not None
    ):
        return "the training loop joined a TensorFlow cluster, which a process cannot leave"
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return (
        None
        if getattr(state, "client", None) is None
        else "the training loop joined a JAX cluster, and a process can join only one"
    )


def settle() -> None:
    """Exempt all objects that exist now from garbage collection, so that the collection after each trial is fast."""
    gc.collect()
    gc.freeze()


# ---- logging


class _Logger(
    NamedTuple
):  # A process has hundreds of loggers, and creating a frozen dataclass takes three times as long.
    handlers: tuple[logging.Handler, ...]
    filters: tuple[Any, ...]
    level: int
    propagate: bool
    disabled: bool


def _loggers() -> dict[str, _Logger]:
    known = {
        name: log
        for name, log in list(logging.Logger.manager.loggerDict.items())
        if isinstance(log, logging.Logger)
    }
    return {
        name: _Logger(
            tuple(log.handlers), tuple(log.filters), log.level, log.propagate, log.disabled
        )
        for name, log in {"": logging.getLogger(), **known}.items()
    }


def _put_back_loggers(before: dict[str, _Logger]) -> None:
    """Restore all loggers.

    A logger that is new since the trial started keeps its settings if it belongs to an installed
    package.
    """
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
    """Return whether a module is imported and belongs to an installed package."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


# ---- torch


def groups() -> frozenset[Any]:
    """Return the process groups of `torch.distributed` in this process; empty if there are none."""
    torch = sys.modules.get("torch")
    if (
        torch is None
        or not torch.distributed.is_available()
        or not torch.distributed.is_initialized()
    ):
        return frozenset()
    return frozenset(torch.distributed.distributed_c10d._world.pg_map)


def group_of_one(gpu: bool) -> frozenset[Any]:
    """Create a process group of `torch.distributed` with only this process, unless there is a group already.

    Also set the environment variables, such as `RANK` and `WORLD_SIZE`, that Ray Train sets.

    Args:
        gpu: Whether the worker has a GPU.

    Returns:
        All process groups of this process.
    """
    import torch.distributed as dist

    if dist.is_available() and not dist.is_initialized():
        os.environ.update(
            dict.fromkeys(("RANK", "LOCAL_RANK", "NODE_RANK"), "0")
            | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1")
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo", store=dist.HashStore(), rank=0, world_size=1
        )
    return groups()


def destroy_groups(own: frozenset[Any]) -> None:
    """Destroy the process groups of `torch.distributed` that loops have created.

    Call this function only after every rank has ended the trial. Otherwise, a peer that is still
    creating the same group gets an error.

    Args:
        own: Process groups that the backend has created to connect the gang. They stay.
    """
    for group in groups() - own:
        with contextlib.suppress(Exception):
            sys.modules["torch"].distributed.destroy_process_group(group)


def uses_cuda() -> bool:
    """Return whether torch has initialized CUDA in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and bool(torch.cuda.is_initialized())


def empty_cuda() -> None:
    """Release the GPU memory that torch caches, and reset torch's peak statistics.

    Do nothing if torch has not initialized CUDA.
    """
    if uses_cuda():
        torch = sys.modules["torch"]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
