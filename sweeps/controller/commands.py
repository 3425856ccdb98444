"""Commands to a running sweep: stop, pause, resume and enqueue.

Each command is a JSON file in the folder `commands` of the sweep. The sender writes the file atomically. The file's name begins with the
time, so the names sort in the order in which the commands were sent. The controller polls the folder, handles each command, and deletes its
file.

Anyone who can write to the sweep's folder can put files there. The controller therefore reads only regular files of its own user, and never
follows a link. Any other file stays in the folder, and the controller reports the file once.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sweeps.core.atomic_files import write_text

log = logging.getLogger(__name__)

FOLDER = "commands"
MAX_BYTES = 1 << 16
# Nanoseconds since the epoch and the sender's process, such as `01764000000000000000-4711.json`.
_NAME = re.compile(r"(?P<sent>\d{20})-\d{1,10}\.json")
_STRICT = ConfigDict(extra="forbid", strict=True)


class CommandError(Exception):
    """A command cannot be read or carried out. The message gives the reason."""


@dataclass(frozen=True, config=_STRICT)
class Stop:
    """Stop one trial at its next report, or the whole sweep.

    Attributes:
        trial: The trial's id. With None, the whole sweep stops; a resume can continue it later.
    """

    trial: str | None = None
    command: Literal["stop"] = "stop"


@dataclass(frozen=True, config=_STRICT)
class Pause:
    """Start no more trials. Running trials continue."""

    command: Literal["pause"] = "pause"


@dataclass(frozen=True, config=_STRICT)
class Resume:
    """Start trials again after a pause."""

    command: Literal["resume"] = "resume"


@dataclass(frozen=True, config=_STRICT)
class Enqueue:
    """Add a configuration to the trial queue.

    Attributes:
        parameters: Values of dimensions by name, such as `{"params.eta": 0.1}`. The sampler chooses the values of the other dimensions.
    """

    parameters: dict[str, JsonValue]
    command: Literal["enqueue"] = "enqueue"


Command = Stop | Pause | Resume | Enqueue
_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])


def parse(text: str | bytes) -> Command:
    """Return the command that a file holds, such as `{"command": "stop", "trial": "0007"}`.

    Raises:
        CommandError: The text is not a command. The message says what is wrong.
    """
    try:
        return _COMMAND.validate_json(text)
    except ValidationError as e:
        raise CommandError(f"it does not contain a valid command: {e.errors()[0]['msg']}") from None


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
    write_text(file, json.dumps(dataclasses.asdict(command)) + "\n")
    return file


class CommandQueue:
    """Queue of commands to one sweep. The process that runs the sweep polls the queue.

    Stop, pause and resume commands that were sent before this process started were meant for an earlier process. The queue drops them.

    Args:
        folder: The sweep's folder.
        started: When this process started to run the sweep, in seconds since the epoch.
    """

    def __init__(self, folder: Path, started: float):
        self._folder = folder / FOLDER
        self._started_ns = int(started * 1e9)
        self._ignored: set[str] = set()  # names of the files that were reported and are not deleted

    def poll(self, handle: Callable[[Command], None]) -> None:
        """Pass each new command to `handle`, in the order in which the commands were sent. Delete the command's file afterwards.

        Args:
            handle: Carries out a command. If it raises a CommandError, the command is reported and dropped.
        """
        for file in self._new_files():
            try:
                command = parse(_read(file))
            except (CommandError, OSError) as e:
                self._ignore(file.name, f"the file {file}", e)
                continue
            if not isinstance(command, Enqueue) and int(file.name.partition("-")[0]) < self._started_ns:
                log.warning(
                    "the command %s is ignored, because it was sent before this process started; if it is still needed, send it again",
                    command,
                )
            else:
                try:
                    handle(command)
                except CommandError as e:
                    log.warning("the command %s cannot be carried out: %s", command, e)
            file.unlink(missing_ok=True)

    def _ignore(self, name: str, description: str, reason: object) -> None:
        """Report once that a file or the folder is ignored."""
        if name not in self._ignored:
            self._ignored.add(name)
            log.warning("%s is ignored: %s", description, reason)

    def _new_files(self) -> Iterator[Path]:
        try:
            own = self._folder.lstat()
            if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid():
                raise PermissionError(f"{self._folder} must be a folder, and must belong to the user who runs the sweep")
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return
        except OSError as e:
            return self._ignore(FOLDER, f"the folder {self._folder}", e)
        for name in names:
            if name in self._ignored or name.startswith("."):  # The name of a half-written file starts with a dot.
                continue
            if _NAME.fullmatch(name):
                yield self._folder / name
            else:
                self._ignore(
                    name,
                    f"the file {self._folder / name}",
                    "the name of a command file must be TIME-PROCESS.json, with 20 digits for the time",
                )


def _read(file: Path) -> bytes:
    """Return the content of a command file.

    Raises:
        CommandError: The file is not a regular file of this user, or is too large.
        OSError: The file cannot be read, or it is a symbolic link.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise CommandError("it is not a regular file")
        if status.st_uid != os.getuid():
            raise CommandError("it belongs to another user, not to the user who runs the sweep")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CommandError(f"a command may have at most {MAX_BYTES} bytes")
    return data
