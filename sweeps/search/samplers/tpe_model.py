"""TPE (Bergstra et al., 2011; by rungs as in BOHB, Falkner et al., 2018), a rung and a cell at a time.

Under a scheduler values at different steps do not compare: the model is made of the highest rung that enough trials came to. Mixed over
rungs, as the usual pairings do, it loses to random configurations.

Within a grid `enqueue_trial` with the cell's values does not condition the other dimensions, not even under a multivariate TPE (mean late
regret 0.5 where conditioning reaches 0.26). Here a kernel counts by the probability it gives to the cell's values, and these are fixed; a
trial is called good by comparison with its own cell alone. Ranked over all cells, the good trials soon lie in one of them, and the others
are searched where that one is good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna import Study
from optuna.samplers._tpe.sampler import _split_complete_trials_multi_objective
from optuna.trial import FrozenTrial

from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.history import History, Ranked, internal, point_of
from sweeps.search.samplers.parzen import Mixture, Widths, neighbours, third_nearest

# Kernels of an estimator at most. The good trials are few by themselves; of the others a sample is drawn anew for each suggestion.
KERNELS = 128
# So many times the root of a level's trials, in each cell, are called good, and how many at most.
GOOD, MOST_GOOD = 0.8, 25
# The part of the suggestions that is random all the same, as in BOHB: a model that has settled on the wrong option of a choice never
# tries another.
RANDOM = 0.03


class TpeModel:
    """Suggests what the good trials have more often than the others.

    Args:
        n_startup_trials: a level is modelled when so many trials came to it; below that all is random.
        n_ei_candidates: drawn for each suggestion, of which the best is taken.
    """

    def __init__(self, n_startup_trials: int = 10, n_ei_candidates: int = 16):
        self.enough, self.candidates, self.kernels = max(1, n_startup_trials), n_ei_candidates, KERNELS

    def suggest(self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
        """Return values by dimension; {} while too few trials are known. See `Model.suggest`."""
        study, number = history.study, history.number
        level = history.highest(self.enough)
        if level is None or rng.rand() < RANDOM:
            return {}
        good, rest = self._split(study, history, level, number, history.cell(cell), rng)
        found: dict[str, Any] = {}
        groups = history.spaces()
        # where all dimensions are discrete the best candidate would soon be the same over and over
        pending = {point_of(t.params, t.distributions) for n, t in history.running.items() if n != number}
        for group in groups:
            space = {name: distribution for name, distribution in group.items() if not distribution.single()}
            if not set(space) - set(cell):
                continue
            axes = Axes(space)
            weights = by_rank if len(study.directions) == 1 else np.ones
            below, above = _density(axes, good, cell, weights, third_nearest), _density(axes, rest, cell, by_age, neighbours)
            drawn = below.sample(rng, self.candidates)
            gain = below.log_pdf(drawn) - above.log_pdf(drawn)
            for i in np.argsort(-gain, kind="stable"):
                values = dict(zip(space, drawn[i].tolist(), strict=True))
                chosen = {name: space[name].to_external_repr(value) for name, value in values.items() if name not in cell}
                point = point_of({**cell, **chosen}, group)
                if len(groups) > 1 or not (point in history.tried or point in pending):
                    found |= chosen
                    break
        return found

    def _split(
        self, study: Study, history: History, level: float, number: int, own: str, rng: np.random.RandomState
    ) -> tuple[list[FrozenTrial], list[FrozenTrial]]:
        """The good trials, the best of each cell first, and the others, each bounded: of the own cell first, then of the rest, drawn anew.

        The others are the rest of the level, whatever was stopped below it, and what runs and has not come to it: so it is not tried again.
        """
        good: tuple[list[int], list[int]] = ([], [])
        rest: tuple[list[int], list[int]] = ([], [])
        place: dict[int, int] = {}
        for cell, ranked in sorted(history.levels[level].items()):
            others = cell != own
            below, above = _best(study, history, ranked, good_of(len(ranked)))
            good[others].extend(below)
            place |= {number: i for i, number in enumerate(below)}
            rest[others].extend(above)
        for lower, cells in sorted(history.ended.items(), key=lambda known: known[0]):
            if lower < level:
                for cell, numbers in sorted(cells.items()):
                    rest[cell != own].extend(numbers)
        pending = [t for n, t in history.running.items() if n != number and level not in t.intermediate_values]
        return (
            sorted((history.known[n] for n in _bounded(*good, rng, self.kernels)), key=lambda t: (place[t.number], t.number)),
            sorted((*(history.known[n] for n in _bounded(*rest, rng, self.kernels)), *pending), key=lambda t: t.number),
        )


def _density(
    axes: Axes, trials: Sequence[FrozenTrial], cell: Mapping[str, Any], weights: Callable[[int], np.ndarray], widths: Widths
) -> Mixture:
    """What those trials that have the space's dimensions are like, given the cell."""
    observed = internal(trials, axes.space)
    values = np.column_stack([observed[name] for name in axes.names])
    given = {i: int(axes.space[name].to_internal_repr(cell[name])) for i, name in enumerate(axes.names) if name in cell}
    return Mixture(axes, values, weights(len(values)), widths, given)


def by_rank(n: int) -> np.ndarray:
    """Weights of so many, the best first, that fall as those of CMA-ES do (Hansen & Ostermeier, 2001); 1 in the mean."""
    found = math.log(n + 1) - np.log(np.arange(1, n + 1))
    return found / found.mean() if n else found


def by_age(n: int) -> np.ndarray:
    """Weights of so many, the oldest first: the last 25 have 1, the first 1/n, as Optuna has it."""
    found = np.ones(n)
    found[:-25] = np.linspace(1 / max(1, n), 1.0, max(0, n - 25))
    return found


def good_of(there: int) -> int:
    """How many of so many trials are called good."""
    return min(math.ceil(GOOD * math.sqrt(there)), MOST_GOOD)


def _bounded(own: list[int], others: list[int], rng: np.random.RandomState, most: int) -> list[int]:
    """All of them if they are not too many; else a sample, at least half of it of the own ones."""
    if len(own) + len(others) <= most:
        return own + others
    share = max(most // 2, most - len(others))
    kept = own if len(own) <= share else [own[i] for i in rng.choice(len(own), share, replace=False)]
    left = most - len(kept)
    return kept + (others if len(others) <= left else [others[i] for i in rng.choice(len(others), left, replace=False)])


def _best(study: Study, history: History, ranked: Sequence[Ranked], n: int) -> tuple[list[int], list[int]]:
    """The numbers of the n best trials and of the others; of several objectives by Pareto front, then by hypervolume."""
    if len(study.directions) > 1:
        feasible = [history.known[number] for violation, _, number in ranked if not violation]
        if len(feasible) > n:
            below = {t.number for t in _split_complete_trials_multi_objective(feasible, study, n)[0]}
            return sorted(below), [number for _, _, number in ranked if number not in below]
    numbers = [number for _, _, number in ranked]
    return numbers[:n], numbers[n:]
