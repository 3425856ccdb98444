"""Find the processes of a sweep's actors by the titles that Ray gives them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import wait_until


def titles() -> dict[str, str]:
    """Map each kind of actor to the title of its processes.

    Ray forms the title from the name of the actor's class.
    """
    from sweeps.data.data_actor import _DataActor
    from sweeps.execution.pool import _Pool

    kinds = {"pool": _Pool.__name__, "data actor": _DataActor.__name__}
    kinds |= {"worker": "Worker"}
    return {kind: f"ray::{name}" for kind, name in kinds.items()}


def actors(driver: psutil.Process, *kinds: str) -> list[psutil.Process]:
    """Return the processes of actors that are descendants of a driver.

    Without `kinds`, return all kinds of actors.
    """
    wanted = tuple(title for kind, title in titles().items() if not kinds or kind in kinds)
    processes = []
    for process in driver.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(part.startswith(wanted) for part in process.cmdline()):
                processes.append(process)
    return processes


def actor_of(driver: psutil.Process, kind: str) -> psutil.Process | None:
    """Return the first process of one kind of actor that is a descendant of a driver; None if there
    is none.
    """
    return next(iter(actors(driver, kind)), None)


def wait_until_clean(ray: Any) -> None:
    """Wait until the sweep has released everything in this process's Ray: CPUs, placement groups
    and actors.
    """
    wait_until(lambda: ray.available_resources().get("CPU", 0) == 2, 30, "CPUs to be free again")
    groups = ray.util.placement_group_table()
    assert not [g for g in groups.values() if g["state"] != "REMOVED"], groups
    wait_until(lambda: not actors(psutil.Process()), 30, "the processes of actors to end")


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of this process's descendants, and of all processes whose command
    line names a file in the tests' folder.
    """
    me, commands = psutil.Process(), {}
    below = {child.pid for child in me.children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            ours = process.pid in below or f"{folder}/" in command
            if (
                ours
                and process.pid != me.pid
                and process.status() != psutil.STATUS_ZOMBIE
                and "resource_tracker" not in command
            ):
                commands[process.pid] = f"{process.pid} {command[:200]}"
    return list(commands.values())
