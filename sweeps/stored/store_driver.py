"""Find out from a sweep's store which process runs the sweep.

This process renews the file `driver.json` every few seconds, and marks the file when the process
ends. So the file names the process that runs the sweep, or the last process that ran the sweep. A
missing file names nobody: somebody has deleted it, or no process has run the sweep yet.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from sweeps.core.files.stores import DRIVER, Store
from sweeps.core.host.processes import start_time
from sweeps.core.json_values import Count, PrintableText

# A driver on another machine that has not renewed `driver.json` for this many seconds is dead.
DEAD_AFTER = 60.0
# A larger `driver.json` is not from sweeps.
MAX_BYTES = 2**16


@dataclass(frozen=True)
class Driver:
    """A process that runs a sweep, or has run it.

    Attributes:
        host: Name of its machine; see `this_machine`.
        pid: Id of the process.
        started: When the process started; see `start_time`.
        ended: True if the process has ended the sweep.
        seen: When `driver.json` was last renewed, in seconds since the epoch. `read_driver` takes
            this time from the storage.
    """

    host: Annotated[PrintableText, Field(max_length=255)]
    pid: Count
    started: float | None = None
    ended: bool = False
    seen: float = 0.0

    @classmethod
    def here(cls, ended: bool = False) -> Driver:
        """Return this process as a driver."""
        pid = os.getpid()
        return cls(this_machine(), pid, start_time(pid), ended, seen=time.time())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_here(self) -> bool:
        """True if this is the current process, whatever `ended` and `seen` are."""
        return replace(Driver.here(), ended=self.ended, seen=self.seen) == self

    def silence(self, now: float) -> float | None:
        """Return for how many seconds the driver has not renewed `driver.json`.

        Return None if the driver is dead or has ended. A driver on this machine lives as long as
        its process. Two clocks decide about a driver on another machine: the clock of the
        storage, and the clock of this machine.

        Args:
            now: Current time, in seconds since the epoch.
        """
        silent = now - self.seen
        if self.host == this_machine():
            # An entry of the current process is from an earlier run of the sweep, which has ended.
            is_dead = self.is_here or start_time(self.pid) != self.started
        else:
            is_dead = silent >= DEAD_AFTER
        return None if self.ended or is_dead else max(0.0, silent)


_RULES: TypeAdapter[Driver] = TypeAdapter(Driver)


def this_machine() -> str:
    """Return a name of this machine since its last start.

    The name has the host name, a part of the kernel's boot id, and the id of the namespace of
    process ids. Two containers can have the same host name and the same kernel.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return socket.gethostname()
    processes = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}-{boot.read_text()[:8]}-{processes}"


def read_driver(store: Store) -> Driver | None:
    """Return the driver that `driver.json` in a store names.

    Return None if there is no such file, or if sweeps did not write the file.
    """
    file = store.file(DRIVER)
    if file is None or file.size > MAX_BYTES:
        return None
    try:
        driver = _RULES.validate_json(read_stored(store, DRIVER), strict=True)
    except (FileNotFoundError, IsADirectoryError, ValidationError):
        return None
    return replace(driver, seen=file.mtime_ns / 1e9)


def read_stored(store: Store, name: str) -> bytes:
    """Return the content of a file in a store.

    Raises:
        FileNotFoundError: There is no such file.
        StoreError: The storage does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="sweeps-read-") as scratch:
        file = Path(scratch, name)
        store.get(name, file)
        return file.read_bytes()
