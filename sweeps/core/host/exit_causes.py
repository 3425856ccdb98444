"""Find out why a worker process died.

Ray reports neither exit codes nor signals, so this module searches the logs for the cause.
"""

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import NoReturn

# The line that is written to the log when a loop calls `os._exit`.
OS_EXIT_LINE = "the loop ended its process by os._exit({})"
_OS_EXIT = re.compile(re.escape(OS_EXIT_LINE).replace(r"\{\}", r"(-?\d+)"))
# The signals whose descriptions `faulthandler` writes to the log, by description.
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_FATAL = re.compile(rf"^Fatal Python error: ({'|'.join(_SIGNALS)})", re.MULTILINE)
# The cause if the node of the process was lost.
NODE_LOST = "the node of the process was lost"
# The cause if neither Ray nor the log names one.
KILLED = "the process was killed and left no trace, as after SIGKILL"
# The first line of each attempt in a rank's log.
_TITLE = re.compile(r"^--- \d{4}-\d\d-\d\d .*, attempt \d+, rank ", re.MULTILINE)
# The bytes at the end of a log that are read
TAIL_BYTES = 1 << 16
# The file that lists the cgroups of this process.
CGROUPS = Path("/proc/self/cgroup")
# The mount of the cgroups. A container sees its own cgroup at the root of the mount.
MOUNT = Path("/sys/fs/cgroup")


def exit_cause(
    error: BaseException | None, log: str = "", killed_for_memory: bool = False
) -> str | None:
    """Return the cause of a worker process's death as text.

    Return None if neither the error nor the log shows that the process died. In this case, the
    training loop only raised an error.

    Args:
        error: The error that Ray raised; None if there is none.
        log: The last part of the process's log.
        killed_for_memory: True if the kernel has killed a process for lack of memory since the
            trial started.

    >>> exit_cause(None, log="--- the loop ended its process by os._exit(3)")
    'the process exited with code 3'
    >>> exit_cause(None, log="Fatal Python error: Segmentation fault")
    'the process died of SIGSEGV (segmentation fault)'
    """
    message = str(error)
    # The names of classes are compared, so that this module need not import Ray. torch has an
    # `OutOfMemoryError`, too, which it raises if the memory of a GPU is full.
    classes = type(error).__mro__
    ray_errors = {cls.__name__ for cls in classes if cls.__module__.startswith("ray.")}
    if (match := _OS_EXIT.search(log)) is not None:
        return f"the process exited with code {match[1]}"
    if (match := _FATAL.search(log)) is not None:
        return f"the process died of {_SIGNALS[match[1]]} ({match[1].lower()})"
    ran_out = "running low on memory" in message or "OutOfMemoryError" in ray_errors
    if killed_for_memory or ran_out:
        return "the process was killed because the memory ran out"
    if re.search(
        r"\bnode\b[^.]*\b(died|dead|removed|terminated|preempted)", message, re.IGNORECASE
    ):
        return NODE_LOST
    return KILLED if "ActorDiedError" in ray_errors else None


def last_attempt_log(log: Path) -> str:
    """Return the part of a rank's log that the latest attempt wrote, at most `TAIL_BYTES`.

    Return "" if there is no log.
    """
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    starts = [match.start() for match in _TITLE.finditer(text)]
    return text[starts[-1] :] if starts else text


def kills_for_memory() -> int:
    """Return how many processes of this container the kernel has killed for lack of memory.

    0 if the number is unknown.

    Under cgroup v2, `memory.events` has the number; under v1, `memory.oom_control` of the
    controller `memory`.
    """
    paths = [""]
    with contextlib.suppress(OSError):
        # Lines such as `0::/PATH` under v2 and `9:memory:/PATH` under v1.
        paths += re.findall(r"^\d+:(?:|.*\bmemory\b.*):/(.+)", CGROUPS.read_text(), re.MULTILINE)
    files = [MOUNT / path / "memory.events" for path in paths]
    files += [MOUNT / "memory" / path / "memory.oom_control" for path in paths]
    kills = 0
    for file in files:
        with contextlib.suppress(OSError):
            counts = re.findall(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE)
            kills += sum(int(count) for count in counts)
    return kills


def log_os_exit() -> None:
    """Patch `os._exit` so that it writes a line to the log before it ends this process.

    Forked processes do not write the line.
    """
    pid = os.getpid()
    original = os._exit

    def log_and_exit(status: int) -> NoReturn:
        if os.getpid() == pid:
            sys.stdout.flush()
            # A training loop's standard error goes to its log.
            os.write(2, f"\n--- {OS_EXIT_LINE.format(status)}\n".encode())
        original(status)

    os._exit = log_and_exit
