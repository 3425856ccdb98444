"""Control a running sweep from another process.

Stop it or one of its trials, pause it, continue it, or enqueue a configuration.

Each function sends a command to the process that runs the sweep, and waits for its answer. The
command goes through the sweep's folder. The process may run on another machine that shares it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from sweeps.controller import commands
from sweeps.controller.commands import Answer, Command, CommandError, Enqueue, Pause, Resume, Stop
from sweeps.core.errors import InputError, Problem, SweepsError, unknown_trial
from sweeps.core.files.folder_lock import is_driven
from sweeps.core.files.sweep_folder import COMMANDS, SweepFolder, is_sweep
from sweeps.core.text.command_hints import sweep_argument
from sweeps.core.text.shell_text import DEFAULT_ROOT, shell_command
from sweeps.core.trial import complete_trial_id, format_trial_id
from sweeps.study import record_reader

from . import stored_sweeps
from .sweep_summary import summarize

# Seconds to wait for the answer, by default.
TIMEOUT = 60.0
# Seconds between two looks for an answer, or for the end of the process.
INTERVAL = 0.1


@dataclass(frozen=True)
class Outcome:
    """The result of a command.

    Attributes:
        sweep: Name of the sweep.
        command: Name of the command, such as `pause`.
        trial: Id of the trial that was stopped or enqueued; None for other commands.
        text: Outcome, in one line.
    """

    sweep: str
    command: str
    trial: str | None
    text: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON object that the commands print with `--json`."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return f"{self.sweep}: {self.text}"


class DriverEnded(Exception):
    """The process that ran the sweep has ended before it answered."""


def ask(folder: Path, command: Command, timeout: float) -> Answer:
    """Send a command to the process that runs a sweep, and wait for the answer.

    Args:
        folder: The sweep's folder.
        command: The command.
        timeout: Seconds to wait.

    Raises:
        InputError: The file of the command cannot be written.
        SweepsError: The process that runs the sweep belongs to another user, so it would ignore
            the command. Or the answer cannot be read.
        DriverEnded: The process has ended and has not answered. The command was taken back.
        TimeoutError: The process has not answered. It carries out the command later.
    """
    if (user := SweepFolder(folder).lock.stat().st_uid) != os.getuid():
        text = f"user {user} runs this sweep, and only this user can send commands to it"
        raise SweepsError(f"{folder.name}: {text}")
    try:
        file = commands.send(folder, command)
    except OSError as e:
        raise InputError(
            str(folder / COMMANDS), f"the command cannot be written: {e.strerror}"
        ) from e
    try:
        return wait_for_answer(folder, file, timeout)
    except (KeyboardInterrupt, DriverEnded):
        commands.discard(file)
        raise
    except CommandError as e:
        text = f"the answer of the sweep's process cannot be read: {e}"
        raise SweepsError(f"{folder.name}: {text}") from None


def wait_for_answer(folder: Path, file: Path, timeout: float) -> Answer:
    """Wait for the answer to a command; see `ask`.

    Args:
        folder: The sweep's folder.
        file: The file of the command.
        timeout: Seconds to wait.
    """
    deadline = time.monotonic() + timeout
    while True:
        # Look for the process first: an answer may arrive before the process ends.
        driven = is_driven(folder)
        if (answer := commands.read_answer(file)) is not None:
            return answer
        if not driven:
            raise DriverEnded
        if time.monotonic() >= deadline:
            raise TimeoutError
        time.sleep(INTERVAL)


@dataclass(frozen=True)
class SweepControl:
    """Controls one sweep.

    Attributes:
        folder: The sweep's folder, in which the process that runs the sweep works.
        timeout: Seconds to wait for an answer.
    """

    folder: Path
    timeout: float

    @classmethod
    def of(
        cls, sweep: str | Path, root: str | Path = DEFAULT_ROOT, timeout: float = TIMEOUT
    ) -> SweepControl:
        """Return the control of a sweep.

        Args:
            sweep: The sweep's folder, its name, the beginning of its name, `latest`, or its address
                in a store.
            root: Root folder of all sweeps, or the address of all sweeps.
            timeout: Seconds to wait for an answer.

        Raises:
            InputError: No sweep matches, or several sweeps match.
            StoreError: The storage does not answer.
        """
        folder = stored_sweeps.local_folder(stored_sweeps.find(str(sweep), root), root)
        return cls(folder, timeout)

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.folder.name

    def stop(self, trial: str | int | None = None) -> Outcome:
        """Stop one trial, or the whole sweep.

        In the second case, wait until the process that runs the sweep has ended.

        Args:
            trial: Id or number of the trial; None for the whole sweep.

        Raises:
            InputError: The sweep has no such trial.
            SweepsError: No process runs the sweep, the trial has ended, or the process does not
                answer.
        """
        self._refuse_ended()
        if trial is not None:
            self._refuse_unknown(str(trial))
            return self._carry_out(Stop(complete_trial_id(str(trial))), "trial")
        deadline = time.monotonic() + self.timeout
        with contextlib.suppress(DriverEnded):
            self._send(Stop())
            while is_driven(self.folder):
                if time.monotonic() > deadline:
                    raise SweepsError(
                        f"{self.name} is stopping, but its process has not ended within "
                        f"{self.timeout:g} s"
                    )
                time.sleep(INTERVAL)
        trials = summarize(self.folder).trials
        counts = ", ".join(f"{n} {word}" for word, n in trials.items() if n)
        text = f"stopped; {counts or 'no trial has started'}"
        return Outcome(self.name, "stop", trial=None, text=text)

    def pause(self) -> Outcome:
        """Let no new trial start. Running trials continue.

        Raises:
            SweepsError: No process runs the sweep, a pause would change nothing, or the process
                does not answer.
        """
        return self._carry_out(Pause())

    def resume(self) -> Outcome:
        """Let trials start again after a pause.

        Raises:
            SweepsError: No process runs the sweep, the sweep is not paused, or the process does not
                answer.
        """
        return self._carry_out(Resume())

    def enqueue(self, params: Mapping[str, Any], place: str = "params") -> Outcome:
        """Let the next trial have these values.

        The search chooses the values of the other dimensions.

        Args:
            params: Values of dimensions by name, such as `{"eta": 0.1}`.
            place: Name of the argument for messages.

        Returns:
            The outcome. Its attribute `trial` is the id that the trial will have.

        Raises:
            InputError: A name or a value is wrong. There is one problem for each.
            SweepsError: No process runs the sweep, the sweep takes no configurations, or the
                process does not answer.
        """
        try:
            # A value may be a scalar of NumPy.
            command = Enqueue(
                {
                    name: value.item() if hasattr(value, "item") else value
                    for name, value in params.items()
                }
            )
        except (ValueError, AttributeError):
            raise InputError(
                place, "must map names of dimensions to numbers, texts, lists or mappings"
            ) from None
        return self._carry_out(command, place)

    def is_paused(self) -> bool:
        """Return whether a process runs the sweep and the sweep is paused."""
        return is_driven(self.folder) and self._state() == "paused"

    def _carry_out(self, command: Command, place: str = "") -> Outcome:
        """Send a command, and return the outcome; see `_send`."""
        try:
            answer = self._send(command, place)
        except DriverEnded:
            state = self._state()
            text = f"the sweep's process ended before it carried out the command ({state})"
            raise SweepsError(f"{self.name}: {text}; {self._resume_hint(state)}") from None
        return Outcome(self.name, command.command, answer.trial, answer.text)

    def _send(self, command: Command, place: str = "") -> Answer:
        """Send a command, and return the answer to a command that was carried out.

        Args:
            command: The command.
            place: Name of the argument to name if the command is wrong.

        Raises:
            DriverEnded: The process that ran the sweep has ended.
        """
        self._refuse_ended()
        try:
            answer = ask(self.folder, command, self.timeout)
        except TimeoutError:
            raise SweepsError(
                f"{self.name}: the sweep's process has not answered within {self.timeout:g} s; "
                "the process has the command, and carries it out when it can"
            ) from None
        if answer.invalid:
            raise InputError(Problem(place, problem) for problem in answer.problems)
        if answer.problems:
            raise SweepsError(f"{self.name}: {'; '.join(answer.problems)}")
        return answer

    def _refuse_ended(self) -> None:
        """Raise an error if no process on a machine that sees the folder runs the sweep."""
        if not is_driven(self.folder):
            state = self._state()
            raise SweepsError(
                f"{self.name}: no process runs this sweep ({state}), so it takes no commands; "
                f"{self._resume_hint(state)}"
            )

    def _refuse_unknown(self, trial: str) -> None:
        """Raise an error if a running sweep has no such trial.

        The sweep's process may be too busy to say so soon.
        """
        known: list[str] = []
        # Only the sweep's process may have the password of the database.
        with contextlib.suppress(InputError):
            if (study := record_reader.copy_study(self.folder)) is not None:
                known = [format_trial_id(t.number) for t in study.trials]
        if known and complete_trial_id(trial) not in known:
            raise unknown_trial("trial", trial, known)

    def _state(self) -> str:
        """Return the state of the sweep, such as `finished`."""
        return summarize(self.folder).state if is_sweep(self.folder) else "not on this machine"

    def _resume_hint(self, state: str) -> str:
        """Return a text with the command that continues the sweep, or adds trials if finished."""
        command = f"{shell_command('sweeps')} resume {sweep_argument(self.folder)}"
        if state == "finished":
            return f"`{command} --add-trials N` adds trials"
        return f"`{command}` continues it"
