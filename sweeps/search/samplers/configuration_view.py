"""Show each configuration to a sampler as one trial, even if several trials repeat it.

The repeats have different seeds. The values of this trial are aggregated over all trials of the
configuration, for example their mean. The sweep also ranks configurations by these aggregated
values. The trial is shown as running until the last repeat has ended.
"""

import copy
from collections import defaultdict
from collections.abc import Container, Sequence

from optuna import Study
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY
from optuna.trial import FrozenTrial, TrialState

from sweeps.space.sections.search_models import Repeats
from sweeps.study.event_records import is_given
from sweeps.study.record_reader import repeat_of
from sweeps.study.repeats import AGGREGATES


def merge_repeats(trials: Sequence[FrozenTrial], repeats: Repeats) -> FrozenTrial:
    """Merge the trials of a configuration into one trial.

    The merged trial is a copy of the first trial, but its values are aggregated over all complete
    trials of the configuration, as in `sweeps.study.repeats.merge`. For each constraint, the
    merged trial has the largest violation among the complete trials. The merged trial is RUNNING
    until all repeats have ended.

    Args:
        trials: Trials of the configuration, the first trial first.
        repeats: Number of trials of a configuration, and the aggregate of their values.

    Returns:
        The merged trial. The first trial itself is returned in three cases: each configuration is
        trained only once, the first trial is not complete, or the first trial is an initial point
        with a known result.
    """
    first = trials[0]
    if repeats.count == 1 or first.state is not TrialState.COMPLETE or is_given(first):
        return first
    merged = copy.copy(first)
    if len(trials) < repeats.count or not all(t.state.is_finished() for t in trials):
        merged.values = None
        merged.state = TrialState.RUNNING
        return merged
    complete = [t for t in trials if t.state is TrialState.COMPLETE]
    aggregate = AGGREGATES[repeats.aggregate]
    merged.values = [
        float(aggregate(column)) for column in zip(*(t.values for t in complete), strict=True)
    ]
    violations = {
        name: max(t.constraints[name] for t in complete if name in t.constraints)
        for name in first.constraints
    }
    merged.system_attrs = first.system_attrs | {
        f"{_CONSTRAINTS_KEY}:{name}": by for name, by in violations.items()
    }
    return merged


class ByConfiguration(Study):
    """View of an Optuna study that shows one trial for each configuration.

    Optuna's samplers read the study through this view.

    Args:
        study: Optuna study, in which each repeat is a trial of its own.
        repeats: Number of trials of a configuration, and the aggregate of their values.
    """

    def __init__(self, study: Study, repeats: Repeats):
        vars(self).update(vars(study))
        self._repeats = repeats

    def _get_trials(
        self,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
        use_cache: bool = False,
    ) -> list[FrozenTrial]:
        """Return one merged trial for each configuration; see `merge_repeats`."""
        by_configuration: dict[int, list[FrozenTrial]] = defaultdict(list)
        for t in super()._get_trials(deepcopy, use_cache=use_cache):
            first = repeat_of(t)
            by_configuration[t.number if first is None else first].append(t)
        merged = [merge_repeats(trials, self._repeats) for trials in by_configuration.values()]
        return [t for t in merged if states is None or t.state in states]
