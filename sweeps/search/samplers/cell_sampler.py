"""Sample a trial: the grid cell is fixed, and the algorithm of the space suggests the other values.

Each suggestion is a function of the study, the seed and the number of earlier configurations. A
trial that is sampled again after a crash gets the same suggestion, unless other trials have ended
since then.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeps.search.earlier_trials import EarlierSweep
from sweeps.search.plugins import build_sampler
from sweeps.space import Space
from sweeps.space.model.conditions import Key
from sweeps.study.record_reader import repeat_of
from sweeps.study.trial_building import seed_of

from .configuration_view import ByConfiguration
from .sampler import ReseededSampler, SamplerContext, SuggestingSampler, independent_sampler
from .trial_groups import History

# Number of attempts in which the algorithm suggests the values of a trial; later ones are random.
MODEL_ATTEMPTS = 4


class CellSampler(BaseSampler):
    """Optuna sampler that fixes the values of the grid cell, while an algorithm suggests the rest.

    The algorithm is either a `model`, or an Optuna sampler in `optuna_sampler`.

    Args:
        space: The search space.
        earlier: Earlier sweeps from which the sweep learns.

    Raises:
        InputError: The algorithm needs a package that is not installed, or a user-defined algorithm
            cannot be built.

    Attributes:
        starting_points: Keys that are fixed in the sweep's first configurations, by dimension; see
            `warm_start.starting_points`.
    """

    def __init__(self, space: Space, earlier: Sequence[EarlierSweep] = ()):
        self.seed = space.search.seed
        self.cell: Mapping[str, Key] = {}
        context = SamplerContext(space, tuple(earlier))
        self._distributions = context.distributions
        self.starting_points: list[dict[str, Key]] = []
        if earlier:
            from .warm_start import starting_points  # imports scipy

            self.starting_points = starting_points(context)
        self.model: SuggestingSampler | None = None
        self.optuna_sampler = independent_sampler()
        algorithm = build_sampler(space.search, context)
        if isinstance(algorithm, ReseededSampler):
            self.optuna_sampler = algorithm
        else:
            self.model = algorithm
        self._random = independent_sampler()
        grids = [d.name for d in space.dimensions if d.is_grid]
        always = {d.name: self._distributions[d.name] for d in space.always}
        self.history = History(grids, space.repeats, always)
        self._repeats = space.repeats

    def begin(
        self,
        cell: Mapping[str, Key],
        configurations_before: int,
        in_cell_before: int = 0,
        attempt: int = 0,
    ) -> None:
        """Prepare the sampler for the next trial. Call this method before Optuna samples the trial.

        Args:
            cell: The values that are fixed in this trial, by name of the dimension: those of the
                grids.
            configurations_before: Number of configurations that started before this trial.
            in_cell_before: Number of configurations that started in this cell before this trial.
            attempt: Number of earlier samples of this trial. Each attempt has random numbers of
                its own. From `MODEL_ATTEMPTS` on, the other values are random.
        """
        self.cell = dict(cell)
        self._attempt = str(attempt or "")
        self._configurations_before = configurations_before
        self._current = self._random if attempt >= MODEL_ATTEMPTS else self.optuna_sampler
        seed = seed_of(self.seed, configurations_before, f"sampler{self._attempt}")
        self._current.reseed(seed, in_cell_before)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the dimensions whose values are suggested together.

        Return {} for a repeat, because all values of a repeat are fixed, and if the values of this
        attempt are random.
        """
        if repeat_of(trial) is not None or self._current is self._random:
            return {}
        if self.model is None:
            return dict(self.optuna_sampler.space)
        self.history.refresh(study)
        return {
            name: distribution
            for name, distribution in self._distributions.items()
            if name not in self.cell
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Key]:
        """Suggest the values of several dimensions together.

        Return {} for a repeat, because all values of a repeat are fixed.
        """
        if not search_space:
            return {}
        if self.model is None:
            if self._repeats.count > 1:
                study = ByConfiguration(study, self._repeats)
            return self.optuna_sampler.sampler.sample_relative(study, trial, search_space)
        self.history.number = trial.number
        seed = seed_of(self.seed, self._configurations_before, f"model{self._attempt}")
        return self.model.suggest(self.history, self.cell, np.random.RandomState(seed))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Key:
        """Return the value of one dimension.

        For a grid dimension, this is the value in the grid cell. For any other dimension, it is a
        random value.
        """
        if param_name in self.cell:
            return self.cell[param_name]
        value: Key = self._current.sampler.sample_independent(
            study, trial, param_name, param_distribution
        )
        return value

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell Optuna's sampler that a trial has ended."""
        self.optuna_sampler.sampler.after_trial(study, trial, state, values)
