"""Changes that ordinary loops make are undone before the next trial."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from sweeps.execution.isolation import child_processes, torch_state
from sweeps.execution.isolation.process_reset import MEMORY_GROWTH, excess_growth, isolate_trial
from tests.waiting import wait_until


def state() -> dict[str, Any]:
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": (list(sys.path), list(sys.argv)),
        "filters": list(warnings.filters),
        "torch": torch_state.settings(),
        "numpy": (np.geterr(), np.get_printoptions()["precision"]),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "silenced": logging.root.manager.disable,
        "alarm": signal.getitimer(signal.ITIMER_REAL)[0] > 500,
        "signal": signal.getsignal(signal.SIGUSR1),
        "root": (list(logging.getLogger().handlers), logging.getLogger().level),
        "mine": list(logging.getLogger("a.users.own").handlers),
    }


def careless(folder: Any) -> None:
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
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.deterministic = True
    torch.set_float32_matmul_precision("medium")
    np.seterr(all="raise")
    np.set_printoptions(precision=1)
    sys.stdout, sys.stderr = io.StringIO(), io.StringIO()
    logging.disable(logging.CRITICAL)
    signal.alarm(600)
    signal.signal(signal.SIGUSR1, lambda *args: None)
    logging.basicConfig(level=logging.DEBUG, filename=folder / "log.txt", force=True)
    logging.getLogger("a.users.own").addHandler(logging.FileHandler(folder / "own.txt"))


@pytest.mark.parametrize("raises", [False, True])
def test_state_is_reset(tmp_path: Path, raises: bool) -> None:
    before = state()
    try:
        with isolate_trial() as reset:
            careless(tmp_path)
            changed = [name for name, value in state().items() if value != before[name]]
            if raises:
                raise KeyError
    except KeyError:
        assert raises
    assert changed == list(before) and reset.broken is None
    assert {name: value for name, value in state().items() if value != before[name]} == {}


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(60)
def test_torch_that_a_trial_is_the_first_to_import_gets_its_defaults() -> None:
    code = (
        "from sweeps.execution.isolation.process_reset import isolate_trial\n"
        "from sweeps.execution.isolation.torch_state import DEFAULTS, settings\n"
        "with isolate_trial():\n"
        "    import torch\n"
        "    assert settings() == DEFAULTS, settings()\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "assert settings() == DEFAULTS"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


IMPORTS_TORCH_LATE = """
import sys
from sweeps.execution.isolation.seeds import seed_trial
if sys.argv[1] == "before":
    import torch
before = len(sys.meta_path)
with seed_trial(7, 1):
    pass
assert len(sys.meta_path) == before
for seed in (7, 8, 7):
    with seed_trial(seed, 1):
        import torch
        print(torch.rand(1).item(), torch.get_num_threads())
print(len(sys.meta_path) - before)
"""


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_torch_is_seeded_though_a_loop_is_the_first_to_import_it() -> None:
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


@pytest.mark.integration
def test_gang_of_one_renews_destroyed_process_group() -> None:
    code = """
import os, torch, torch.distributed as dist
from sweeps.execution.isolation import torch_state
for _ in range(2):
    own = torch_state.create_group_of_one(gpu=False)
    assert own == torch_state.groups() and len(own) == 1
    total = torch.ones(1); dist.all_reduce(total); assert float(total) == 1
    more = dist.new_group([0])
    assert more in torch_state.groups()
    torch_state.destroy_groups(own)
    assert torch_state.groups() == own and dist.is_initialized()
    dist.destroy_process_group()
os._exit(0)  # at the interpreter's own end gloo's threads have been seen to abort it
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_handlers_of_a_library_that_was_imported_meanwhile_stay() -> None:
    logging.Logger.manager.loggerDict.pop("numpy.made.now", None)
    with isolate_trial():
        logger = logging.getLogger("numpy.made.now")
        logger.addHandler(logging.NullHandler())
    assert len(logger.handlers) == 1
    logger.handlers.clear()


def test_a_closed_stream_breaks_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with isolate_trial() as reset:
        sys.stdout.close()
    assert reset.broken == "the training loop closed a standard stream"


def waits(event: threading.Event) -> None:
    event.wait(30)


def test_a_thread_of_the_users_breaks_the_process_while_it_runs() -> None:
    event = threading.Event()
    with isolate_trial() as reset:
        thread = threading.Thread(target=waits, args=(event,), name="mine")
        thread.start()
    event.set()
    thread.join(30)
    assert reset.broken == "a thread of the training loop is still running: `mine`"


def test_threads_that_end_or_are_a_librarys_own_do_no_harm() -> None:
    with isolate_trial() as reset:
        threading.Thread(target=time.sleep, args=(0.05,)).start()
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result(30)
    assert reset.broken is None
    pool.shutdown()


SLEEPS = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]


def forks() -> int:
    pid = os.fork()
    if not pid:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    return pid


def spawns_a_daemon() -> int:
    """A process in a session of its own, whose parent is gone."""
    code = (
        f"import subprocess; print(subprocess.Popen({SLEEPS!r}, start_new_session=True, "
        "stdout=-3, stderr=-3).pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("start", [forks, spawns_a_daemon])
def test_r7_a_process_that_a_loop_has_started_ends_with_its_trial(
    tmp_path: Path, start: Any
) -> None:
    stays = subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL)
    try:
        with isolate_trial(f"{tmp_path}/trials/0000/0"):
            pid = start()
            assert psutil.pid_exists(pid)
        wait_until(
            lambda: (
                not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            ),
            10,
            "it to end",
        )
        assert stays.poll() is None and child_processes.MARK not in os.environ
    finally:
        stays.kill()
        stays.wait()


def test_r7_the_processes_of_a_sweep_are_those_of_its_folder(tmp_path: Path) -> None:
    mine, other = (
        subprocess.Popen(
            SLEEPS,
            stdout=subprocess.PIPE,
            env={**os.environ, child_processes.MARK: f"{tmp_path}/{name}/trials/0000/0"},
        )
        for name in ("one", "one-more")
    )
    try:
        for process in (mine, other):
            assert process.stdout is not None
            process.stdout.readline()  # it runs, and so has its environment
        assert child_processes.end(str(tmp_path / "one")) == 1
        assert not psutil.pid_exists(mine.pid) and other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def test_a_worker_is_replaced_when_its_memory_grew_past_a_bound() -> None:
    assert excess_growth(300 << 20, (300 << 20) + MEMORY_GROWTH) is None
    text = "the process grew from 300 to 1325 MB of memory"
    assert excess_growth(300 << 20, (301 << 20) + MEMORY_GROWTH) == text
    assert excess_growth(8 << 30, 15 << 30) is None, "a large one may grow by as much again"
