"""What a loop turns, adds and leaves lying about is as it was when the next trial begins."""

from __future__ import annotations

import asyncio
import builtins
import csv
import decimal
import functools
import gc
import io
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import psutil
import pyarrow
import pytest
import threadpoolctl
import torch
import xgboost

from sweeps.execution import global_settings, isolation, process_use
from sweeps.execution.process_use import ProcessUse, excess_growth
from tests.waiting import wait_until


def state() -> dict:
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "arguments": list(sys.argv),
        "filters": list(warnings.filters),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "cudnn": torch.backends.cudnn.deterministic,
        "precision": torch.get_float32_matmul_precision(),
        "numpy": np.geterr(),
        "xgboost": xgboost.get_config(),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "silenced": logging.root.manager.disable,
        "alarm": signal.getitimer(signal.ITIMER_REAL)[0] > 500,
        "bounds": (sys.getrecursionlimit(), sys.getswitchinterval()),
        "hooks": (sys.excepthook, threading.excepthook),
        "scheduling": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
        "root": list(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "mine": list(logging.getLogger("a.users.own").handlers),
        "theirs": (list(logging.getLogger("numpy").handlers), logging.getLogger("numpy").level),
    }


def careless(folder) -> None:
    """What loops do."""
    os.environ["LEFT"] = "behind"
    os.environ.pop("HOME", None)
    os.chdir(folder)
    sys.path.insert(0, "/nowhere")
    sys.argv.append("--lr")
    warnings.simplefilter("error")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.set_float32_matmul_precision("medium")
    np.seterr(all="raise")
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    logging.disable(logging.CRITICAL)
    signal.alarm(600)
    sys.setrecursionlimit(9999)
    sys.setswitchinterval(1.0)
    sys.excepthook = threading.excepthook = print  # type: ignore[assignment]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    xgboost.set_config(verbosity=0)
    logging.basicConfig(level=logging.DEBUG, filename=folder / "log.txt", force=True)
    logging.getLogger("a.users.own").addHandler(logging.FileHandler(folder / "own.txt"))
    logging.getLogger("numpy").addHandler(logging.NullHandler())
    logging.getLogger("numpy").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("raises", [False, True])
def test_all_state_is_reset(tmp_path, raises):
    before = state()
    with (
        pytest.raises(KeyError) if raises else isolation.contextlib.nullcontext(),
        isolation.isolated(),
    ):
        careless(tmp_path)
        assert state() != before
        if raises:
            raise KeyError
    after = state()
    assert {k: v for k, v in after.items() if v != before[k]} == {}


IMPORTS_TORCH_LATE = """
import sys
from sweeps.execution.seeds import seeded
if sys.argv[1] == "before":
    import torch
for seed in (7, 8, 7):
    with seeded(seed, 1):
        import torch
        print(torch.rand(1).item(), torch.get_num_threads())
print(len(sys.meta_path))
"""


