"""Names and parameters of the built-in preprocessing steps.

A space file is parsed with this table, without pandas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.space.schema.parameter_schema import Fragment


def _optional(
    kind: str | list[str] | None, description: str, default: Any = None, **rules: Any
) -> Fragment:
    """Return the JSON Schema of an optional parameter; `kind` None allows any type."""
    types = {} if kind is None else {"type": kind}
    return {**types, **rules, "default": default, "description": description}


_MAX_CATEGORIES: Fragment = _optional(
    ["integer", "object"],
    "Largest number of categories to encode, starting with the most frequent: {column: number}, "
    "or one number for every column.",
)
_NUM_FEATURES: Fragment = {"type": "integer", "minimum": 1, "description": "Number of new columns."}
# The steps that `sweeps.data.preprocessing.builtin_steps` fits, and a JSON Schema fragment for
# each of their parameters. A parameter without a `default` is required. `columns` is
# not listed, because every step has it.
BUILTIN_STEPS: dict[str, dict[str, Fragment]] = {
    "Categorizer": {},
    "HashingVectorizer": {"num_features": _NUM_FEATURES},
    "MaxAbsScaler": {},
    "MinMaxScaler": {},
    "Normalizer": {
        "norm": _optional(None, "Norm that becomes 1 in every row.", "l2", enum=["l1", "l2", "max"])
    },
    "OneHotEncoder": {"max_categories": _MAX_CATEGORIES},
    "OrdinalEncoder": {},
    "PowerTransformer": {
        "method": _optional(
            None, "The transformation.", "yeo-johnson", enum=["yeo-johnson", "box-cox"]
        ),
        "power": {
            "type": "number",
            "description": "Parameter of the transformation, often named lambda.",
        },
    },
    "RobustScaler": {
        "quantile_range": _optional(
            "array", "Two quantiles, whose distance is 1 after scaling.", [0.25, 0.75]
        )
    },
    "SimpleImputer": {
        "fill_value": _optional(None, "The value for `strategy: constant`."),
        "strategy": _optional(
            None,
            "How a replacement for missing values is chosen.",
            "mean",
            enum=["mean", "most_frequent", "constant"],
        ),
    },
    "StandardScaler": {},
    "UniformKBinsDiscretizer": {
        "bins": {
            "type": ["integer", "object"],
            "minimum": 1,
            "description": "Number of bins in every column, or {column: number}.",
        }
    },
}

STEP_DESCRIPTIONS: dict[str, str] = {
    "Categorizer": "Turn columns into categories, which xgboost, lightgbm and catboost read "
    "without an encoder.",
    "HashingVectorizer": "Hash the tokens of a column of texts into a fixed number of columns.",
    "MaxAbsScaler": "Divide each column by its largest absolute value.",
    "MinMaxScaler": "Scale each column to the range from 0 to 1.",
    "Normalizer": "Scale each row so that its norm is 1.",
    "OneHotEncoder": "Encode a column of categories as columns of 0 and 1.",
    "OrdinalEncoder": "Encode a column of categories as the integers 0, 1 and so on.",
    "PowerTransformer": "Apply a power to each column, so that its values look more like a normal "
    "distribution.",
    "RobustScaler": "Subtract the median of each column, and divide by the distance of two "
    "quantiles.",
    "SimpleImputer": "Replace missing values.",
    "StandardScaler": "Subtract the mean of each column, and divide by its standard deviation.",
    "UniformKBinsDiscretizer": "Put numbers into bins of equal width.",
}


def required_parameters(step: str) -> list[str]:
    """Return the names of the parameters that a built-in step requires; [] for other steps."""
    return [
        name for name, fragment in BUILTIN_STEPS.get(step, {}).items() if "default" not in fragment
    ]


NONE = "none"  # the name of a chain without steps


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Attributes:
        name: One of `BUILTIN_STEPS`, or a reference such as
            `sklearn.preprocessing:PowerTransformer`.
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
