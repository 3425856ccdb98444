"""Create Optuna trials, and finish the creation of trials that a crash interrupted."""

import copy
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import Dimension
from sweeps.space.model.conditions import Key
from sweeps.study.distributions import suggest
from sweeps.study.event_records import REPEAT_OF, has_started

from .trial_queue import QueueItem


class _DraftStorage:
    """Storage that keeps a trial's parameters in `params` until its configuration is final.

    Until then, it does not write them.
    """

    def __init__(self, storage: BaseStorage):
        self.storage = storage
        self.params: dict[str, tuple[float, BaseDistribution]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.storage, name)

    def set_trial_param(
        self, trial_id: int, name: str, value: float, distribution: BaseDistribution
    ) -> None:
        self.params[name] = value, distribution


class OptunaAsker:
    """Create the Optuna trials of a study.

    Args:
        study: The study of the sweep.
    """

    def __init__(self, study: optuna.Study):
        self._study = study
        self._interrupted: dict[int, FrozenTrial] = {}  # by trial number
        # Recorded parameters of the trial that is sampled again; {} for a new trial
        self._recorded: dict[str, Key] = {}

    def add_interrupted(self, t: FrozenTrial) -> bool:
        """If a trial of the study was created but never started, keep it for a later `ask`.

        Returns:
            True if the trial was never started.
        """
        interrupted = t.state is TrialState.WAITING or (
            t.state is TrialState.RUNNING and not has_started(t)
        )
        if interrupted:
            self._interrupted[t.number] = t
        return interrupted

    def ask(self, item: QueueItem) -> int:
        """Return Optuna's id of the trial for a queue item.

        If the study already contains the trial, this is the existing trial. Otherwise a new trial
        is created. `Study.ask` is not used: it starts the first waiting trial, and a repeat comes
        before a trial that a user has enqueued.

        Args:
            item: The trial to start, from the trial queue.
        """
        storage = self._study._storage
        study = self._study._study_id
        self._study._thread_local.cached_all_trials = None  # `Study.ask` does this, too
        if item.existing is not None:
            trial_id = self._interrupted.pop(item.existing)._trial_id
        elif item.fixed is not None:  # The sampler chooses the parameters that are not fixed.
            attributes = {} if item.repeat_of is None else {REPEAT_OF: item.repeat_of}
            template = optuna.trial.create_trial(
                state=TrialState.WAITING,
                system_attrs={"fixed_params": dict(item.fixed)},
                user_attrs=attributes,
            )
            trial_id = storage.create_new_trial(study, template)
        else:
            trial_id = storage.create_new_trial(study)
        if storage.get_trial(trial_id).state is TrialState.WAITING:
            storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        return trial_id

    def draft(self, trial_id: int) -> optuna.Trial:
        """Return a trial of the study without parameters, which can be sampled.

        The parameters are not written before `save`.
        """
        trial = optuna.Trial(self._study, trial_id)
        # Optuna reads and writes parameters in this copy and in the storage.
        frozen = trial._cached_frozen_trial = copy.copy(trial._cached_frozen_trial)
        self._recorded = frozen.params
        storage: Any = _DraftStorage(trial.storage)
        trial.storage = storage
        frozen.params = {}
        frozen.distributions = {}
        return trial

    def save(self, trial: optuna.Trial) -> None:
        """Write the parameters of a draft to the study."""
        draft: Any = trial.storage
        trial.storage = draft.storage
        for name, (value, distribution) in draft.params.items():
            if name not in self._recorded:
                draft.storage.set_trial_param(trial._trial_id, name, value, distribution)

    def key(self, trial: optuna.Trial, dimension: Dimension) -> Key:
        """Sample a value of a dimension, and return its key.

        If a crash interrupted the trial and the study already has a key for this dimension, the
        recorded key is returned. The dimension is still sampled, so that the sampler's random
        sequence stays the same. The new sample may differ from the recorded key, because other
        trials may have ended in the meantime.

        Args:
            trial: The trial that `ask` returned last.
            dimension: An active dimension of the trial.
        """
        key: Key = suggest(trial, dimension)
        if dimension.name in self._recorded:
            key = trial._cached_frozen_trial.params[dimension.name] = self._recorded[dimension.name]
        return key
