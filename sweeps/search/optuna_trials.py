"""Begins Optuna's trials.

Some may be on record that were not begun: a driver died over one, put in line or sampled in part; of others too much was lost to keep them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.samplers.cell_sampler import suggest
from sweeps.search.trial_queue import QueueItem
from sweeps.space import Dimension
from sweeps.study.record import ORIGIN


class _Anew:
    """A storage that keeps the parameters which a trial that is asked for anew has on record."""

    def __init__(self, storage: Any, kept: set[str]):
        self._storage, self._kept = storage, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def set_trial_param(self, trial_id: int, name: str, value: float, distribution: Any) -> None:
        if name not in self._kept:
            self._storage.set_trial_param(trial_id, name, value, distribution)


class OptunaTrials:
    """See the module.

    Args:
        study: the sweep's.
    """

    def __init__(self, study: optuna.Study):
        self._study = study
        self._left: deque[FrozenTrial] = deque()
        self._kept: dict[str, Any] = {}  # what is on record of a trial that is sampled again

    def found(self, t: FrozenTrial) -> bool:
        """Take note of a trial on record if it was not begun; whether it is such a one."""
        left = t.state is TrialState.WAITING or (t.state is TrialState.RUNNING and "begun" not in t.user_attrs)
        if left:
            self._left.append(t)
        return left

    def ask(self, turn: QueueItem) -> optuna.Trial:
        """Optuna's next trial; one whose sampling was cut short is sampled again, from the same study to the same values."""
        left, self._kept = self._left.popleft() if turn.promised else None, {}
        if left is not None and left.state is TrialState.RUNNING:
            return self._again(left)
        if left is None and turn.fixed is not None:  # what it does not fix is sampled
            self._study.enqueue_trial(dict(turn.fixed), None if turn.origin is None else {ORIGIN: turn.origin})
        if left is not None or turn.fixed is not None:
            return self._study.ask()
        # `Study.ask` would first look through all trials for one that is in line
        self._study._thread_local.cached_all_trials = None
        return optuna.Trial(self._study, self._study._storage.create_new_trial(self._study._study_id))

    def _again(self, left: FrozenTrial) -> optuna.Trial:
        asked = optuna.Trial(self._study, left._trial_id)
        frozen = asked._cached_frozen_trial
        self._kept = dict(frozen.params)
        storage: Any = _Anew(asked.storage, set(self._kept))
        asked.storage = storage
        frozen.params, frozen.distributions = {}, {}
        return asked

    def key(self, asked: optuna.Trial, dimension: Dimension) -> Any:
        """What a dimension of the trial is that was asked for last.

        All of it is sampled, also what is on record, so that a random sequence goes on where it was. What is on record counts: other
        trials may have ended since.
        """
        found = suggest(asked, dimension)
        if dimension.name in self._kept:
            found = asked._cached_frozen_trial.params[dimension.name] = self._kept[dimension.name]
        return found
