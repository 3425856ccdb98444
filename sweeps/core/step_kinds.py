"""Names of the preprocessors of some kinds. Checks of a space file read them without pandas."""

from __future__ import annotations

# These steps create columns named `COLUMN_VALUE`. For FeatureHasher, COLUMN is its parameter
# `output_column`
EXPANDING = (
    "OneHotEncoder",
    "MultiHotEncoder",
    "CountVectorizer",
    "HashingVectorizer",
    "FeatureHasher",
)
SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
