"""What a trial is: the cell's values, and the rest as an algorithm suggests it.

Each suggestion is a function of the study, the seed and the trial's number: after a crash the same one comes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler

from sweeps.search.samplers.configuration_view import ByConfiguration
from sweeps.search.samplers.history import History
from sweeps.search.samplers.optuna_samplers import Plain
from sweeps.search.samplers.tpe import Tpe
from sweeps.space import Space
from sweeps.study.distributions import distribution_of
from sweeps.study.record import origin_of
from sweeps.study.trial_building import seed_of

if TYPE_CHECKING:
    from sweeps.search.samplers.gp import Gp


class CellSampler(BaseSampler):
    """Fixes the cell's values and lets an algorithm choose the rest.

    Args:
        space: whose search chooses.

    Raises:
        InputError: the algorithm needs a package that is not installed.
    """

    def __init__(self, space: Space):
        search = space.search
        algorithm, options = search.algorithm, search.options or {}
        self.seed, self._number = search.seed, 0
        self.cell: Mapping[str, Any] = {}
        always = {d.name: distribution_of(d) for d in space.always}
        grids = {d.name for d in space.dimensions if d.is_grid}
        self.model: Tpe | Gp | None = None
        if algorithm == "tpe":
            self.model = Tpe(**options)
        elif algorithm == "gp":
            from sweeps.search.samplers.gp import Gp  # its SciPy takes a moment that the others need not wait

            self.model = Gp(**options, space=always, max_t=space.scheduler.max_t)
        self.history = History(grids, space.repeats)
        self._free = {name: distribution for name, distribution in always.items() if name not in grids}
        self.plain = Plain("random" if self.model else algorithm, search.seed, options, self._free)
        self._repeats = space.repeats

    def begin(self, cell: Mapping[str, Any], number: int, index: int = 0) -> None:
        """Make ready for a trial.

        Args:
            cell: the values of the grid's dimensions.
            number: the trial's.
            index: how many trials were begun in this cell before.
        """
        self.cell, self._number = dict(cell), number
        self.plain.begin(seed_of(self.seed, number, "sampler"), index)

    def infer_relative_search_space(self, study, trial) -> dict[str, BaseDistribution]:
        """What the algorithm suggests in one go; a model knows by itself. Of a repeat all is known."""
        if origin_of(trial) is not None:
            return {}
        if self.model is None:
            return self.plain.space
        self.history.refresh(study)
        known = {name: distribution for space in self.history.spaces() for name, distribution in space.items()}
        return {name: distribution for name, distribution in (known or self._free).items() if name not in self.cell}

    def sample_relative(self, study, trial, search_space) -> dict[str, Any]:
        if origin_of(trial) is not None:
            return {}
        if self.model is None:
            return self.plain.base.sample_relative(self._seen(study), trial, search_space)
        rng = np.random.RandomState(seed_of(self.seed, self._number, "model"))
        return self.model.suggest(study, self.history, trial.number, self.cell, rng)

    def _seen(self, study: Any) -> Any:
        """The study as an algorithm is to see it that knows of no repeats."""
        return study if self._repeats.count == 1 else ByConfiguration(study, self._repeats)

    def sample_independent(self, study, trial, param_name, param_distribution) -> Any:
        if param_name in self.cell:
            return self.cell[param_name]
        return self.plain.base.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study, trial, state, values) -> None:
        self.plain.base.after_trial(study, trial, state, values)
