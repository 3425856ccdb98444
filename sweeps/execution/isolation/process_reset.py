"""Reset a worker's process after each trial, and decide whether the worker must be closed.

Only what ordinary loops change is reset; docs/internals/workers.md lists it. A loop that changes
more uses `trainer.reuse: never`.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType

import numpy
import psutil

from sweeps.core.host.processes import working_directory

from . import child_processes, torch_state, user_code

SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
# Longest wait for the end of a loop's threads, in seconds. All threads share this time.
THREADS_END_WITHIN = 0.5
# A worker may grow by this many bytes after its first trial, or to twice its size.
MEMORY_GROWTH = 1 << 30


# A handler of signals. None stands for a handler of a C library.
Handler = Callable[[int, FrameType | None], object] | int | None


@dataclass
class ResetResult:
    """Result of resetting a process after a trial.

    Attributes:
        broken: Reason why the process cannot run another trial, so that the worker must be closed;
            None if it can. It is set when the trial has ended.
    """

    broken: str | None = None


@contextlib.contextmanager
def isolate_trial(mark: str = "") -> Iterator[ResetResult]:
    """Run a trial in the block, then reset the process to its state before the trial.

    Args:
        mark: Value of an environment variable that marks the processes that the trial starts.
            After the block, processes with this mark are killed; see `child_processes`. With "",
            these processes stay alive.
    """
    reset = ResetResult()
    processes = psutil.pids() if mark else []
    threads = set(threading.enumerate())
    environment = dict(os.environ)
    folder = working_directory()
    import_path = list(sys.path)
    arguments = list(sys.argv)
    streams = (sys.stdin, sys.stdout, sys.stderr)
    filters = warnings.filters[:]
    loggers = _logger_states()
    signal_handlers = _signal_handlers()
    settings = torch_state.settings()
    if mark:
        os.environ[child_processes.MARK] = mark
    try:
        with numpy.errstate(), numpy.printoptions():
            yield reset
    finally:
        if any(getattr(stream, "closed", False) for stream in streams):
            reset.broken = "the training loop closed a standard stream"
        else:
            reset.broken = _find_joined_cluster() or _find_user_thread(threads)
        sys.stdin, sys.stdout, sys.stderr = streams
        os.chdir(folder)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)
        sys.path[:] = import_path
        sys.argv[:] = arguments
        warnings.filters[:] = filters  # type: ignore[index]
        _restore_signal_handlers(signal_handlers)
        _restore_loggers(loggers)
        torch_state.restore(settings)
        if mark:
            child_processes.end(mark, processes)
        gc.collect()
        torch_state.empty_cuda()


def freeze_objects() -> None:
    """Exempt all objects that exist now from garbage collection, so that a reset is fast."""
    gc.collect()
    gc.freeze()


def memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def excess_growth(first: int, now: int) -> str | None:
    """Return a message if a process must be replaced, because it uses much more memory; else None.

    Args:
        first: Memory in use after the worker's first trial, in bytes.
        now: Memory in use after the worker's latest trial, in bytes.
    """
    if now - first <= max(MEMORY_GROWTH, first):
        return None
    return f"the process grew from {first >> 20} to {now >> 20} MB of memory"


# ---- what cannot be reset


def _find_joined_cluster() -> str | None:
    """Return a message if the loop has joined a cluster of TensorFlow or JAX; else None.

    Such a process cannot join another cluster later.
    """
    tensorflow = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    jax = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    connections = (
        getattr(tensorflow, "_server_def", None),
        getattr(tensorflow, "_collective_ops_server_def", None),
        getattr(jax, "client", None),
    )
    if connections == (None, None, None):
        return None
    return "the training loop joined a cluster of TensorFlow or JAX, which a process cannot leave"


def _find_user_thread(before: set[threading.Thread]) -> str | None:
    """Return a message about a new thread that runs the user's code and does not end soon.

    Return None if there is no such thread.
    """
    until = time.monotonic() + THREADS_END_WITHIN
    for thread in set(threading.enumerate()) - before:
        if user_code.runs_in(thread):
            thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive() and user_code.runs_in(thread):
            return f"a thread of the training loop is still running: `{thread.name}`"
    return None


# ---- signals, logging


def _signal_handlers() -> dict[int, Handler]:
    """Return the handlers of signals; {} outside of the main thread, which cannot change them."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in SIGNALS}


def _restore_signal_handlers(before: dict[int, Handler]) -> None:
    """Restore the handlers that `_signal_handlers` has returned, and cancel a timer of the loop."""
    if before:
        signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        # Python cannot set a handler of a C library, which is None here.
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@dataclass
class LoggerState:
    """Settings of a logger. The defaults are those of a new logger."""

    handlers: list[logging.Handler] = field(default_factory=list)
    level: int = logging.NOTSET
    propagate: bool = True
    disabled: bool = False

    def restore(self, logger: logging.Logger) -> None:
        """Give these settings to a logger, and close its other handlers."""
        for handler in [h for h in logger.handlers if h not in self.handlers]:
            logger.removeHandler(handler)
            with contextlib.suppress(Exception):
                handler.close()
        logger.handlers[:] = self.handlers
        logger.propagate = self.propagate
        logger.disabled = self.disabled
        if logger.level != self.level:
            logger.setLevel(self.level)


def _logger_states() -> dict[logging.Logger, LoggerState]:
    """Return the settings of all loggers."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    return {
        logger: LoggerState(
            list(logger.handlers), logger.level, logger.propagate, disabled=logger.disabled
        )
        for logger in loggers
        if isinstance(logger, logging.Logger)  # and not a placeholder for the parent of a logger
    }


def _restore_loggers(before: dict[logging.Logger, LoggerState]) -> None:
    """Restore all loggers. New loggers of installed packages keep their settings."""
    logging.disable(logging.NOTSET)  # undo a call of `logging.disable` by the loop
    for logger in _logger_states():
        if logger in before or not user_code.is_installed(logger.name.partition(".")[0]):
            before.get(logger, LoggerState()).restore(logger)
