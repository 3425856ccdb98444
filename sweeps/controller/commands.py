"""Commands to a running sweep: stop, pause, resume and enqueue.

Each command is a JSON file in the folder `commands` of the sweep. The sender writes the file
atomically. The file's name begins with the time, so the names sort in the order in which the
commands were sent. The controller polls the folder and handles each command. It then writes an
answer beside the command and deletes the command. The sender reads the answer and deletes it.
`sweeps.stored.control` is the sender's side.

Anyone who can write to the sweep's folder can put files there. Both sides therefore read only
regular files of their own user, and never follow a link. Any other entry stays in the folder, and
the controller reports the entry once.

A command is meant for the process that runs the sweep when it is sent. A new process therefore
remembers the names of the commands that it finds, and never carries them out, even if their files
cannot be deleted. Only configurations of `enqueue` stay in the queue.
"""

import contextlib
import dataclasses
import errno
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from sweeps.core.errors import UnreadableFile
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.regular_files import open_regular
from sweeps.core.files.sweep_folder import COMMANDS

log = logging.getLogger(__name__)
T = TypeVar("T")

# Largest size of the file of a command or of an answer.
MAX_BYTES = 1 << 16
# Name of a command's file: nanoseconds since the epoch and the sender's process, such as
# `01764000000000000000-4711.json`.
_COMMAND_NAME = re.compile(r"\d{20}-\d{1,10}\.json")
_ANSWER_NAME = re.compile(r"\d{20}-\d{1,10}\.answer")
_STRICT = ConfigDict(extra="forbid", strict=True)


class CommandError(Exception):
    """A command cannot be read or carried out. The message gives the reason.

    Args:
        problems: The reasons, one line each.
        invalid: True if the command itself is wrong, such as a value outside the bounds of its
            dimension. False if only the state of the sweep does not allow the command.
    """

    def __init__(self, *problems: str, invalid: bool = False):
        super().__init__("; ".join(problems))
        self.problems = problems
        self.invalid = invalid


@dataclass(frozen=True, config=_STRICT)
class Stop:
    """Stop one trial, or the whole sweep.

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
        parameters: Values of dimensions by name, such as `{"params.eta": 0.1}`. `params.` may be
            left out. The sampler chooses the values of the other dimensions.
    """

    parameters: dict[str, JsonValue]
    command: Literal["enqueue"] = "enqueue"


Command = Stop | Pause | Resume | Enqueue
_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Answer:
    """Answer of the controller to a command.

    Attributes:
        text: Outcome, in one line; "" if the command was refused.
        trial: Id of the trial that the command was about, or that it created; None if there is
            none.
        problems: Reasons for a refusal, one line each; () if the command was carried out.
        invalid: True if the command itself is wrong. False if only the state of the sweep does not
            allow the command.
    """

    text: str = ""
    trial: str | None = None
    problems: tuple[str, ...] = ()
    invalid: bool = False


_ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer)


def parse(text: str | bytes) -> Command:
    """Return the command that a file holds, such as `{"command": "stop", "trial": "0007"}`.

    Raises:
        CommandError: The text is not a command. The message says what is wrong.
    """
    return _validate(_COMMAND, text, "command")


def parse_answer(text: str | bytes) -> Answer:
    """Return the answer that a file holds.

    Raises:
        CommandError: The text is not an answer.
    """
    return _validate(_ANSWERS, text, "answer")


def _validate(rules: TypeAdapter[T], text: str | bytes, kind: str) -> T:
    """Return the object that a JSON text describes. `kind` names it in the message of an error."""
    try:
        return rules.validate_json(text)
    except ValidationError as e:
        error = e.errors()[0]
        # The first part of the location is the kind of command.
        field = ".".join(str(part) for part in error["loc"][1:])
        place = f"`{field}`: " if field else ""
        text = f"it does not contain a valid {kind}: {place}{error['msg']}"
        raise CommandError(text) from None


def answer_file(command: Path) -> Path:
    """Return the file of the answer to a command, given the file of the command."""
    return command.with_suffix(".answer")


def as_text(content: Command | Answer) -> str:
    """Return the content of the file of a command or of an answer."""
    return json.dumps(dataclasses.asdict(content)) + "\n"


def send(folder: Path, command: Command) -> Path:
    """Send a command to the process that runs a sweep.

    Args:
        folder: The sweep's folder.
        command: The command.

    Returns:
        The file of the command. It exists until the command is handled.

    Raises:
        OSError: The file cannot be written, or the folder of the commands is a link.
    """
    queue = folder / COMMANDS
    if queue.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "is a link")
    queue.mkdir(exist_ok=True)
    file = queue / f"{time.time_ns():020d}-{os.getpid()}.json"
    write_text(file, as_text(command))
    return file


