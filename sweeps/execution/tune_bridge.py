"""What Ray Tune sees of the search: a Searcher that begins trials and a TrialScheduler that gives verdicts, both thin.

Tune's trials are light runners; the `SweepController` behind both adapters is where a sweep's driver decides.
"""

from __future__ import annotations

from typing import Any, Protocol

from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.core.trial import Action


class SweepController(Protocol):
    """The driver's side of a sweep."""

    def start_trial(self) -> str | None:
        """Begin a trial; its id. None if there is none to begin now, but may be later.

        Raises:
            StopIteration: no trial is to be begun any more.
        """

    def on_trial_progress(self, trial: str, progress: Any) -> Action:
        """Take a trial's news and say whether it goes on."""

    def on_runner_lost(self, trial: str) -> None:
        """The trial's runner died too often."""

    def poll(self) -> None:
        """A round of Tune's loop begins."""


class StudySearcher(Searcher):
    """Begins the controller's next trial when Tune has room for one."""

    def __init__(self, controller: SweepController):
        super().__init__()
        self._controller = controller
        self._begun: dict[str, str] = {}  # Tune's name of a trial and ours

    def suggest(self, trial_id: str) -> Any:
        try:
            begun = self._controller.start_trial()
        except StopIteration:
            return Searcher.FINISHED
        if begun is None:
            return None
        self._begun[trial_id] = begun
        return {"trial": begun}

    def on_trial_complete(self, trial_id: str, result: dict | None = None, error: bool = False) -> None:
        """Of an end the scheduler hears; an error means that Tune gave up on the trial's runner."""
        trial = self._begun.pop(trial_id, None)
        if error and trial is not None:
            self._controller.on_runner_lost(trial)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class VerdictScheduler(FIFOScheduler):
    """Passes news and the time to the controller, in the driver's own thread, and its verdict to Tune."""

    def __init__(self, controller: SweepController):
        super().__init__()
        self._controller = controller

    def choose_trial_to_run(self, tune_controller: Any, **more: Any) -> None:
        """Asked once in every round of Tune's loop."""
        # Not by a callback: to count one, Tune imports every logger that it knows, MLflow's too, which takes seconds
        self._controller.poll()
        # Tune starts what is pending, in line; to look for the first of them among all trials costs a millisecond a round at 10,000

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict) -> str:
        verdict = self._controller.on_trial_progress(trial.config["trial"], result["progress"])
        return TrialScheduler.STOP if verdict is Action.STOP else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict) -> None:
        if result and result.get("progress") is not None:
            self._controller.on_trial_progress(trial.config["trial"], result["progress"])

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A runner died; Tune starts another if it may."""
