"""Adapt Ray Tune to the sweep: a Searcher that starts trials, a TrialScheduler that stops them.

Both adapters pass Tune's calls to a `SweepController`, which makes the decisions.
`sweeps.execution.tune_trials` runs Tune's trials in the workers of the pool.
"""

from __future__ import annotations

from typing import Any, Protocol

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.core.trial import Action


class SweepController(Protocol):
    """Interface of the object that decides which trials start and stop.

    It is in the driver's process.
    """

    def start_trial(self) -> str | None:
        """Start a trial and return its id; None if no trial can start now, but one may start later.

        Raises:
            StopIteration: The sweep starts no more trials.
        """

    def on_trial_progress(self, trial: str, progress: Any) -> Action:
        """Record the progress of a trial. Return `Action.STOP` if Tune must stop the trial.

        Args:
            trial: Id of the trial.
            progress: A `messages.Progress`.
        """

    def on_trial_lost(self, trial: str) -> None:
        """Handle a trial that Tune has given up, because the pool could not return its progress."""

    def poll(self) -> None:
        """Do work that is due from time to time.

        This method is called once in each round of Tune's loop.
        """


class StudySearcher(Searcher):
    """Searcher that starts the controller's next trial when Tune asks for a configuration."""

    def __init__(self, controller: SweepController):
        super().__init__()
        self._controller = controller
        self._begun: dict[str, str] = {}  # Maps Tune's id of a trial to the id in the sweep.

    def suggest(self, trial_id: str) -> Any:
        """Start the next trial of the sweep as Tune's trial `trial_id`.

        Returns:
            The configuration of Tune's trial: a dict with the id that the trial has in the sweep.
            None if no trial can start now, and `Searcher.FINISHED` if the sweep starts no more
            trials.
        """
        try:
            begun = self._controller.start_trial()
        except StopIteration:
            return Searcher.FINISHED
        if begun is None:
            return None
        self._begun[trial_id] = begun
        return {"trial": begun}

    def on_trial_complete(
        self, trial_id: str, result: dict | None = None, error: bool = False
    ) -> None:
        """If Tune gives up a trial after an error, tell the controller.

        `VerdictScheduler` handles trials that end without an error.
        """
        trial = self._begun.pop(trial_id, None)
        if error and trial is not None:
            self._controller.on_trial_lost(trial)

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the Optuna study already stores the state of the search."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing: the state of the search is in the Optuna study."""


class VerdictScheduler(FIFOScheduler):
    """Scheduler that passes progress to the controller, and returns its decision to Tune.

    It does so in the thread of Tune's loop.
    """

    def __init__(self, controller: SweepController):
        super().__init__()
        self._controller = controller

    def choose_trial_to_run(self, tune_controller: Any, **more: Any) -> None:
        """Let the controller do its periodic work, and let Tune start pending trials in order.

        Tune calls this once in each round.
        """
        # A Tune callback is not used, because with any callback Tune imports all its loggers. The
        # import of MLflow's logger takes seconds.
        self._controller.poll()
        # With None, Tune starts pending trials in order. A search for the first pending trial of
        # 10,000 trials would take a millisecond.

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict) -> str:
        """Pass the progress of a trial to the controller.

        Return Tune's constant for its decision.
        """
        verdict = self._controller.on_trial_progress(trial.config["trial"], result["progress"])
        return TrialScheduler.STOP if verdict is Action.STOP else TrialScheduler.CONTINUE

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Do nothing: `StudySearcher.on_trial_complete` tells the controller about the error."""
