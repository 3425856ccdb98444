"""Gaussian process with a Matern-5/2 kernel.

It is a module of its own because scipy takes long to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

# Smallest noise variance of a fit, for values with a standard deviation of 1.
LEAST_NOISE = math.exp(-9.0)


@dataclass(frozen=True)
class Noise:
    """Normal prior of the logarithm of the noise variance.

    Attributes:
        log: Mean of the prior.
        width: Standard deviation of the prior. If it is 0, the noise is known and is not fitted.
    """

    log: float
    width: float

    def with_estimate(self, variance: float, freedom: int) -> Noise:
        """Return the prior combined with an estimate of the noise variance.

        Args:
            variance: The estimate.
            freedom: Number of degrees of freedom of the estimate; 0 if there is no estimate.
        """
        if not (freedom and self.width and math.isfinite(variance)):
            return self
        log = math.log(max(variance, LEAST_NOISE))
        # The logarithm of an estimated variance has a variance of about 2 / freedom.
        precision = self.width**-2 + freedom / 2
        return Noise((self.log * self.width**-2 + log * freedom / 2) / precision, precision**-0.5)


VAGUE = Noise(-4.0, 2.0)  # The noise is small.
NONE = Noise(math.log(1e-6), 0.0)


class Process:
    """Gaussian process with a Matern-5/2 kernel and one length scale for each input column.

    Args:
        x: (n, d) inputs.
        y: (n,) values with mean 0 and standard deviation 1.
        categorical: (d,) booleans: True for a categorical column. In such a column, the distance
            between two values is 0 if they are equal, and otherwise 1.
        shares: (n,) factors of the noise variance of each value, for example 1/3 for the mean of
            three repeats; None if all are 1.
        noise: Prior of the noise variance; see `Noise`.
        prior: Function that returns the (n,) prior means of (n, d) inputs; None if they are 0.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        categorical: np.ndarray,
        shares: np.ndarray | None = None,
        noise: Noise = VAGUE,
        prior: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.x = x
        self.y = y if prior is None else y - prior(x)
        self.categorical = categorical
        self.noise = noise
        self._prior = prior
        self._shares = np.ones(len(y)) if shares is None else shares

    @cached_property
    def _squared(self) -> np.ndarray:
        """Squared differences between each two inputs in each column, an (n, n, d) array."""
        delta = self.x[:, None, :] - self.x[None, :, :]
        squared: np.ndarray = np.where(self.categorical, delta != 0, delta * delta)
        return squared

    @property
    def start(self) -> np.ndarray:
        """Initial parameters for the first fit, an array of shape (d + 2,)."""
        return np.array([0.0] * self.x.shape[1] + [0.0, self.noise.log])

    def fit(self, start: np.ndarray) -> np.ndarray:
        """Fit the parameters of the kernel by maximum a posteriori estimation.

        Args:
            start: (d + 2,) initial parameters for the optimizer.

        Returns:
            (d + 2,) logarithms of the d length scales, of the kernel's variance and of the noise
            variance. If the fit fails, the result is `start`, clipped to the bounds of the
            parameters.
        """
        # Bounds of the logarithms of the length scales, the kernel's variance and the noise.
        bounds = [(-2.5, 4.0)] * self.x.shape[1] + [(-3.0, 3.0), (math.log(LEAST_NOISE), 0.0)]
        if not self.noise.width:
            bounds[-1] = (self.noise.log, self.noise.log)
        start = np.clip(start, [low for low, _ in bounds], [high for _, high in bounds])
        fitted = minimize(
            self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
        )
        return fitted.x if np.isfinite(fitted.fun) else start

    def _loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log posterior of the kernel's parameters, and its gradient.

        Args:
            theta: (d + 2,) parameters as `fit` returns them.
        """
        d = self.x.shape[1]
        n = len(self.y)
        weights = np.exp(-2 * theta[:d])
        scale = math.exp(theta[d])
        noise = math.exp(theta[d + 1])
        r = np.sqrt(5 * (self._squared @ weights))
        decay = scale * np.exp(-r)
        kernel = decay * (1 + r + r * r / 3)
        try:
            low = np.linalg.cholesky(kernel + np.diag(noise * self._shares + 1e-8))
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve((low, True), self.y)
        inverse = cho_solve((low, True), np.eye(n))
        outer = inverse - np.outer(alpha, alpha)
        by_distance = outer * (decay * (1 + r) * (5 / 3))
        gradient = np.empty_like(theta)
        gradient[:d] = 0.5 * weights * np.einsum("ij,ijk->k", by_distance, self._squared)
        gradient[d] = 0.5 * np.sum(outer * kernel)
        gradient[d + 1] = 0.5 * noise * np.diag(outer) @ self._shares
        loss = 0.5 * self.y @ alpha + np.log(np.diag(low)).sum()
        # Priors: the length scales are about as long as the space is wide, and longer if there are
        # more dimensions. The scale is near 1.
        means = np.concatenate([np.full(d, 0.5 * math.log(d) - 0.5), [0.0, self.noise.log]])
        widths = np.concatenate([np.full(d, 1.0), [1.0, self.noise.width or 1.0]])
        z = (theta - means) / widths
        return loss + 0.5 * z @ z, gradient + z / widths

    def condition(self, theta: np.ndarray) -> None:
        """Set the parameters of the kernel, and condition the process on its observations.

        `variance` is then the noise variance.

        Args:
            theta: (d + 2,) parameters as `fit` returns them.
        """
        d = self.x.shape[1]
        self._weights = np.exp(-2 * theta[:d])
        self._scale = math.exp(theta[d])
        self.variance = math.exp(theta[d + 1])
        self._solve(self._kernel(self.x, self.x))

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the (n, m) covariances of (n, d) and (m, d) inputs."""
        scale = np.sqrt(5 * self._weights) * ~self.categorical
        squared = cdist(a * scale, b * scale, "sqeuclidean")
        for i in np.flatnonzero(self.categorical):
            squared += 5 * self._weights[i] * (a[:, None, i] != b[:, i])
        # scale * exp(-r) * (1 + r + r² / 3), where `squared` is r². Most of the time of a
        # suggestion is spent here, so arrays are reused.
        r = np.sqrt(squared)
        kernel: np.ndarray = squared
        kernel /= 3
        kernel += r
        kernel += 1
        np.negative(r, out=r)
        kernel *= np.exp(r, out=r)
        kernel *= self._scale
        return kernel

    def _solve(self, kernel: np.ndarray) -> None:
        """Solve the linear equations on which all predictions depend.

        Args:
            kernel: (n, n) covariances of the observations without noise. A small number is added
                to the diagonal, so that the Cholesky decomposition does not fail.
        """
        self._low = np.linalg.cholesky(kernel + np.diag(self.variance * self._shares + 1e-6))
        self._alpha = cho_solve((self._low, True), self.y)

    def imagine(self, x: np.ndarray) -> None:
        """Add running trials as observations, so that the model does not suggest them again.

        The values of these observations are the predicted means.

        Args:
            x: (m, d) inputs of the running trials.
        """
        if len(x):
            y = self._posterior(x)[0]
            self.x = np.vstack([self.x, x])
            self.y = np.concatenate([self.y, y])
            self._shares = np.concatenate([self._shares, np.ones(len(x))])
            self._solve(self._kernel(self.x, self.x))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict the values at given inputs.

        Args:
            x: (m, d) inputs.

        Returns:
            (m,) posterior means and (m,) posterior standard deviations.
        """
        mean, deviation = self._posterior(x)
        if self._prior is not None:
            mean = mean + self._prior(x)
        return mean, deviation

    def _posterior(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (m,) means, without the prior mean, and (m,) standard deviations."""
        kernel = self._kernel(x, self.x)
        solved = solve_triangular(self._low, kernel.T, lower=True, check_finite=False)
        variance = np.maximum(self._scale - np.sum(solved * solved, axis=0), 1e-12)
        return kernel @ self._alpha, np.sqrt(variance)
