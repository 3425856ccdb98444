"""Pass commands to a sweep in S3-compatible storage whose process runs on another machine.

The sender puts the command into the folder `commands` of the sweep's store. The process that runs
the sweep looks there every few seconds. This process moves new commands to its local folder, where
the controller finds them, and moves the answers to the store.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from sweeps.controller import commands
from sweeps.controller.commands import Answer, Command
from sweeps.controller.store_driver import find_driver
from sweeps.core.atomic_files import write_text
from sweeps.core.regular_files import FILE, kind_of
from sweeps.core.stores import Store
from sweeps.core.sweep_folder import COMMANDS

log = logging.getLogger(__name__)


class StoreChannel:
    """Way to send commands through the sweep's store; see `sweeps.controller.control.Channel`.

    Args:
        store: The sweep's store.
    """

    interval = 1.0

    def __init__(self, store: Store):
        self._store = store

    def is_driven(self) -> bool:
        """Return whether a process runs the sweep."""
        return find_driver(self._store) is not None

    def send(self, command: Command) -> str:
        """Send a command, and return its name."""
        name = commands.new_name()
        with tempfile.TemporaryDirectory(prefix="sweeps-command-") as scratch:
            write_text(Path(scratch, name), commands.as_text(command))
            self._store.put(Path(scratch, name), f"{COMMANDS}/{name}")
        return name

    def answer(self, name: str) -> Answer | None:
        """Return the answer to a command and delete it. Return None if there is no answer yet."""
        stored = f"{COMMANDS}/{commands.answer_name(name)}"
        with tempfile.TemporaryDirectory(prefix="sweeps-command-") as scratch:
            try:
                self._store.get(stored, Path(scratch, commands.answer_name(name)))
            except FileNotFoundError:
                return None
            answer = commands.read_answer(Path(scratch, name))
        self._store.delete(stored)
        return answer

    def withdraw(self, name: str) -> None:
        """Take back a command that was not carried out."""
        self._store.delete(f"{COMMANDS}/{name}")


class CommandExchange:
    """Moves commands from the sweep's store to the sweep's folder, and answers back to the store.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder / COMMANDS
        self._unanswered: set[str] = set()  # names of the commands that came from the store
        self._began = False

    def exchange(self, store: Store) -> None:
        """Move new commands and answers.

        Raises:
            StoreError: The storage does not answer.
        """
        for name, stored in sorted(store.files(COMMANDS).items()):
            if commands.is_command_name(name) and stored.size <= commands.MAX_BYTES:
                self._fetch(store, name)
            elif not self._began and name.endswith(
                ".answer"
            ):  # An answer of an earlier process that nobody has read.
                store.delete(f"{COMMANDS}/{name}")
        self._began = True
        for name in sorted(self._unanswered):
            answer = self._folder / commands.answer_name(name)
            if kind_of(answer) == FILE:
                store.put(answer, f"{COMMANDS}/{answer.name}")
                commands.discard(answer)
                self._unanswered.discard(name)

    def _fetch(self, store: Store, name: str) -> None:
        """Move a command to the sweep's folder.

        If it was moved before, and only its deletion in the store failed, it is moved again.
        """
        part = self._folder / f".{name}"
        try:
            self._folder.mkdir(exist_ok=True)
            store.get(f"{COMMANDS}/{name}", part)
            part.replace(self._folder / name)
            self._unanswered.add(name)
        except FileNotFoundError:  # The sender has taken it back.
            pass
        except OSError as e:  # The local place of the command holds a folder, for example.
            log.warning("the command %s from %s is ignored: %s", name, store.address, e)
        store.delete(f"{COMMANDS}/{name}")
