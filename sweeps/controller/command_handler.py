"""Carry out the commands that users send to a running sweep: stop, pause, resume and enqueue."""

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from sweeps.core.errors import InputError
from sweeps.core.text.texts import count_noun
from sweeps.core.trial import State, format_trial_id
from sweeps.search.search_loop import SearchLoop
from sweeps.space.parse.enqueued_point import parse_point, problem_texts, refusal
from sweeps.study.record_reader import STOPPED
from sweeps.study.states import TrialState

from .commands import (
    Answer,
    Command,
    CommandError,
    CommandQueue,
    Enqueue,
    Pause,
    Stop,
)
from .driver_state import DriverState


class CommandHandler:
    """Carries out the commands to one sweep.

    A pause lasts until `sweeps resume`, or until the process that runs the sweep ends. The study
    says whether the sweep is paused, so that other processes can show it.

    Args:
        search: The sweep's search.
        driver: State of the sweep's driver.
        stop: Function that ends the sweep, given the reason and the state of running trials.
        stop_trial: Function that ends a trial, given its number.
        may_start_trials: Function that returns whether a trial may still start or continue.

    Attributes:
        queue: Queue from which the commands are taken.
        notes: Notes for the sweep's result.
    """

    def __init__(
        self,
        search: SearchLoop,
        driver: DriverState,
        stop: Callable[[str, State], None],
        stop_trial: Callable[[int], None],
        may_start_trials: Callable[[], bool],
    ):
        self.notes: tuple[str, ...] = ()
        self._search = search
        self._driver = driver
        self._stop = stop
        self._end_trial = stop_trial
        self._may_start_trials = may_start_trials
        self.queue = CommandQueue(search.store.folder)
        self._stopping: set[str] = set()  # ids of the commands whose trials are being stopped
        # An earlier process may have died during a pause.
        self._search.store.record_sweep_pause(False)

    def poll(self) -> None:
        """Carry out the commands that have arrived."""
        self.queue.poll(self._handle)

    def end_pause(self) -> None:
        """Let trials start again after a pause."""
        if self._driver.paused:
            self._driver.paused = False
            self._search.store.record_sweep_pause(False)

    def _handle(self, command: Command, name: str) -> Answer | None:
        """Carry out a command. Return None if the command is not finished yet.

        Args:
            command: The command.
            name: Id of the command.

        Raises:
            CommandError: The command cannot be carried out.
        """
        reason = self._driver.reason
        if reason is not None:
            ending = f"the sweep is ending already ({reason})"
            if command == Stop():
                return Answer(ending)
            raise CommandError(ending)
        if isinstance(command, Stop):
            if command.trial is None:
                return self._stop_sweep()
            return self._stop_trial(command.trial, name)
        if isinstance(command, Enqueue):
            return self._enqueue(command.parameters, name)
        return self._pause() if isinstance(command, Pause) else self._resume()

    def _stop_sweep(self) -> Answer:
        running = len(self._driver.running)
        self.notes = ("the sweep was stopped by the command `sweeps stop`",)
        self._stop("interrupted", State.RUNNING)
        return Answer(f"stopping; {_trials_are(running)} interrupted" if running else "stopping")

    def _stop_trial(self, trial: str, name: str) -> Answer | None:
        """Stop a trial. Return None until a running trial has ended."""
        state = self._started_trial(trial)
        ended_by_command = name in self._stopping and state.reason == STOPPED
        if state.has_ended and not ended_by_command:
            raise CommandError(
                f"trial {trial} has ended already ({state.result.state_name(is_driven=True)})"
            )
        if not state.has_ended:
            self._stopping.add(name)
            self._end_trial(state.number)
        if state.number in self._driver.running:
            return None
        self._stopping.discard(name)
        steps = self._search.store.states[state.number].steps
        unit = "fold" if self._search.space.data.folds else "step"
        after = f"after {count_noun(steps, unit)}" if steps else f"before its first {unit}"
        return Answer(f"trial {trial} is stopped, {after}", trial)

    def _started_trial(self, trial: str) -> TrialState:
        """Return a trial that has started.

        Raises:
            CommandError: There is no such trial.
        """
        store = self._search.store
        trials = {format_trial_id(t.number): t.number for t in store.trials()}
        if (number := trials.get(trial)) is None:
            hint = "no trial has started"
            if trials:
                hint = f"the trials are {min(trials)} to {max(trials)}"
            raise CommandError(f"no trial `{trial}`; {hint}", invalid=True)
        if (state := store.states.get(number)) is None:
            raise CommandError(
                f"trial {trial} is enqueued, but has not started yet; only a trial that has "
                "started can be stopped"
            )
        return state

    def _pause(self) -> Answer:
        scheduler = self._search.scheduler
        if scheduler.perturbs:
            name = self._search.space.scheduler.name
            raise CommandError(
                f"the scheduler {name} starts all trials at once, so a pause would change "
                "nothing; use `sweeps stop`"
            )
        if not self._may_start_trials():
            raise CommandError("all trials have started already, so a pause would change nothing")
        self._search.store.record_sweep_pause(True)
        self._driver.paused = True
        if not (running := len(self._driver.running)):
            return Answer("paused; no new trial starts")
        return Answer(f"paused; {_trials_are(running)} still running, and no new trial starts")

    def _resume(self) -> Answer:
        if not self._driver.paused:
            raise CommandError("the sweep is running and is not paused")
        self.end_pause()
        left = self._search.to_run
        return Answer(f"running again; {count_noun(left, 'trial')} left to start")

    def _enqueue(self, parameters: Mapping[str, JsonValue], name: str) -> Answer:
        if (reason := refusal(self._search.space, self._search.scheduler.perturbs)) is not None:
            raise CommandError(reason)
        try:
            keys = parse_point(self._search.space, parameters)
        except InputError as e:
            raise CommandError(*problem_texts(e), invalid=True) from None
        ahead = self._search.queue.waiting
        number = self._search.enqueue(keys, name)
        if number is None:
            limit = self._search.space.limits.max_trials
            raise CommandError(
                f"all {limit} trials of limits.max_trials have started; `sweeps resume "
                "--add-trials` adds trials later"
            )
        trial = format_trial_id(number)
        start = "is the next trial to start"
        if ahead:
            start = f"starts after {count_noun(ahead, 'trial')} enqueued earlier"
        if self._driver.paused:
            start += ", when the sweep is resumed"
        return Answer(f"trial {trial} {start}", trial)


def _trials_are(count: int) -> str:
    """Return a number of trials with a verb, such as `1 trial is` or `2 trials are`."""
    return f"{count_noun(count, 'trial')} {'is' if count == 1 else 'are'}"
