"""Two hundred points on a line, for `points.yaml`."""

from __future__ import annotations

import pandas as pd


def load() -> pd.DataFrame:
    """Return the points, with the columns `X` and `Y`.

    `X` counts from 0 to 199. `Y` is 1 for the first half of the points and 0 for the second half.
    """
    return pd.DataFrame({"X": range(200), "Y": [1] * 100 + [0] * 100})
