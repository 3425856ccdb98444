"""A made-up table for `data_rows.yaml`: two rings of points among ten columns.

Some points are on the wrong ring.
"""

from __future__ import annotations

import numpy as np
import pandas as pd


def rings(n: int = 20_000, noise: float = 0.1, seed: int = 0) -> pd.DataFrame:
    """Return `n` points.

    The label `outer` tells whether a point lies outside the ball that half of the points are in.

    Args:
        n: Number of rows.
        noise: Share of the rows with the wrong label.
        seed: Seed of the random numbers.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 10))
    outer = (x**2).sum(axis=1) > 9.34
    wrong = rng.random(n) < noise
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(10)]).assign(
        outer=np.where(outer ^ wrong, "yes", "no")
    )
