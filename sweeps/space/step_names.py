"""Steps of preprocessing: which names are Ray Data's, and what each takes, known without importing Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Every preprocessor of `ray.data.preprocessors` but `Chain` (a list of steps is one) and `TorchVisionPreprocessor` (no table
# of numbers and words goes in), with its parameters besides `columns`, which every step of ours takes. A test holds this
# against the Ray that is installed.
RAY_STEPS: dict[str, tuple[str, ...]] = {
    "Categorizer": ("dtypes", "output_columns"),
    "Concatenator": ("dtype", "flatten", "output_column_name", "raise_if_missing"),
    "CountVectorizer": ("max_features", "output_columns", "tokenization_fn"),
    "CustomKBinsDiscretizer": ("bins", "dtypes", "duplicates", "include_lowest", "output_columns", "right"),
    "FeatureHasher": ("num_features", "output_column"),
    "HashingVectorizer": ("num_features", "output_columns", "tokenization_fn"),
    "LabelEncoder": ("label_column", "output_column"),
    "MaxAbsScaler": ("output_columns",),
    "MinMaxScaler": ("output_columns",),
    "MultiHotEncoder": ("max_categories", "output_columns"),
    "Normalizer": ("norm", "output_columns"),
    "OneHotEncoder": ("max_categories", "output_columns"),
    "OrdinalEncoder": ("encode_lists", "output_columns"),
    "PowerTransformer": ("method", "output_columns", "power"),
    "RobustScaler": ("output_columns", "quantile_precision", "quantile_range"),
    "SimpleImputer": ("fill_value", "output_columns", "strategy"),
    "StandardScaler": ("output_columns",),
    "Tokenizer": ("output_columns", "tokenization_fn"),
    "UniformKBinsDiscretizer": ("bins", "dtypes", "duplicates", "include_lowest", "output_columns", "right"),
}

# What Ray has no default for. `LabelEncoder` is not here: labels are always encoded, the step may name theirs or nothing.
REQUIRED: dict[str, tuple[str, ...]] = {
    "CustomKBinsDiscretizer": ("bins",),
    "FeatureHasher": ("num_features", "output_column"),
    "HashingVectorizer": ("num_features",),
    "PowerTransformer": ("power",),
    "UniformKBinsDiscretizer": ("bins",),
}

# Parameters that take one of a few words.
WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Normalizer", "norm"): ("l1", "l2", "max"),
    ("PowerTransformer", "method"): ("yeo-johnson", "box-cox"),
    ("SimpleImputer", "strategy"): ("mean", "most_frequent", "constant"),
}

NONE = "none"  # the word for a chain without steps


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Attributes:
        name: one of `RAY_STEPS`, or a reference such as `sklearn.preprocessing:PowerTransformer`.
        columns: None for the step's default; "numeric", "categorical", "all" or a glob pattern; or a tuple of names and
            patterns.
        params: every other key.
        path: of its arguments in the file, for messages; "" for a step that was filled in.
    """

    name: str
    columns: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    path: str = field(default="", compare=False, repr=False)

    @property
    def short(self) -> str:
        """The name without its module."""
        return self.name.rpartition(":")[2]

    def arguments(self) -> Mapping[str, Any]:
        """All arguments as they were written, `columns` first."""
        return ({} if self.columns is None else {"columns": self.columns}) | self.params
