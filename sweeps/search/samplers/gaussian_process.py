"""Gaussian process with a Matern-5/2 kernel. It is a module of its own because scipy takes long to import."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist


class Process:
    """Gaussian process with a Matern-5/2 kernel and one length scale for each input column.

    Args:
        x: (n, d) inputs.
        y: (n,) values with mean 0 and standard deviation 1.
        categorical: (d,) booleans: True for a categorical column. In such a column, the distance between two values is 0 if they are
            equal, and otherwise 1.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, categorical: np.ndarray):
        self.x, self.y, self.categorical = x, y, categorical

    @cached_property
    def _squared(self) -> np.ndarray:
        """Squared differences between each two inputs in each column, an array of shape (n, n, d)."""
        delta = self.x[:, None, :] - self.x[None, :, :]
        squared: np.ndarray = np.where(self.categorical, delta != 0, delta * delta)
        return squared

    def fit(self, start: np.ndarray, noise: float | None = None) -> np.ndarray:
        """Fit the parameters of the kernel by maximum a posteriori estimation.

        Args:
            start: (d + 2,) initial parameters for the optimizer.
            noise: Variance of the noise if it is known; None to fit it.

        Returns:
            (d + 2,) logarithms of the d length scales, of the kernel's variance and of the noise variance. If the fit fails, the result is
            `start`, clipped to the bounds of the parameters.
        """
        bounds = [(-2.5, 4.0)] * self.x.shape[1] + [(-3.0, 3.0), (-9.0, 0.0)]
        if noise is not None:
            bounds[-1] = (math.log(noise), math.log(noise))
        start = np.clip(start, [low for low, _ in bounds], [high for _, high in bounds])
        fitted = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        return fitted.x if np.isfinite(fitted.fun) else start

    def _loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the negative log posterior of the kernel's parameters, and its gradient."""
        d, n = self.x.shape[1], len(self.y)
        weights, scale, noise = np.exp(-2 * theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1])
        r = np.sqrt(5 * (self._squared @ weights))
        decay = scale * np.exp(-r)
        kernel = decay * (1 + r + r * r / 3)
        try:
            low = np.linalg.cholesky(kernel + (noise + 1e-8) * np.eye(n))
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve((low, True), self.y)
        inverse = cho_solve((low, True), np.eye(n))
        outer = inverse - np.outer(alpha, alpha)
        by_distance = outer * (decay * (1 + r) * (5 / 3))
        gradient = np.empty_like(theta)
        gradient[:d] = 0.5 * weights * np.einsum("ij,ijk->k", by_distance, self._squared)
        gradient[d] = 0.5 * np.sum(outer * kernel)
        gradient[d + 1] = 0.5 * noise * np.trace(outer)
        loss = 0.5 * self.y @ alpha + np.log(np.diag(low)).sum()
        # Priors: the length scales are about as long as the space is wide, and longer if there are more dimensions. The scale is near 1,
        # and the noise is small.
        means = np.concatenate([np.full(d, 0.5 * math.log(d) - 0.5), [0.0, -4.0]])
        widths = np.concatenate([np.full(d, 1.0), [1.0, 2.0]])
        z = (theta - means) / widths
        return loss + 0.5 * z @ z, gradient + z / widths

    def condition(self, theta: np.ndarray) -> None:
        """Set the parameters of the kernel, and condition the process on its observations.

        Args:
            theta: (d + 2,) parameters as `fit` returns them.
        """
        d = self.x.shape[1]
        self._weights, self._scale, self._noise = np.exp(-2 * theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1])
        self._solve(self._kernel(self.x, self.x))

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the (n, m) covariances of (n, d) and (m, d) inputs."""
        scale = np.sqrt(5 * self._weights) * ~self.categorical
        squared = cdist(a * scale, b * scale, "sqeuclidean")
        for i in np.flatnonzero(self.categorical):
            squared += 5 * self._weights[i] * (a[:, None, i] != b[:, i])
        r = np.sqrt(squared)
        kernel: np.ndarray = self._scale * np.exp(-r) * (1 + r + r * r / 3)
        return kernel

    def _solve(self, kernel: np.ndarray) -> None:
        self._low = np.linalg.cholesky(kernel + (self._noise + 1e-6) * np.eye(len(self.y)))
        self._alpha = cho_solve((self._low, True), self.y)

    def imagine(self, x: np.ndarray) -> None:
        """Add running trials as observations with their predicted means as values, so that the model does not suggest them again.

        Args:
            x: (m, d) inputs of the running trials.
        """
        if len(x):
            y = self.predict(x)[0]
            self.x, self.y = np.vstack([self.x, x]), np.concatenate([self.y, y])
            self._solve(self._kernel(self.x, self.x))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict the values at given inputs.

        Args:
            x: (m, d) inputs.

        Returns:
            (m,) posterior means and (m,) posterior standard deviations.
        """
        kernel = self._kernel(x, self.x)
        solved = solve_triangular(self._low, kernel.T, lower=True, check_finite=False)
        variance = np.maximum(self._scale - np.sum(solved * solved, axis=0), 1e-12)
        return kernel @ self._alpha, np.sqrt(variance)
