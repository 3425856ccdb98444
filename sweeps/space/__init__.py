"""Parse and validate the space file, and return it as a frozen `Space`.

- nodes, yaml12: YAML text to nodes with line and column; yaml_writer: values as YAML
- section_models, value_types, problems: dataclasses of the sections without dimensions
- domains, option_labels: dimensions: domains, options and their keys
- conditions, when_parser: `when`: whether a dimension is active
- step_names, parameter_checks: the built-in steps; checks of parameters
- templates, enumeration: values that contain dimensions; cells, shapes and combinations
- dimension_parser, chains and the modules `*_section(s)`: one parser for each section
- foreign_syntax, synonyms: words and syntax of other tools, for suggestions
- source, model, load, saved_space: the Space, from a file, a dict or a sweep's folder
- domain_functions and the modules `passed_*`: what Python scripts pass
- json_schema: the JSON Schema, for editors
"""

from sweeps.core.best_step import Constraint
from sweeps.space.domains import Dimension, Option
from sweeps.space.json_schema import schema
from sweeps.space.load import load
from sweeps.space.model import Space, known_fits
from sweeps.space.section_models import (
    DataSpec,
    InitialPoint,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
    Split,
    TrainerSpec,
)
from sweeps.space.step_names import Step

__all__ = [
    "Constraint",
    "DataSpec",
    "Dimension",
    "InitialPoint",
    "Limits",
    "Objective",
    "Option",
    "Repeats",
    "SchedulerSpec",
    "Search",
    "Space",
    "Split",
    "Step",
    "TrainerSpec",
    "known_fits",
    "load",
    "schema",
]
