"""What Ray Tune sees of the search: a Searcher that begins trials and a TrialScheduler that gives verdicts, both thin.

Tune's trials are light runners; the `Conductor` behind both adapters is where a sweep's driver decides.
"""

from __future__ import annotations

from typing import Any, Protocol

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeps.trial import Verdict


class Conductor(Protocol):
    """The driver's side of a sweep."""

    def begin(self) -> str | None:
        """Begin a trial; its id. None if there is none to begin now, but may be later.

        Raises:
            StopIteration: no trial is to be begun any more.
        """

    def hear(self, trial: str, progress: Any) -> Verdict:
        """Take a trial's news and say whether it goes on."""

    def lost(self, trial: str) -> None:
        """The trial's runner died too often."""

    def tick(self) -> None:
        """A round of Tune's loop begins."""


class StudySearcher(Searcher):
    """Begins the conductor's next trial when Tune has room for one."""

    def __init__(self, conductor: Conductor):
        super().__init__()
        self._conductor = conductor
        self._begun: dict[str, str] = {}  # Tune's name of a trial and ours

    def suggest(self, trial_id: str) -> Any:
        try:
            begun = self._conductor.begin()
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
            self._conductor.lost(trial)

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study is the record."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore."""


class VerdictScheduler(FIFOScheduler):
    """Passes news to the conductor and its verdict to Tune."""

    def __init__(self, conductor: Conductor):
        super().__init__()
        self._conductor = conductor

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict) -> str:
        verdict = self._conductor.hear(trial.config["trial"], result["progress"])
        return TrialScheduler.STOP if verdict is Verdict.STOP else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict) -> None:
        if result and result.get("progress") is not None:
            self._conductor.hear(trial.config["trial"], result["progress"])

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """A runner died; Tune starts another if it may."""


class Clock(tune.Callback):
    """Gives the conductor the time, in the driver's own thread."""

    def __init__(self, conductor: Conductor):
        self._conductor = conductor

    def on_step_begin(self, iteration: int, trials: list, **info: Any) -> None:
        self._conductor.tick()
