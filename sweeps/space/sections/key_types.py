"""Types of the keys of a space file, with the rules for their values."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StrictFloat, StrictInt, StrictStr, WithJsonSchema

from sweeps.core.label_columns import Label
from sweeps.core.plugins import references
from sweeps.space.parse import value_types

NonEmptyText = Annotated[StrictStr, Field(min_length=1)]
Scalar = Annotated[Any, BeforeValidator(value_types.plain_scalar)]
AtLeast0 = Annotated[StrictInt, Field(ge=0)]
AtLeast1 = Annotated[StrictInt, Field(ge=1)]
AtLeast2 = Annotated[StrictInt, Field(ge=2)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=1)]
# Types that a function validates, with the JSON Schema of the values in the space file.
_DURATION = WithJsonSchema({"type": ["string", "number"], "examples": ["90s", "1h30m"]})
Seconds = Annotated[float, BeforeValidator(value_types.seconds), _DURATION]
HeartbeatTimeout = Annotated[float, BeforeValidator(value_types.heartbeat), _DURATION]
Size = Annotated[
    int,
    BeforeValidator(value_types.size),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[KkMmGgTt]?[Bb]\s*$"}),
]
Concurrency = Annotated[
    int | None,
    BeforeValidator(value_types.auto),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
Causes = Annotated[
    tuple[Annotated[StrictStr, Field(pattern=value_types.CLASS_NAME)], ...],
    value_types.type_check(
        "must be a list whose entries are `lost` or names of exception classes, such as [lost, "
        "ConnectionError]"
    ),
]
Variables = Annotated[
    dict[str, str],
    BeforeValidator(value_types.variables),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer"]}}),
]
Points = Annotated[
    tuple[Any, ...],
    WithJsonSchema({"type": "array", "items": {"type": "object", "minProperties": 1}}),
]
Backend = Annotated[
    str,
    BeforeValidator(value_types.backend),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(value_types.BACKENDS)},
                {"type": "string", "pattern": references.PATTERN},
            ]
        }
    ),
]
ParseRules = Annotated[
    dict[str, str],
    BeforeValidator(value_types.parse_rules),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"enum": list(value_types.NUMBER_RULES)},
                    {"type": "string", "pattern": "%[A-Za-z]|^unit ."},
                    {
                        "type": "object",
                        "properties": {
                            "rule": {
                                "type": "string",
                                "description": "Rule for the texts of the column.",
                            },
                            "other": {
                                "const": "missing",
                                "description": "What becomes of texts that do not fit the rule.",
                            },
                        },
                        "required": ["rule", "other"],
                        "additionalProperties": False,
                    },
                ]
            },
        }
    ),
]
MissingMarkers = Annotated[
    dict[NonEmptyText, tuple[StrictStr | StrictInt | StrictFloat, ...]],
    value_types.type_check(
        "must be a mapping of columns, or '*' for all columns, to lists of texts and numbers, "
        "such as {'*': ['?'], no2: [-200]}"
    ),
]
LabelColumns = Annotated[
    Label | None,
    BeforeValidator(value_types.label),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 2,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]
# The two units that a scheduler can count. With `ROWS`, a step is a part of the train split.
ROWS: Final = "data.rows"
Resource = Literal["step", "data.rows"]
Task = Literal["binary", "multiclass", "regression"]
# The last two are the tasks of several label columns.
AnyTask = Literal[Task, "multilabel", "multioutput"]
