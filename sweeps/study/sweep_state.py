"""The state of a sweep: its trials, and the budget that they have spent. Pure, no I/O."""

from collections.abc import Iterable

from sweeps.core.trial import Result
from sweeps.space.sections.search_models import Repeats

from . import transitions
from .budgets import BudgetState
from .events import TrialEvent, TrialStarted
from .objectives import Objectives
from .repeats import is_settled, merge
from .states import TrialState


class SweepState:
    """All that is known of a sweep's trials. It is computed from the events of the trials.

    Args:
        objectives: Objectives and constraints of the sweep.
        repeats: Number of trials of each configuration.
        trials: The trials whose events were read.

    Attributes:
        trials: State of each started trial, by number.
        budget: Spent budget and best results.
    """

    def __init__(self, objectives: Objectives, repeats: Repeats, trials: Iterable[TrialState] = ()):
        self.trials = {state.number: state for state in trials}
        self.budget = BudgetState(objectives.goals)
        self._objectives = objectives
        self._repeats = repeats
        # (trial number, result) pairs of the ended trials, by configuration
        self._results: dict[int, list[tuple[int, Result]]] = {}
        for state in self.ended():
            self._add_end(state)

    def ended(self) -> list[TrialState]:
        """Return the trials that have run and ended, in the order of their ends."""
        ran = [t for t in self.trials.values() if t.has_ended and t.started.given is None]
        # The machine's clock may have been set back. The clock of the sweep always advances.
        return sorted(ran, key=lambda t: (t.at, t.ended_at or 0.0, t.number))

    def apply(self, event: TrialEvent) -> TrialState:
        """Apply an event, and return the state of its trial after it."""
        if isinstance(event, TrialStarted) and event.number not in self.trials:
            self.trials[event.number] = transitions.initial_state(event, self._objectives)
            return self.trials[event.number]
        before = self.trials[event.number]
        after = self.trials[event.number] = transitions.apply(before, event)
        if after.has_ended and not before.has_ended:
            self._add_end(after)
        return after

    def _add_end(self, state: TrialState) -> None:
        """Add a trial that has ended to the budget.

        If all trials of its configuration have ended, also add the aggregated result.
        """
        first = state.trial.first_trial
        pairs = self._results.setdefault(first, [])
        pairs.append((state.number, state.result))
        pairs.sort(key=lambda pair: pair[0])
        results = [result for _, result in pairs]
        self.budget.add_trial(state.result)
        if is_settled(results, self._repeats):
            self.budget.add_configuration(first, merge(results, self._repeats))
