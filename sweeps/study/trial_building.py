"""Build trials from sampled keys, and rebuild recorded trials from the study."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from sweeps.core.resources import shape_of
from sweeps.core.trial import Trial
from sweeps.space import Space

from .states import TrialState


def seed_of(seed: int, number: int, purpose: str) -> int:
    """Derive a seed from the sweep's seed.

    Args:
        seed: Seed of the sweep.
        number: Number of the trial or configuration.
        purpose: Purpose of the seed, such as "trial". Different purposes get independent seeds.

    Returns:
        A seed with 0 <= seed < 2**32.
    """
    digest = hashlib.sha256(f"{seed}/{number}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def build_trial(
    space: Space, number: int, choose: Callable[[Any], Any], repeat_of: int | None = None
) -> Trial:
    """Build a trial from the key that is chosen for each active dimension.

    The key stands for a value; see `Dimension.value`.

    Args:
        space: The search space.
        number: Number of the trial.
        choose: Function that returns the chosen key of a dimension; see `Space.fill`.
        repeat_of: Number of the trial that this trial repeats with another seed; None for a new
            configuration.
    """
    labels = {}

    def choose_and_label(dimension: Any) -> Any:
        key = choose(dimension)
        labels[dimension.name] = key if dimension.options else dimension.value(key)
        return key

    filled = space.fill(choose_and_label)
    return Trial(
        number=number,
        params=filled["params"],
        preprocessor=tuple(filled["preprocessor"]),
        shape=shape_of(filled["scaling"], space.trainer_of(labels).backend),
        seed=seed_of(space.search.seed, number, "trial"),
        labels=labels,
        data=filled["data"],
        repeat_of=repeat_of,
    )


def recorded_trial(space: Space, state: TrialState) -> Trial:
    """Build the `Trial` of a recorded trial with its current parameters.

    Args:
        space: The search space.
        state: State of the trial.
    """
    recorded = state.trial
    keys = state.keys
    trial = build_trial(
        space, state.number, lambda dimension: keys[dimension.name], recorded.repeat_of
    )
    return dataclasses.replace(trial, lineage=recorded.lineage, enqueued=recorded.enqueued)


def complete(space: Space, state: TrialState) -> TrialState:
    """Add the preprocessing steps to the trials in a state that was read from the study.

    The study does not record the steps, so they are taken from the space; see `TrialStarted`.
    """
    start = state.started
    initial = recorded_trial(space, dataclasses.replace(state, trial=start.trial, keys=start.keys))
    return dataclasses.replace(
        state, trial=recorded_trial(space, state), started=dataclasses.replace(start, trial=initial)
    )