@pytest.mark.integration
def test_torch_is_seeded_though_a_loop_is_the_first_to_import_it():
    late, before = (
        subprocess.run(
            [sys.executable, "-c", IMPORTS_TORCH_LATE, when],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")
        for when in ("late", "before")
    )
    assert late == before and late[0] == late[2] != late[1] and late[0].endswith(" 1")


def test_code_without_torch_leaves_no_import_hook():
    code = "import sys; from sweeps.execution.seeds import seeded; before = len(sys.meta_path)\n"
    code += "with seeded(7, 1): assert len(sys.meta_path) == before + 1\n"
    code += "assert len(sys.meta_path) == before and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.integration
def test_a_gang_of_one_gets_its_process_group_again_after_a_loop_destroyed_it():
    code = """
import os, torch, torch.distributed as dist
from sweeps.execution import isolation
for _ in range(2):
    own = isolation.group_of_one(gpu=False)
    assert own == isolation.groups() and len(own) == 1
    total = torch.ones(1); dist.all_reduce(total); assert float(total) == 1
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "1")
    dist.destroy_process_group()
os._exit(0)  # at the interpreter's own end gloo's threads have been seen to abort it
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.integration
def test_a_fresh_process_has_what_is_said_of_it():
    code = (
        "import sys; sys.modules['dill'] = None  # torch imports dill if it is installed, and "
        "dill sets `tempfile.tempdir`\n"
    )
    code += "import asyncio, csv, multiprocessing, tempfile, torch, urllib.request, xgboost\n"
    code += "from sweeps.execution.global_settings import GLOBAL_SETTINGS, UNKNOWN\n"
    code += (
        "known = [k for k in GLOBAL_SETTINGS if k.default is not UNKNOWN and k.module not in "
        "('xgboost', 'matplotlib')]\n"
    )
    code += "bad = [k for k in known if k.get(sys.modules[k.module]) != k.default]\n"
    code += "assert not bad, bad; assert xgboost.get_config()['verbosity'] == 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_handlers_of_a_library_that_was_imported_meanwhile_stay(tmp_path):
    made = logging.getLogger("numpy.made.now")
    logging.Logger.manager.loggerDict.pop("numpy.made.now")
    try:
        with isolation.isolated():
            made = logging.getLogger("numpy.made.now")
            made.addHandler(logging.NullHandler())
        assert len(made.handlers) == 1
    finally:
        made.handlers.clear()


def test_files_of_handlers_are_closed(tmp_path):
    first = process_use.process_use()
    for i in range(5):
        with isolation.isolated():
            logging.getLogger(f"a.users.{i}").addHandler(logging.FileHandler(tmp_path / f"{i}.txt"))
    assert process_use.process_use().descriptors <= first.descriptors + 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower its niceness")
def test_niceness_is_put_back_where_that_is_allowed():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with isolation.isolated() as reset:
        os.nice(1)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before and reset.broken is None


def test_a_process_that_cannot_be_reset_is_broken(monkeypatch):
    nice = 0
    monkeypatch.setattr(os, "getpriority", lambda which, who: nice)
    monkeypatch.setattr(
        os,
        "setpriority",
        lambda *args: (_ for _ in ()).throw(PermissionError(13, "Permission denied")),
    )
    with isolation.isolated() as reset:
        nice = 5
    assert (
        reset.broken
        == "the training loop changed how the process is scheduled, and sweeps cannot undo this "
        "change: Permission denied"
    )


def test_a_closed_stream_breaks_the_process(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with isolation.isolated() as reset:
        sys.stdout.close()
    assert reset.broken == "the training loop closed sys.stdout"


def waits(event: threading.Event) -> None:
    event.wait(30)


def idles(event: threading.Event) -> threading.Thread:
    return threading.Thread(target=functools.partial(waits, event), name="mine", daemon=True)


def timed(event: threading.Event) -> threading.Thread:
    return threading.Timer(30, waits, (event,))


def pooled(event: threading.Event) -> threading.Thread:
    pool = ThreadPoolExecutor(1, "pool")
    pool.submit(waits, event)
    return next(iter(pool._threads))


@pytest.mark.parametrize("kind", [idles, timed, pooled])
def test_a_thread_of_the_users_breaks_the_process_while_it_runs(kind):
    event = threading.Event()
    try:
        with isolation.isolated() as reset:
            thread = kind(event)
            if not thread.is_alive():
                thread.start()
        assert reset.threads == [thread]
        assert reset.broken is not None and reset.broken.startswith(
            f"a thread that the training loop started is still running: `{thread.name}` "
        )
        assert str(Path(__file__)) in reset.broken
    finally:
        event.set()
        getattr(thread, "cancel", lambda: None)()
        thread.join(30) if kind is not pooled else None


def test_threads_that_end_or_are_a_librarys_own_do_no_harm():
    with isolation.isolated() as reset:
        ends = threading.Thread(target=time.sleep, args=(0.05,))
        ends.start()
        pool = ThreadPoolExecutor(1)
        pool.submit(waits, (event := threading.Event()))
        event.set()
        pool.submit(int).result(30)
    assert reset.broken is None and next(iter(pool._threads)) in reset.threads, (
        "idle: it runs nothing of the user's"
    )
    pool.shutdown()


def test_groups_that_a_loop_made_are_destroyed_and_the_gangs_own_stays(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1
    )
    try:
        own = isolation.groups()
        with isolation.isolated():
            group = torch.distributed.new_group([0])
        assert group in isolation.groups(), "a peer may still be at it"
        isolation.destroy_groups(own)
        assert isolation.groups() == own and torch.distributed.is_initialized()
    finally:
        torch.distributed.destroy_process_group()


def zone() -> str:
    return time.strftime("%H", time.localtime(0))


def turn_zone() -> None:
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()


def patch_builtins() -> None:
    setattr(builtins, "print", None)  # noqa: B010 - as a loop might
    setattr(builtins, "everywhere", 1)  # noqa: B010


def deny_import() -> None:
    sys.modules["wave"] = sys.modules["json"] = None  # type: ignore[assignment]


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None


def pools() -> dict[str, int]:
    return {pool["filepath"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}


def scheduler() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.sched_getparam(0).sched_priority


def patched(module, name: str):
    """A loop that replaces a function, and what shows it."""
    return lambda: setattr(module, name, lambda *args, **kwargs: None), lambda: getattr(
        module, name
    )


def attribute(module, name: str, value):
    return lambda: setattr(module, name, value), lambda: getattr(module, name)


SIGNALS = (
    "SIGHUP",
    "SIGINT",
    "SIGTERM",
    "SIGALRM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGCHLD",
    "SIGPIPE",
    "SIGWINCH",
    "SIGRTMIN",
)
FUNCTIONS = (
    *(
        (json, "dumps"),
        (logging, "info"),
        (isolation.os, "listdir"),
        (os.path, "exists"),
        (random, "random"),
        (signal, "signal"),
    ),
    *(
        (socket, "getaddrinfo"),
        (socket, "socket"),
        (subprocess, "run"),
        (sys, "exit"),
        (threading, "Thread"),
        (time, "time"),
    ),
    *((time, "sleep"), (warnings, "warn"), (np, "load"), (torch, "load")),
)


def handled(number):
    other = print if signal.getsignal(number) is signal.SIG_IGN else signal.SIG_IGN
    return lambda: signal.signal(number, other), lambda: signal.getsignal(number)


# What a loop turns, and what shows it.
TURNED = {
    "umask": (lambda: os.umask(0o077), isolation._umask),
    "soft limit": (
        lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
        ),
        isolation._limits,
    ),
    "socket timeout": (lambda: socket.setdefaulttimeout(0.1), socket.getdefaulttimeout),
    "collector": (gc.disable, gc.isenabled),
    "collector's threshold": (lambda: gc.set_threshold(1), gc.get_threshold),
    "builtins": (patch_builtins, lambda: (builtins.print, hasattr(builtins, "everywhere"))),
    "pandas option": (
        lambda: pd.set_option("display.max_rows", 1),
        lambda: pd.get_option("display.max_rows"),
    ),
    "pandas precision": (
        lambda: pd.set_option("display.precision", 1),
        lambda: pd.get_option("display.precision"),
    ),
    "decimal precision": (
        lambda: setattr(decimal.getcontext(), "prec", 3),
        lambda: decimal.getcontext().prec,
    ),
    "decimal rounding": (
        lambda: setattr(decimal.DefaultContext, "rounding", "ROUND_UP"),
        lambda: decimal.DefaultContext.rounding,
    ),
    "time zone": (turn_zone, zone),
    "locale": (
        lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: locale.setlocale(locale.LC_ALL),
    ),
    "start of processes": (
        lambda: multiprocessing.set_start_method("spawn", force=True),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    "tracing": (lambda: sys.setprofile(lambda *event: None), sys.getprofile),
    **{name: handled(getattr(signal, name)) for name in SIGNALS if hasattr(signal, name)},
    "timer of the process's time": (
        lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 600),
        lambda: signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0,
    ),
    "timer of profilers": (
        lambda: signal.setitimer(signal.ITIMER_PROF, 600),
        lambda: signal.getitimer(signal.ITIMER_PROF)[0] > 0,
    ),
    "signal mask": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    ),
    "class of scheduling": (
        lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)),
        scheduler,
    ),
    "NumPy's print options": (
        lambda: np.set_printoptions(precision=1),
        lambda: str(np.array([1 / 3])),
    ),
    "rcParams": (
        lambda: matplotlib.rcParams.update({"lines.linewidth": 9}),
        lambda: matplotlib.rcParams["lines.linewidth"],
    ),
    "pyarrow's CPU threads": (
        lambda: pyarrow.set_cpu_count(pyarrow.cpu_count() + 1),
        pyarrow.cpu_count,
    ),
    "pyarrow's I/O threads": (
        lambda: pyarrow.set_io_thread_count(pyarrow.io_thread_count() + 1),
        pyarrow.io_thread_count,
    ),
    "BLAS and OpenMP": (
        lambda: [
            pool.set_num_threads(3) for pool in threadpoolctl.ThreadpoolController().lib_controllers
        ],
        pools,
    ),
    "raiseExceptions": attribute(logging, "raiseExceptions", False),
    "captured warnings": (
        lambda: logging.captureWarnings(True),
        lambda: (warnings.showwarning, logging._warnings_showwarning),
    ),
    "record factory": (lambda: logging.setLogRecordFactory(print), logging.getLogRecordFactory),
    "displayhook": attribute(sys, "displayhook", print),
    "excepthook": attribute(sys, "excepthook", print),
    "breakpointhook": attribute(sys, "breakpointhook", print),
    "unraisablehook": attribute(sys, "unraisablehook", print),
    "excepthook of threads": attribute(threading, "excepthook", print),
    "digits of integers": (lambda: sys.set_int_max_str_digits(0), sys.get_int_max_str_digits),
    "threads' stacks": (
        lambda: threading.stack_size(1 << 20),
        lambda: global_settings._stack_size(threading),
    ),
    "field size": (lambda: csv.field_size_limit(7), csv.field_size_limit),
    "temporary folder": attribute(tempfile, "tempdir", "/nowhere"),
    "event loops": (
        lambda: asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()),
        lambda: asyncio.events._event_loop_policy,
    ),
    "HTTPS": attribute(ssl, "_create_default_https_context", ssl._create_unverified_context),
    "opener": (
        lambda: urllib.request.install_opener(urllib.request.build_opener()),
        lambda: urllib.request._opener,
    ),
    "finder": (lambda: sys.meta_path.insert(0, Finder), lambda: list(sys.meta_path)),
    "finder that is gone": (lambda: sys.meta_path.pop(), lambda: list(sys.meta_path)),
    "denied imports": (deny_import, lambda: (sys.modules.get("json"), "wave" in sys.modules)),
    **{f"{module.__name__}.{name}": patched(module, name) for module, name in FUNCTIONS},
    "a function that is gone": (
        lambda: delattr(json, "loads"),
        lambda: getattr(json, "loads", None),
    ),
}


@pytest.mark.parametrize(("turn", "shown"), TURNED.values(), ids=TURNED)
def test_r7_changed_settings_are_reset(monkeypatch, turn, shown):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    if resource.getrlimit(resource.RLIMIT_CORE)[0] == 0:
        monkeypatch.setattr(resource, "RLIMIT_CORE", resource.RLIMIT_NOFILE)
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    before = shown()
    try:
        with isolation.isolated() as reset:
            turn()
            if shown is not isolation._limits:
                assert shown() != before
        assert shown() == before and reset.broken is None
    finally:
        gc.enable()


def test_patches_of_a_package_that_a_trial_imports_stay(monkeypatch):
    """torch wraps `torch.manual_seed` when a loop is the first to import `torch._dynamo`."""
    monkeypatch.setattr(np, "load", np.load)
    own = type("Finder", (), {"__module__": "numpy.late"})()
    with isolation.isolated():
        monkeypatch.setitem(sys.modules, "torch.late", isolation.types.ModuleType("torch.late"))
        replacement = isolation.types.FunctionType(
            (lambda: None).__code__, {"__name__": "torch.late"}
        )
        np.load = replacement  # type: ignore[assignment]
        sys.meta_path.append(own)
    sys.meta_path.remove(own)
    assert np.load is replacement
    with isolation.isolated():
        np.load = isolation.types.FunctionType((lambda: None).__code__, {"__name__": "torch.late"})  # type: ignore[assignment]
    assert np.load is replacement, "this trial has imported nothing of torch"


def test_a_handler_that_python_cannot_set_again_breaks_the_process():
    assert (
        isolation._put_back_handlers({signal.SIGUSR1: None})
        == "the training loop replaced the handler of SIGUSR1 that a C library had set, and "
        "sweeps cannot restore it"
    )


def test_a_signal_that_a_loop_has_blocked_goes_to_its_own_handler():
    seen, before = (
        [],
        signal.getsignal(signal.SIGUSR1),
    )  # Ray Tune leaves a handler where a sweep ran in this process
    with isolation.isolated():
        signal.signal(signal.SIGUSR1, lambda *args: seen.append(1))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
    assert seen == [1] and signal.getsignal(signal.SIGUSR1) is before


def test_matplotlib_that_a_loop_is_the_first_to_import_is_as_new_for_the_next():
    code = "import sys; from sweeps.execution import isolation\n"
    code += (
        "with isolation.isolated():\n    import matplotlib\n"
        "    matplotlib.rcParams['lines.linewidth'] = 9\n"
    )
    code += (
        "assert matplotlib.rcParams['lines.linewidth'] == "
        "matplotlib.rcParamsOrig['lines.linewidth'] != 9"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_r7_a_limit_that_cannot_be_raised_again_breaks_the_process(monkeypatch):
    with isolation.isolated() as reset:
        monkeypatch.setattr(isolation, "_limits", dict)
        before = isolation._put_back_limits

        def refused(limits):
            monkeypatch.setattr(resource, "getrlimit", lambda which: (-5, -5))
            monkeypatch.setattr(
                resource,
                "setrlimit",
                lambda which, values: (_ for _ in ()).throw(ValueError("not allowed to raise")),
            )
            return before(limits)

        monkeypatch.setattr(isolation, "_put_back_limits", refused)
    assert reset.broken is not None and "limit" in reset.broken


SLEEPS = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]


def forks() -> int:
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return pid


def spawns() -> int:
    return subprocess.Popen(SLEEPS, start_new_session=True, stdout=subprocess.DEVNULL).pid


def spawns_a_daemon() -> int:
    """A process whose parent is gone: below no other of ours."""
    code = (
        f"import subprocess; print(subprocess.Popen({SLEEPS!r}, start_new_session=True, "
        "stdout=-3, stderr=-3).pid)"
    )
    return int(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


@pytest.mark.parametrize("start", [forks, spawns, spawns_a_daemon])
def test_r7_a_process_that_a_loop_has_started_ends_with_its_trial(tmp_path, start):
    stays = subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL)
    try:
        with isolation.isolated(f"{tmp_path}/trials/0000/0"):
            pid = start()
            assert psutil.pid_exists(pid)
        wait_until(
            lambda: (
                not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            ),
            10,
            "it to end",
        )
        assert stays.poll() is None and isolation.child_processes.MARK not in os.environ
    finally:
        stays.kill()
        stays.wait()


def test_r7_the_processes_of_a_sweep_are_found_by_its_folder(tmp_path):
    mine, other = (
        subprocess.Popen(
            SLEEPS,
            stdout=subprocess.PIPE,
            env={**os.environ, isolation.child_processes.MARK: f"{tmp_path}/{name}/trials/0000/0"},
        )
        for name in ("one", "one-more")
    )
    try:
        for process in (mine, other):
            process.stdout.readline()  # it runs, and so has its environment
        assert isolation.child_processes.end(str(tmp_path / "one")) == 1
        assert not psutil.pid_exists(mine.pid) and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()
            process.stdout.close()


def test_resetting_after_a_trial_takes_about_a_millisecond():
    isolation.settle()
    times = []
    for _ in range(20):
        began = time.perf_counter()
        with isolation.isolated():
            random.random()
        times.append(time.perf_counter() - began)
    assert sorted(times)[10] < 0.05, times  # 2 ms on an idle machine


NEW = ProcessUse(memory=300 << 20, descriptors=60, threads=40)


def test_a_worker_is_worn_when_it_grew_past_a_bound():
    assert excess_growth(NEW, NEW) is None
    assert excess_growth(NEW, replace(NEW, memory=NEW.memory + process_use.MEMORY_GROWTH)) is None
    assert (
        excess_growth(NEW, replace(NEW, memory=NEW.memory + process_use.MEMORY_GROWTH + 1))
        == "the process grew from 300 to 1324 MB of memory"
    )
    assert (
        excess_growth(NEW, replace(NEW, descriptors=317))
        == "the process grew from 60 to 317 descriptors"
    )
    assert (
        excess_growth(NEW, replace(NEW, threads=169)) == "the process grew from 40 to 169 threads"
    )
    large = replace(NEW, memory=8 << 30)
    assert excess_growth(large, replace(large, memory=15 << 30)) is None, (
        "a large one may grow by as much again"
    )


def test_a_working_directory_that_ray_replaced_is_entered_again(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    folder.mkdir()
    (folder / "new").touch()
    with isolation.isolated():
        assert os.listdir() == ["new"]
    assert os.getcwd() == str(folder)
