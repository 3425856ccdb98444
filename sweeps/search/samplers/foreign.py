"""User-defined samplers, named as `module:attr`.

A sampler is any Optuna sampler, or a class with a method `suggest`.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from .sampler import ReseededSampler, SamplerContext, SuggestingSampler

log = logging.getLogger(__name__)


def build_foreign(
    name: str, factory: Callable[..., Any], options: Mapping[str, Any], context: SamplerContext
) -> SuggestingSampler | ReseededSampler:
    """Build a user-defined sampler.

    If this is a sampler of Optuna, it is built again for each trial, with the seed of the trial.
    Each suggestion is then a function of the study and the seed, unless the sampler keeps state
    outside the study.

    Args:
        name: Name of the class or function as `module:attr`, for messages.
        factory: The class, or a function that returns a sampler.
        options: Keyword arguments for `factory`.
        context: The search space.

    Raises:
        TypeError: `factory` does not accept the options, or does not return a sampler.
    """
    from optuna.samplers import BaseSampler

    takes_seed = "seed" in inspect.signature(factory).parameters
    if takes_seed and "seed" in options:
        raise TypeError(
            "`seed` is not an option: sweeps computes a seed for each trial from search.seed"
        )

    def build(seed: int, index: int) -> Any:
        return factory(**options, seed=seed) if takes_seed else factory(**options)

    sampler = build(context.space.search.seed, 0)
    if not isinstance(sampler, BaseSampler):
        if not callable(getattr(sampler, "suggest", None)):
            raise TypeError(
                f"`{name}` must be a sampler of Optuna, or have a method `suggest(history, cell, "
                "rng)`"
            )
        return sampler  # type: ignore[no-any-return]
    if not takes_seed:
        log.warning(
            "the sampler %s has no argument `seed`, so a resumed sweep may suggest other values "
            "than an uninterrupted sweep",
            name,
        )
    return ReseededSampler(build, context.free)
