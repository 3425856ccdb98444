"""Names and parameters of preprocessing steps, known without importing Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.core.parameter_schema import Fragment

_OUTPUT_COLUMNS: Fragment = {
    "type": "array",
    "default": None,
    "description": "Names of the new columns; without them the columns are replaced.",
}
_TOKENIZER: Fragment = {
    "type": "string",
    "default": None,
    "description": "A function that splits a text, as `module:function`; without it texts are split at spaces.",
}
_MAX_CATEGORIES: Fragment = {
    "type": ["integer", "object"],
    "default": None,
    "description": "Number of categories that are encoded, the most frequent first: {column: number}, or one number for every column.",
}
_NUM_FEATURES: Fragment = {"type": "integer", "minimum": 1, "description": "Number of new columns."}
_BINS: dict[str, Fragment] = {
    "dtypes": {"type": "object", "default": None, "description": "Type of each binned column: {column: type}."},
    "duplicates": {"enum": ["raise", "drop"], "default": "raise", "description": "What to do if two edges of bins are equal."},
    "include_lowest": {"type": "boolean", "default": False, "description": "Whether the first bin contains its left edge."},
    "output_columns": _OUTPUT_COLUMNS,
    "right": {"type": "boolean", "default": True, "description": "Whether a bin contains its right edge."},
}

# The preprocessors of `ray.data.preprocessors`, and a JSON Schema fragment for each of their parameters. A parameter without a
# `default` is required. `columns` is not listed, because every step has it. `Chain` is missing, because a list of steps is a chain;
# `TorchVisionPreprocessor` is missing, because it does not read tables. A test compares the names with the installed Ray.
# Labels are always encoded, so `LabelEncoder` needs no `label_column`.
RAY_STEPS: dict[str, dict[str, Fragment]] = {
    "Categorizer": {
        "dtypes": {"type": "object", "default": None, "description": "Type of each column: {column: type}."},
        "output_columns": _OUTPUT_COLUMNS,
    },
    "Concatenator": {
        "dtype": {"default": None, "description": "NumPy type of the new column, such as float32."},
        "flatten": {"type": "boolean", "default": False, "description": "Whether arrays in columns are flattened first."},
        "output_column_name": {"type": "string", "default": "concat_out", "description": "Name of the new column."},
        "raise_if_missing": {"type": "boolean", "default": False, "description": "Whether a missing column is an error."},
    },
    "CountVectorizer": {
        "max_features": {"type": "integer", "minimum": 1, "default": None, "description": "Number of tokens, the most frequent first."},
        "output_columns": _OUTPUT_COLUMNS,
        "tokenization_fn": _TOKENIZER,
    },
    "CustomKBinsDiscretizer": {
        "bins": {"type": ["array", "object"], "description": "Edges of the bins: a list, or {column: list}."},
        **_BINS,
    },
    "FeatureHasher": {
        "num_features": _NUM_FEATURES,
        "output_column": {"type": "string", "description": "Name of the new column."},
    },
    "HashingVectorizer": {"num_features": _NUM_FEATURES, "output_columns": _OUTPUT_COLUMNS, "tokenization_fn": _TOKENIZER},
    "LabelEncoder": {
        "label_column": {"type": "string", "default": None, "description": "The label; sweeps encodes it in any case."},
        "output_column": {"type": "string", "default": None, "description": "Name of the new column."},
    },
    "MaxAbsScaler": {"output_columns": _OUTPUT_COLUMNS},
    "MinMaxScaler": {"output_columns": _OUTPUT_COLUMNS},
    "MultiHotEncoder": {"max_categories": _MAX_CATEGORIES, "output_columns": _OUTPUT_COLUMNS},
    "Normalizer": {
        "norm": {"enum": ["l1", "l2", "max"], "default": "l2", "description": "The norm that every row gets."},
        "output_columns": _OUTPUT_COLUMNS,
    },
    "OneHotEncoder": {"max_categories": _MAX_CATEGORIES, "output_columns": _OUTPUT_COLUMNS},
    "OrdinalEncoder": {
        "encode_lists": {"type": "boolean", "default": True, "description": "Whether the items of lists are encoded one by one."},
        "output_columns": _OUTPUT_COLUMNS,
    },
    "PowerTransformer": {
        "method": {"enum": ["yeo-johnson", "box-cox"], "default": "yeo-johnson", "description": "The transformation."},
        "output_columns": _OUTPUT_COLUMNS,
        "power": {"type": "number", "description": "Parameter of the transformation, often named lambda."},
    },
    "RobustScaler": {
        "output_columns": _OUTPUT_COLUMNS,
        "quantile_precision": {"type": "integer", "minimum": 1, "default": 800, "description": "Precision of the quantile estimate."},
        "quantile_range": {"type": "array", "default": [0.25, 0.75], "description": "Lower and upper quantile; their distance becomes 1."},
    },
    "SimpleImputer": {
        "fill_value": {"default": None, "description": "The value for `strategy: constant`."},
        "output_columns": _OUTPUT_COLUMNS,
        "strategy": {
            "enum": ["mean", "most_frequent", "constant"],
            "default": "mean",
            "description": "What a missing value is replaced by.",
        },
    },
    "StandardScaler": {"output_columns": _OUTPUT_COLUMNS},
    "Tokenizer": {"output_columns": _OUTPUT_COLUMNS, "tokenization_fn": _TOKENIZER},
    "UniformKBinsDiscretizer": {
        "bins": {"type": ["integer", "object"], "minimum": 1, "description": "Number of bins: one for all columns, or {column: number}."},
        **_BINS,
    },
}


def required_parameters(step: str) -> list[str]:
    """Return the parameters that a step of Ray Data has no default for; [] for other steps."""
    return [name for name, fragment in RAY_STEPS.get(step, {}).items() if "default" not in fragment]


NONE = "none"  # a chain without steps


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Attributes:
        name: One of `RAY_STEPS`, or a reference such as `sklearn.preprocessing:PowerTransformer`.
        columns: "numeric", "categorical", "all" or a glob pattern; or a tuple of names and patterns. None for the step's default.
        params: The other parameters.
        path: Dotted path of the parameters in the space file, for messages. "" in a sampled configuration.
    """

    name: str
    columns: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    path: str = field(default="", compare=False, repr=False)

    @property
    def short(self) -> str:
        """Name without the module."""
        return self.name.rpartition(":")[2]

    def arguments(self) -> Mapping[str, Any]:
        """Return all parameters, `columns` first."""
        return ({} if self.columns is None else {"columns": self.columns}) | self.params
