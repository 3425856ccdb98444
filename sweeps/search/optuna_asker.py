"""Create Optuna trials, and finish the creation of trials that a crash interrupted."""

from __future__ import annotations

from collections import deque
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.trial_queue import QueueItem
from sweeps.space import Dimension
from sweeps.study.distributions import suggest
from sweeps.study.record import REPEAT_OF


class _KeepingStorage:
    """Storage that ignores writes to the parameters in `recorded`. A trial uses this storage while it is sampled again after a crash."""

    def __init__(self, storage: Any, recorded: set[str]):
        self._storage, self._recorded = storage, recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def set_trial_param(self, trial_id: int, name: str, value: float, distribution: Any) -> None:
        if name not in self._recorded:
            self._storage.set_trial_param(trial_id, name, value, distribution)


class OptunaAsker:
    """Create the Optuna trials of a study.

    Args:
        study: The study of the sweep.
    """

    def __init__(self, study: optuna.Study):
        self._study = study
        self._interrupted: deque[FrozenTrial] = deque()
        self._recorded: dict[
            str, Any
        ] = {}  # recorded parameters of the trial that is sampled again; {} for a new trial

    def add_interrupted(self, t: FrozenTrial) -> bool:
        """If a trial of the study was created but never started, remember it for a later call of `ask`.

        Args:
            t: Any trial of the study. Call this method for all trials, in the order of their numbers.

        Returns:
            True if the trial was never started.
        """
        interrupted = t.state is TrialState.WAITING or (
            t.state is TrialState.RUNNING and "begun" not in t.user_attrs
        )
        if interrupted:
            self._interrupted.append(t)
        return interrupted

    def ask(self, item: QueueItem) -> optuna.Trial:
        """Return the Optuna trial for a queue item.

        If the item is a trial whose start was interrupted by a crash, the existing trial is returned and must be sampled again. Otherwise a
        new trial is created.

        Args:
            item: Description of the trial to start, from the trial queue.
        """
        interrupted, self._recorded = self._interrupted.popleft() if item.interrupted else None, {}
        if interrupted is not None and interrupted.state is TrialState.RUNNING:
            return self._sample_again(interrupted)
        if (
            interrupted is None and item.fixed is not None
        ):  # The sampler chooses the parameters that are not fixed.
            self._study.enqueue_trial(
                dict(item.fixed), None if item.repeat_of is None else {REPEAT_OF: item.repeat_of}
            )
        if interrupted is not None or item.fixed is not None:
            return self._study.ask()
        # `Study.ask` is slower: it first searches all trials for an enqueued one.
        self._study._thread_local.cached_all_trials = None
        return optuna.Trial(
            self._study, self._study._storage.create_new_trial(self._study._study_id)
        )

    def _sample_again(self, interrupted: FrozenTrial) -> optuna.Trial:
        trial = optuna.Trial(self._study, interrupted._trial_id)
        frozen = trial._cached_frozen_trial
        self._recorded = dict(frozen.params)
        storage: Any = _KeepingStorage(trial.storage, set(self._recorded))
        trial.storage = storage
        frozen.params, frozen.distributions = {}, {}
        return trial

    def key(self, trial: optuna.Trial, dimension: Dimension) -> Any:
        """Sample a value of a dimension, and return its key.

        If a crash interrupted the trial and the study already has a key for this dimension, the recorded key is returned. The dimension is
        still sampled, so that the sampler's random sequence stays the same. The new sample may differ from the recorded key, because other
        trials may have ended in the meantime.

        Args:
            trial: The trial that `ask` returned last.
            dimension: An active dimension of the trial.
        """
        key = suggest(trial, dimension)
        if dimension.name in self._recorded:
            key = trial._cached_frozen_trial.params[dimension.name] = self._recorded[dimension.name]
        return key