def read_answer(file: Path) -> Answer | None:
    """Return the answer to a command and delete it. Return None if there is no answer yet.

    Args:
        file: The file of the command, as `send` returned it.

    Raises:
        CommandError: The answer is not a regular file of this user, or not an answer.
    """
    answer = answer_file(file)
    try:
        text = _read(answer)
    except FileNotFoundError:
        return None
    except (UnreadableFile, OSError) as e:
        raise CommandError(f"{answer} cannot be read: {e}") from None
    discard(answer)
    return parse_answer(text)


def discard(file: Path) -> None:
    """Delete a command or an answer. An entry that cannot be deleted, such as a folder, stays."""
    with contextlib.suppress(OSError):
        file.unlink()


class CommandQueue:
    """Queue of commands to one sweep. The process that runs the sweep polls the queue.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder / COMMANDS
        self._ignored: set[str] = set()  # names of the files that were handled or reported

    def poll(self, handle: Callable[[Command, str], Answer | None]) -> None:
        """Pass each new command to `handle`, in the order in which the commands were sent.

        Write the answer, and delete the command.

        Args:
            handle: Carries out a command. Its arguments are the command and the command's id. It
                returns the answer, or None to leave the command in the queue. If it raises a
                CommandError, the command is reported and refused.
        """
        for file in self._new_files():
            try:
                command = parse(_read(file))
            except (CommandError, UnreadableFile, OSError) as e:
                self._ignore(file.name, f"the file {file}", e)
                continue
            try:
                if (answer := handle(command, file.stem)) is None:
                    continue
                log.info("the command %s was carried out: %s", command, answer.text)
            except CommandError as e:
                log.warning("the command %s cannot be carried out: %s", command, e)
                answer = Answer(problems=e.problems, invalid=e.invalid)
            self._ignored.add(file.name)
            self._answer(file, answer)
            discard(file)

    def discard_stale(self) -> None:
        """Refuse the commands that were meant for an earlier process, and delete all answers.

        Configurations of `enqueue` stay.

        Call this method when a process starts to run the sweep.
        """
        for file in self.answers():
            discard(file)

        def refuse(command: Command, name: str) -> Answer | None:
            if isinstance(command, Enqueue):
                return None
            raise CommandError(
                "the command was sent to an earlier process of this sweep; if it is still needed, "
                "send it again"
            )

        self.poll(refuse)

    def answers(self) -> list[Path]:
        """Return the files of all answers that have not been read."""
        return [self._folder / name for name in self._names() if _ANSWER_NAME.fullmatch(name)]

    def _answer(self, file: Path, answer: Answer) -> None:
        """Write the answer to a command."""
        path = answer_file(file)
        try:
            write_text(path, as_text(answer))
        except OSError as e:  # The disk may be full. The command itself was carried out.
            log.warning("the answer to a command cannot be written to %s: %s", path, e)

    def _ignore(self, name: str, description: str, reason: object) -> None:
        """Report once that a file or the folder is ignored."""
        if name not in self._ignored:
            self._ignored.add(name)
            log.warning("%s is ignored: %s", description, reason)

    def _names(self) -> list[str]:
        """Return the names of all files in the queue's folder.

        Return [] if the folder does not exist, or is not a folder of this user.
        """
        try:
            status = self._folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                raise PermissionError(
                    f"{self._folder} must be a folder, and must belong to the user who runs the "
                    "sweep"
                )
            return sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        except OSError as e:
            self._ignore(COMMANDS, f"the folder {self._folder}", e)
            return []

    def _new_files(self) -> Iterator[Path]:
        """Yield the files of commands that were neither handled nor reported."""
        for name in self._names():
            # The name of a half-written file starts with a dot.
            if name in self._ignored or name.startswith(".") or _ANSWER_NAME.fullmatch(name):
                continue
            if _COMMAND_NAME.fullmatch(name):
                yield self._folder / name
            else:
                self._ignore(
                    name,
                    f"the file {self._folder / name}",
                    "the name of a command file must be TIME-PROCESS.json, with 20 digits for the "
                    "time",
                )


def _read(file: Path) -> bytes:
    """Return the content of a command file or of an answer.

    Raises:
        CommandError: The file belongs to another user, or is too large.
        UnreadableFile: The file is not a regular file, or cannot be opened.
        OSError: The file does not exist, or cannot be read.
    """
    with open(file, "rb", opener=open_regular) as opened:
        if os.fstat(opened.fileno()).st_uid != os.getuid():
            raise CommandError("it belongs to another user, not to the user who runs the sweep")
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CommandError(f"a command may have at most {MAX_BYTES} bytes")
    return data
