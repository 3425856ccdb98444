"""What a process of ours died of. Ray tells neither exit code nor signal, so this looks for the traces that each leaves."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

# What a loop's own `os._exit` leaves in the log.
EXITED = "the loop ended its process by os._exit({})"
_EXITED = re.compile(re.escape(EXITED).replace(r"\{\}", r"(-?\d+)"))
# What `faulthandler` writes at a fatal signal, and the signal's name.
_FATAL = re.compile(
    r"^Fatal Python error: (Segmentation fault|Aborted|Bus error|Floating-point exception|Floating point exception|Illegal instruction)",
    re.MULTILINE,
)
_SIGNALS = {"Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS", "Illegal instruction": "SIGILL"}
_TITLE = re.compile(r"^--- \d{4}-\d\d-\d\d .*, attempt \d+, rank ", re.MULTILINE)
TAIL = 1 << 16  # bytes of a log that are looked at
MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


def exit_cause(error: BaseException | None, log: str = "", killed_for_memory: bool = False) -> str | None:
    """Say what a process died of; None if it did not die but raised.

    Args:
        error: what Ray raised.
        log: the end of what the process has printed.
        killed_for_memory: whether the kernel has killed a process for memory meanwhile.

    >>> exit_cause(None, log="--- the loop ended its process by os._exit(3)")
    'the process exited with code 3'
    >>> exit_cause(None, log="Fatal Python error: Segmentation fault")
    'the process died of SIGSEGV (segmentation fault)'
    """
    message = str(error)
    if (found := _EXITED.search(log)) is not None:
        return f"the process exited with code {found[1]}"
    if (found := _FATAL.search(log)) is not None:
        return f"the process died of {_SIGNALS.get(found[1], 'SIGFPE')} ({found[1].lower()})"
    if killed_for_memory or "running low on memory" in message or "OutOfMemory" in type(error).__name__:
        return "the process was killed because the memory ran out"
    if re.search(r"\bnode\b[^.]*\b(died|dead|removed|terminated|preempted)", message, re.IGNORECASE):
        return "its node was lost"
    if any(cls.__name__ == "ActorDiedError" for cls in type(error).__mro__):
        return "the process was killed (it left no trace, as by SIGKILL)"
    return None


def last_attempt_log(log: Path) -> str:
    """Return the end of a rank's log, from where its latest attempt begins; "" if there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    starts = [found.start() for found in _TITLE.finditer(text)]
    return text[starts[-1] :] if starts else text


def kills_for_memory() -> int:
    """Return how many processes of this container or machine the kernel has killed for memory; 0 where it does not tell."""
    try:
        return int(re.findall(r"^oom_kill (\d+)", MEMORY_EVENTS.read_text(), re.MULTILINE)[0])
    except (OSError, IndexError, ValueError):
        return 0


def log_os_exit() -> None:
    """From now on, whoever ends this process by `os._exit` leaves a line in its log. Of a forked process it is no news."""
    mine, plain = os.getpid(), os._exit

    def noted(status: int) -> Any:
        if os.getpid() == mine:
            sys.stdout.flush()
            os.write(2, f"\n--- {EXITED.format(status)}\n".encode())
        plain(status)

    os._exit = noted
