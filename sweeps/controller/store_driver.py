"""Find out from a sweep's store which process runs the sweep. This process renews the file `driver.json` every few seconds."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweeps.core.json_files import read_json_object
from sweeps.core.processes import is_alive
from sweeps.core.stores import DRIVER, Store

# A driver that has not renewed `driver.json` for this many seconds is dead.
DEAD_AFTER = 60.0


def this_machine() -> str:
    """Return a name of this machine since its last start: its host name, and a part of the kernel's boot id."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return (
        f"{socket.gethostname()}-{boot.read_text()[:8]}" if boot.exists() else socket.gethostname()
    )


def read_driver(store: Store, scratch: Path) -> dict[str, Any]:
    """Return the content of `driver.json` in a store; {} if there is none. `scratch` is the path of a temporary file."""
    try:
        store.get(DRIVER, scratch)
    except FileNotFoundError:
        return {}
    driver = read_json_object(scratch) or {}
    scratch.unlink()
    return driver


def driver_silence(driver: Mapping[str, Any], host: str, now: float) -> float | None:
    """Return for how many seconds a driver has not renewed `driver.json`. Return None if the driver is dead.

    Args:
        driver: Content of `driver.json`.
        host: Name of this machine.
        now: Current time, in seconds since the epoch.
    """
    seen, pid = driver.get("time"), driver.get("pid")
    if not isinstance(seen, (int, float)) or not isinstance(pid, int) or now - seen >= DEAD_AFTER:
        return None
    if driver.get("host") == host and (pid == os.getpid() or not is_alive(pid)):
        return None
    return now - seen
