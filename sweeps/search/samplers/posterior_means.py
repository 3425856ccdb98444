"""The posterior mean of a Gaussian process at its own observations."""

from __future__ import annotations

import math

import numpy as np

from .gaussian_process import LEAST_NOISE, VAGUE, Noise, Process
from .gp_observations import scaled


def posterior_means(
    x: np.ndarray,
    y: np.ndarray,
    categorical: np.ndarray,
    variance: float | None = None,
    repeated: tuple[int, float] = (0, 0.0),
    share: float = 1.0,
) -> np.ndarray | None:
    """Return the posterior mean at each observation, which is less noisy than its value.

    Args:
        x: (n, d) inputs.
        y: (n,) values.
        categorical: See `Process`.
        variance: Variance of the noise of a value. None if it is not known.
        repeated: Degrees of freedom of an estimate of the noise from repeats, and the estimate.
        share: Factor of this noise, if a value is the mean of several trials; see `Process`.

    Returns:
        (n,) means, on a scale on which the values have the mean 0 and the standard deviation 1.
        None if fewer than two values differ.
    """
    y, factor = scaled(y)
    if not factor:
        return None
    if variance is None:
        freedom, estimate = repeated
        noise = VAGUE.with_estimate(estimate * factor**2, freedom)
    else:
        noise = Noise(math.log(min(max(variance * factor**2, LEAST_NOISE), 1.0)), 0.0)
        share = 1.0
    process = Process(x, y, categorical, shares=np.full(len(y), share), noise=noise)
    process.condition(process.fit(process.start))
    return process.predict(x)[0]
