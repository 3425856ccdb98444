"""Names and parameters of Ray Data's preprocessing steps, listed here so that a space file can be parsed without importing Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.core.parameter_schema import Fragment


def _optional(
    kind: str | list[str] | None,
    description: str,
    default: Any = None,
    **rules: Any,
) -> Fragment:
    """Return the JSON Schema of an optional parameter. With `kind` None, a value may have any type."""
    types = {} if kind is None else {"type": kind}
    return {**types, **rules, "default": default, "description": description}


_OUTPUT_COLUMNS = {
    "output_columns": _optional(
        "array", "Names of the new columns. By default, the input columns are replaced."
    )
}
_TOKENIZER = {
    "tokenization_fn": _optional(
        "string",
        "Function that splits a text, as `module:function`. By default, texts are split at spaces.",
    )
}
_MAX_CATEGORIES: Fragment = _optional(
    ["integer", "object"],
    "Largest number of categories to encode, starting with the most frequent: {column: number}, "
    "or one number for every column.",
)
_NUM_FEATURES: Fragment = {
    "type": "integer",
    "minimum": 1,
    "description": "Number of new columns.",
}
_COLUMN_NAME: Fragment = {
    "type": "string",
    "description": "Name of the new column.",
}
_BINS: dict[str, Fragment] = {
    "dtypes": _optional("object", "Type of each binned column: {column: type}."),
    "duplicates": _optional(
        None, "What to do if two edges of bins are equal.", "raise", enum=["raise", "drop"]
    ),
    "include_lowest": _optional("boolean", "Whether the first bin contains its left edge.", False),
    "right": _optional("boolean", "Whether a bin contains its right edge.", True),
    **_OUTPUT_COLUMNS,
}

# The preprocessors of `ray.data.preprocessors`, and a JSON Schema fragment for each
# of their parameters. A parameter without a `default` is required. `columns` is not listed, because
# every step has it. `Chain` is missing, because a list of steps is a chain;
# `TorchVisionPreprocessor` is missing, because it does not read tables. A test compares the names
# with the installed Ray. Labels are always encoded, so `LabelEncoder` needs no `label_column`.
# sweeps has a `Categorizer` of its own, without parameters.
RAY_STEPS: dict[str, dict[str, Fragment]] = {
    "Categorizer": {},
    "Concatenator": {
        "dtype": _optional(None, "NumPy type of the new column, such as float32."),
        "flatten": _optional(
            "boolean", "Whether columns of arrays are flattened before they are joined.", False
        ),
        "output_column_name": _optional("string", "Name of the new column.", "concat_out"),
        "raise_if_missing": _optional("boolean", "Whether a missing column is an error.", False),
    },
    "CountVectorizer": {
        "max_features": _optional(
            "integer",
            "Largest number of tokens to keep, starting with the most frequent.",
            minimum=1,
        ),
        **_OUTPUT_COLUMNS,
        **_TOKENIZER,
    },
    "CustomKBinsDiscretizer": {
        "bins": {
            "type": ["array", "object"],
            "description": "Edges of the bins: a list, or {column: list}.",
        },
        **_BINS,
    },
    "FeatureHasher": {"num_features": _NUM_FEATURES, "output_column": _COLUMN_NAME},
    "HashingVectorizer": {"num_features": _NUM_FEATURES, **_OUTPUT_COLUMNS, **_TOKENIZER},
    "LabelEncoder": {
        "label_column": _optional(
            "string", "Name of the label column, which sweeps always encodes."
        ),
        "output_column": _optional("string", "Name of the new column."),
    },
    "MaxAbsScaler": _OUTPUT_COLUMNS,
    "MinMaxScaler": _OUTPUT_COLUMNS,
    "MultiHotEncoder": {"max_categories": _MAX_CATEGORIES, **_OUTPUT_COLUMNS},
    "Normalizer": {
        "norm": _optional(
            None, "Norm that becomes 1 in every row.", "l2", enum=["l1", "l2", "max"]
        ),
        **_OUTPUT_COLUMNS,
    },
    "OneHotEncoder": {"max_categories": _MAX_CATEGORIES, **_OUTPUT_COLUMNS},
    "OrdinalEncoder": {
        "encode_lists": _optional(
            "boolean",
            "True to encode each item of a list, false to encode a whole list as one category.",
            True,
        ),
        **_OUTPUT_COLUMNS,
    },
    "PowerTransformer": {
        "method": _optional(
            None, "The transformation.", "yeo-johnson", enum=["yeo-johnson", "box-cox"]
        ),
        "power": {
            "type": "number",
            "description": "Parameter of the transformation, often named lambda.",
        },
        **_OUTPUT_COLUMNS,
    },
    "RobustScaler": {
        "quantile_precision": _optional(
            "integer",
            "Precision with which the quantiles are estimated: the larger, the more precise.",
            800,
            minimum=1,
        ),
        "quantile_range": _optional(
            "array", "Two quantiles, whose distance is 1 after scaling.", [0.25, 0.75]
        ),
        **_OUTPUT_COLUMNS,
    },
    "SimpleImputer": {
        "fill_value": _optional(None, "The value for `strategy: constant`."),
        "strategy": _optional(
            None,
            "How a replacement for missing values is chosen.",
            "mean",
            enum=["mean", "most_frequent", "constant"],
        ),
        **_OUTPUT_COLUMNS,
    },
    "StandardScaler": _OUTPUT_COLUMNS,
    "Tokenizer": {**_OUTPUT_COLUMNS, **_TOKENIZER},
    "UniformKBinsDiscretizer": {
        "bins": {
            "type": ["integer", "object"],
            "minimum": 1,
            "description": "Number of bins in every column, or {column: number}.",
        },
        **_BINS,
    },
}

STEP_DESCRIPTIONS: dict[str, str] = {
    "Categorizer": "Turn columns into categories, which xgboost, lightgbm and catboost read without an "
    "encoder.",
    "Concatenator": "Join columns of numbers to one column of arrays.",
    "CountVectorizer": "Turn a column of texts into columns with the number of times that each token occurs.",
    "CustomKBinsDiscretizer": "Put numbers into bins whose edges you give.",
    "FeatureHasher": "Hash the tokens of columns with counts into a fixed number of columns.",
    "HashingVectorizer": "Hash the tokens of a column of texts into a fixed number of columns.",
    "LabelEncoder": "Encode the classes of the label as 0, 1 and so on. sweeps always does this.",
    "MaxAbsScaler": "Divide each column by its largest absolute value.",
    "MinMaxScaler": "Scale each column to the range from 0 to 1.",
    "MultiHotEncoder": "Encode a column of lists as columns of 0 and 1.",
    "Normalizer": "Scale each row so that its norm is 1.",
    "OneHotEncoder": "Encode a column of categories as columns of 0 and 1.",
    "OrdinalEncoder": "Encode a column of categories as the integers 0, 1 and so on.",
    "PowerTransformer": "Apply a power to each column, so that its values look more like a normal distribution.",
    "RobustScaler": "Subtract the median of each column, and divide by the distance of two quantiles.",
    "SimpleImputer": "Replace missing values.",
    "StandardScaler": "Subtract the mean of each column, and divide by its standard deviation.",
    "Tokenizer": "Split a column of texts into lists of tokens.",
    "UniformKBinsDiscretizer": "Put numbers into bins of equal width.",
}


def required_parameters(step: str) -> list[str]:
    """Return the names of the parameters that a step of Ray Data requires; [] for other steps."""
    return [name for name, fragment in RAY_STEPS.get(step, {}).items() if "default" not in fragment]


NONE = "none"  # the name of a chain without steps


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Attributes:
        name: One of `RAY_STEPS`, or a reference such as `sklearn.preprocessing:PowerTransformer`.
        columns: The columns that the step changes: "numeric", "categorical", "all", a glob pattern,
            or a tuple of names and patterns. None if the file names no columns; the step then uses
            its default.
        params: The other parameters.
        path: Dotted path of the parameters in the space file, for messages. "" in a sampled
            configuration.
    """

    name: str
    columns: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    path: str = field(default="", compare=False, repr=False)

    @property
    def short(self) -> str:
        """Name of the step without the module."""
        return self.name.rpartition(":")[2]

    def arguments(self) -> Mapping[str, Any]:
        """Return all parameters, `columns` first."""
        return ({} if self.columns is None else {"columns": self.columns}) | self.params
