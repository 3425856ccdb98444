"""The breast cancer data as several data sets, for `data_sets.yaml`.

A fixed fifth of the rows is for validation. Every trial is therefore scored on the same rows,
whatever it was trained on.
"""

from __future__ import annotations

import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split


def _split() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows for training and the rows for validation."""
    rows = load_breast_cancer(as_frame=True).frame
    train, valid = train_test_split(rows, test_size=0.2, stratify=rows["target"], random_state=2345)
    return train, valid


def shuffled() -> pd.DataFrame:
    """Return all rows for training, in a random order."""
    return _split()[0].sample(frac=1, random_state=1234)


def half() -> pd.DataFrame:
    """Return a random half of the rows for training."""
    return _split()[0].sample(frac=0.5, random_state=1234)


def valid() -> pd.DataFrame:
    """Return the rows for validation."""
    return _split()[1]
