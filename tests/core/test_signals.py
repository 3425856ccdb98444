"""Ctrl-C and SIGTERM: the first asks, whoever else wants to hear them, and the second ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import psutil
import pytest

from sweeps.controller.signals import SIGNALS, Interrupt
from tests.waiting import wait_until

TWICE = """
import os, signal, sys, time
from sweeps.controller.signals import Interrupt
interrupt = Interrupt("stopped at once\\n")
child = os.fork()
if not child:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
with interrupt.installed():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # as ray.init does
    interrupt.install()
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_for_a_stop_and_the_handler_is_restored(number: Any) -> None:
    before = [signal.getsignal(s) for s in SIGNALS]
    interrupt = Interrupt()
    with interrupt.installed():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        interrupt.install()
        assert not interrupt.asked
        signal.raise_signal(number)
        assert interrupt.asked
    assert [signal.getsignal(s) for s in SIGNALS] == before


def test_r4_a_repeated_sigterm_or_sighup_is_the_same_one() -> None:
    interrupt = Interrupt("must not end\n")
    with interrupt.installed():
        for number in (
            signal.SIGTERM,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGHUP,
        ):  # as `timeout` and a closed terminal send them
            signal.raise_signal(number)
        assert interrupt.asked


def test_r4_sighup_stays_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupt = Interrupt()
        with interrupt.installed():
            interrupt.install()
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.asked
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_second_signal_ends_the_process_and_its_children() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, "stopped at once\n")
    wait_until(
        lambda: (
            not psutil.pid_exists(int(done.stdout))
            or psutil.Process(int(done.stdout)).status() == "zombie"
        ),
        20,
        "it to end",
    )


def test_second_interrupt_in_notebook_raises() -> None:
    interrupt = Interrupt("\nstopped at once\n", keeps_process=True)
    with interrupt.installed():
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt, match="stopped at once"):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
