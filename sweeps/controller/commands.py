"""Commands to a running sweep: stop, pause, resume and enqueue.

Each command is a JSON file in the folder `commands` of the sweep. The sender writes the file atomically and names it by the time, so
names sort in the order of sending. The controller polls the folder, handles each command, and deletes its file.

Anyone who can write to the sweep's folder can put files there. The controller therefore reads only regular files of its own user, and
never follows a link. It leaves any other file where it is and reports the file once.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core.atomic_files import write_text

log = logging.getLogger(__name__)

FOLDER = "commands"
MAX_BYTES = 1 << 16
# Nanoseconds since the epoch and the sender's process, such as `01764000000000000000-4711.json`.
_NAME = re.compile(r"(?P<sent>\d{20})-\d{1,10}\.json")


class CommandError(Exception):
    """A command that cannot be read or carried out. The text says why."""


@dataclass(frozen=True)
class Stop:
    """Stop one trial at its next report, or the whole sweep.

    Attributes:
        trial: The trial's id; None stops the sweep so that it can be resumed later.
    """

    trial: str | None = None


@dataclass(frozen=True)
class Pause:
    """Start no more trials. Running trials continue."""


@dataclass(frozen=True)
class Resume:
    """Start trials again after a pause."""


@dataclass(frozen=True)
class Enqueue:
    """Add a configuration to the trial queue.

    Attributes:
        parameters: Values of dimensions by name, such as `{"params.eta": 0.1}`. The sampler chooses the other dimensions.
    """

    parameters: dict[str, Any]


Command = Stop | Pause | Resume | Enqueue


def to_json(command: Command) -> dict[str, Any]:
    """Return the JSON object of a command."""
    match command:
        case Stop(None):
            return {"command": "stop"}
        case Stop(trial):
            return {"command": "stop", "trial": trial}
        case Enqueue(parameters):
            return {"command": "enqueue", "parameters": parameters}
        case Pause() | Resume():
            return {"command": type(command).__name__.lower()}


def parse(text: str) -> Command:
    """Return the command that a file holds.

    Raises:
        CommandError: The text is not a command. The message says what is wrong.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise CommandError(f"is not JSON: {e}") from None
    if not isinstance(content, dict):
        raise CommandError("must be a JSON object")
    name, options = content.get("command"), {key: value for key, value in content.items() if key != "command"}
    match name, options:
        case "stop", {"trial": str(trial), **rest} if not rest:
            return Stop(trial)
        case "stop", {} if not options:
            return Stop()
        case "pause", {} if not options:
            return Pause()
        case "resume", {} if not options:
            return Resume()
        case "enqueue", {"parameters": dict(parameters), **rest} if not rest:
            return Enqueue(parameters)
    if name not in ("stop", "pause", "resume", "enqueue"):
        raise CommandError(f"`command` is {name!r}, but must be one of: stop, pause, resume, enqueue")
    wanted = {"stop": "no other key than `trial`, a text", "enqueue": "exactly one other key, `parameters`, an object"}
    raise CommandError(f"`{name}` takes {wanted.get(str(name), 'no other key')}")


def send(folder: Path, command: Command) -> Path:
    """Send a command to the process that runs a sweep.

    Args:
        folder: The sweep's folder.
        command: The command.

    Returns:
        The file of the command. It exists until the command is handled.
    """
    queue = folder / FOLDER
    queue.mkdir(exist_ok=True)
    file = queue / f"{time.time_ns():020d}-{os.getpid()}.json"
    write_text(file, json.dumps(to_json(command)) + "\n")
    return file


class CommandQueue:
    """Queue of the commands of one sweep, for the process that runs it.

    Stop, pause and resume commands that were sent before this process started were meant for an earlier process. They are dropped.

    Args:
        folder: The sweep's folder.
        started: When this process started to run the sweep, in seconds since the epoch.
    """

    def __init__(self, folder: Path, started: float):
        self._folder = folder / FOLDER
        self._started_ns = int(started * 1e9)
        self._ignored: set[str] = set()  # names of the files that were reported and stay

    def poll(self, handle: Callable[[Command], None]) -> None:
        """Pass each new command to `handle`, in the order of sending, and delete its file afterwards.

        Args:
            handle: Carries out a command. If it raises a CommandError, the command is reported and dropped.
        """
        for file in self._new_files():
            try:
                command = parse(_read(file))
            except (CommandError, OSError) as e:
                self._ignored.add(file.name)
                log.warning("the command file %s is ignored: %s", file, e)
                continue
            if not isinstance(command, Enqueue) and self._sent_ns(file) < self._started_ns:
                log.warning("the command %s was sent before this process started, and is dropped", to_json(command))
            else:
                try:
                    handle(command)
                except CommandError as e:
                    log.warning("the command %s cannot be carried out: %s", to_json(command), e)
            file.unlink(missing_ok=True)

    def _new_files(self) -> Iterator[Path]:
        try:
            own = self._folder.lstat()
            if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid():
                raise PermissionError(f"{self._folder} must be a folder of this user")
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return
        except OSError as e:
            if FOLDER not in self._ignored:
                self._ignored.add(FOLDER)
                log.warning("commands to this sweep are ignored: %s", e)
            return
        for name in names:
            if name in self._ignored or name.startswith("."):  # a dot starts the name of a half-written file
                continue
            if _NAME.fullmatch(name) is None:
                self._ignored.add(name)
                log.warning("the file %s is ignored: its name is not the name of a command file", self._folder / name)
                continue
            yield self._folder / name

    @staticmethod
    def _sent_ns(file: Path) -> int:
        return int(file.name.partition("-")[0])


def _read(file: Path) -> str:
    """Return the text of a command file.

    Raises:
        CommandError: The file is not a regular file of this user, is too large, or is not text.
        OSError: The file cannot be read. A link cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CommandError("it is not a regular file")
        if status.st_uid != os.getuid():
            raise CommandError("it belongs to another user")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CommandError(f"it has more than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError("it is not UTF-8 text") from None
