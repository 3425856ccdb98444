"""Divide one machine among the sweeps that a user runs on it.

A sweep that starts Ray itself registers the CPUs and GPUs that it uses.

A registration is a file in a folder that only this user can read or write. The sweep's process
keeps the file locked. The operating system frees the lock when the process dies, so the file of a
dead process is recognized and deleted. The folder is in the machine's folder for temporary files.
Sweeps of other users are not seen.
"""

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweeps.core.errors import InputError
from sweeps.core.text.shell_text import printable
from sweeps.core.text.texts import count_noun


@dataclass(frozen=True)
class Registration:
    """The CPUs and GPUs of this machine that a sweep uses.

    Attributes:
        sweep: Name of the sweep's folder, or the command that uses the machine.
        folder: Path of the sweep's folder.
        pid: Id of the process that runs the sweep.
        cpus: Number of CPUs that the sweep uses.
        gpus: Ids of the GPUs that the sweep uses, in the form in which `CUDA_VISIBLE_DEVICES` lists
            them.
    """

    sweep: str
    folder: str
    pid: int
    cpus: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Share:
    """The CPUs and GPUs that a sweep may use.

    Attributes:
        cpus: Number of CPUs; None for all CPUs of the cluster.
        gpus: Number of GPUs; None for all GPUs of the cluster.
        gpu_ids: Ids of those GPUs of this machine that the sweep may use; None if Ray chooses among
            all GPUs.
    """

    cpus: int | None = None
    gpus: int | None = None
    gpu_ids: tuple[str, ...] | None = None

    @property
    def limit(self) -> dict[str, float] | None:
        """The limited resources by name, such as `{"CPU": 4.0, "GPU": 1.0}`.

        None if neither CPUs nor GPUs are limited.
        """
        limits = {"CPU": self.cpus, "GPU": self.gpus}
        limited = {name: float(amount) for name, amount in limits.items() if amount is not None}
        return limited or None


EVERYTHING = Share()


def divide(
    cpus: int, gpu_ids: Sequence[str], others: Sequence[Registration], wanted: Share
) -> Share:
    """Return the CPUs and GPUs that a new sweep may use.

    They are the numbers in `wanted`, or else all that the other sweeps do not use. If `wanted` is
    more than the other sweeps leave free, the new sweep also gets CPUs and GPUs that other sweeps
    use.

    Args:
        cpus: Number of CPUs of the machine.
        gpu_ids: Ids of the GPUs of the machine.
        others: The other sweeps on the machine.
        wanted: Numbers of CPUs and GPUs for the new sweep. None stands for all that the other
            sweeps leave.

    Raises:
        InputError: The machine has fewer CPUs or GPUs than `wanted`, or `wanted.cpus` is None and
            the other sweeps leave no CPU.
    """
    for option, amount, existing, noun in (
        ("--cpus", wanted.cpus, cpus, "CPU"),
        ("--gpus", wanted.gpus, len(gpu_ids), "GPU"),
    ):
        if amount is not None and amount > existing:
            raise InputError(
                option,
                f"is {amount}, but this machine has {count_noun(existing, noun)}; give at most "
                f"{existing}",
            )
    free = cpus - sum(other.cpus for other in others)
    if wanted.cpus is None and free < 1:
        use = "; ".join(describe_other(other, cpus, len(gpu_ids)) for other in others)
        raise InputError(
            "this machine",
            f"no CPU is left for this sweep: {use}; wait until another sweep ends, or give --cpus "
            "N to share the CPUs",
        )
    used = {gpu for other in others for gpu in other.gpus}
    free_gpus = [gpu for gpu in gpu_ids if gpu not in used]
    used_gpus = [gpu for gpu in gpu_ids if gpu in used]
    chosen = tuple(free_gpus)
    if wanted.gpus is not None:
        chosen = tuple([*free_gpus, *used_gpus][: wanted.gpus])
    return Share(free if wanted.cpus is None else wanted.cpus, len(chosen), chosen)


def describe_other(other: Registration, cpus: int, gpus: int) -> str:
    """Return a sentence that names another sweep on this machine.

    It also says how many CPUs and GPUs the sweep uses.

    Args:
        other: The other sweep.
        cpus: Number of CPUs of the machine.
        gpus: Number of GPUs of the machine.
    """
    has_gpus = f" and {len(other.gpus)} of {count_noun(gpus, 'GPU')}" if gpus else ""
    who = printable(f"{other.sweep} in {other.folder}")
    return (
        f"another sweep runs on this machine, {who} (process {other.pid}), and uses {other.cpus} "
        f"of {count_noun(cpus, 'CPU')}{has_gpus}"
    )


def describe_share(share: Share, gpus: int) -> str:
    """Return a sentence that says how many CPUs and GPUs a new sweep uses.

    `gpus` is the number of GPUs of the machine.
    """
    has_gpus = f" and {count_noun(share.gpus or 0, 'GPU')}" if gpus else ""
    return (
        f"this sweep uses {count_noun(share.cpus or 0, 'CPU')}{has_gpus}; the options --cpus and "
        "--gpus change this"
    )


@contextlib.contextmanager
def register(
    sweep: str, folder: Path, cpus: int, gpu_ids: Sequence[str], wanted: Share
) -> Iterator[tuple[Share, list[Registration]]]:
    """Register a sweep's share of this machine while the `with` block runs.

    Args:
        sweep: Name of the sweep's folder, or the command that uses the machine.
        folder: The sweep's folder.
        cpus: Number of CPUs of the machine.
        gpu_ids: Ids of the GPUs of the machine.
        wanted: Numbers of CPUs and GPUs for the sweep; see `divide`.

    Yields:
        The CPUs and GPUs that the sweep may use, and the registrations of the other sweeps.

    Raises:
        InputError: See `divide`.
    """
    registrations = _registration_folder()
    if registrations is None:  # Other sweeps cannot be seen.
        yield divide(cpus, gpu_ids, [], wanted), []
        return
    with contextlib.ExitStack() as stack:
        with _lock_file(registrations / "lock"):
            others = _read_registrations(registrations)
            share = divide(cpus, gpu_ids, others, wanted)
            file = registrations / f"{os.getpid()}-{os.urandom(4).hex()}.json"
            stack.enter_context(_lock_file(file))
            stack.callback(file.unlink, missing_ok=True)
            own = Registration(
                sweep, str(folder), os.getpid(), share.cpus or 0, share.gpu_ids or ()
            )
            file.write_text(json.dumps(asdict(own)))
        yield share, others


def _registration_folder() -> Path | None:
    """Return the folder of registrations, and make it if needed.

    Return None if this fails, or if other users can access the folder.
    """
    folder = Path(tempfile.gettempdir()) / f"running-sweeps-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return folder if is_own and not status.st_mode & 0o077 else None


@contextlib.contextmanager
def _lock_file(file: Path) -> Iterator[None]:
    """Lock a file while the `with` block runs, and make it if needed. Wait until it is free."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_registrations(folder: Path) -> list[Registration]:
    """Return the registrations of living processes, and delete the registrations of dead processes.

    The caller must hold the folder's lock.
    """
    registrations = []
    for file in sorted(folder.glob("*.json")):
        if not _is_locked(file):
            file.unlink(missing_ok=True)
            continue
        # Another version of sweeps, which runs at the same time, may write other keys.
        with contextlib.suppress(OSError, ValidationError):
            registrations.append(_RULES.validate_json(file.read_text()))
    return registrations


def _is_locked(file: Path) -> bool:
    try:
        with open(file) as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


_RULES: TypeAdapter[Registration] = TypeAdapter(Registration)
