"""Tables with dirt, for the tests of `sweeps init`."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd

N = 600


def dirty(seed: int = 0, rows: int = 600) -> Any:
    """A table with every kind of dirt."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    days = [date(2025, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 300, rows)]
    clean = pd.DataFrame(
        {
            "customer id": [f"c-{i:05d}" for i in range(rows)],
            "row": np.arange(rows),
            "price": [f"${v:,.2f}" for v in rng.uniform(1, 9_999, rows)],
            "preis": [
                f"{v:,.2f}".replace(",", "_").replace(".", ",").replace("_", ".")
                for v in rng.uniform(1, 9_999, rows)
            ],
            "day": [d.strftime("%d/%m/%Y") for d in days],
            "when": pd.to_datetime(days),
            "empty": [None] * rows,
            "same": ["x"] * rows,
            "leak": np.where(y == 1, "won", "lost"),
            "note": [f"this is a long note number {i}" for i in range(rows)],
            "color": rng.choice(np.array(["red", "blue", None]), rows),
            "city [EU]": rng.choice([f"city {i}" for i in range(60)], rows),
            "size": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "flag": rng.choice(np.array([True, False, None]), rows),
            "age": [str(v) if v % 50 else "unknown" for v in rng.integers(18, 99, rows)],
            "huge": np.where(rng.random(rows) < 0.01, np.inf, rng.normal(size=rows)),
            "vector": [[1.0, 2.0]] * rows,
            "y": y,
        }
    )
    return (
        pd.concat([clean, clean.head(30)], ignore_index=True)
        .drop(columns="row")
        .assign(row=np.arange(rows + 30))
    )


def small() -> Any:
    """A table with `N` rows and two classes."""
    return pd.DataFrame(
        {
            "x": np.random.default_rng(0).normal(size=N),
            "z": [1, 2, 3] * (N // 3),
            "y": [0, 1] * (N // 2),
        }
    )
