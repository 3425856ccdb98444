"""Parse and validate the space file, and return it as a frozen `Space`.

- yaml: YAML text to nodes with line and column; values as YAML
- model: the parsed space: dimensions, conditions, templates, cells
- sections: a dataclass and a parser for each section of the file
- parse: the whole file, from a path, a dict or a `Space`; its problems and suggestions
- python: what Python scripts pass; the space that is saved in a sweep's folder
- schema: the JSON Schema, for editors
"""

from sweeps.core.best_step import Constraint

from .model.domains import Dimension, Option
from .model.space_model import Space, known_fits
from .model.step_names import Step
from .parse.load_space import load
from .schema.json_schema import schema
from .sections.data_models import DataSpec, Split
from .sections.search_models import (
    InitialPoint,
    Limits,
    Objective,
    Repeats,
    SchedulerSpec,
    Search,
)
from .sections.trainer_spec import TrainerSpec

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
