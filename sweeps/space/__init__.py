"""The space file: what may stand in it, and the frozen Space that the rest of a sweep reads.

nodes, yaml12               text to nodes that know their line and column
keys, values, checks        the sections that are not tuned, a dataclass each; what is wrong with one
domains                     the dimensions: what each domain takes, and from a key to a value
conditions, when            whether a dimension is there; how that is read
steps                       the steps of preprocessing, and Ray's table of them
templates, walks            values that hold dimensions, and filling them; cells, shapes, every way there is
spec, labels                the Space; readable keys for options
tunable, chains, sections   what stands under `space:`: dimensions anywhere, chains of steps, the sections
data                        `data:`, and what of it is tuned
searching, points           how it is searched; configurations to begin with
load                        all of it, and every problem at once
schema                      the same for editors, as JSON Schema
"""

from sweeps.space.domains import Dimension, Option
from sweeps.space.json_schema import schema
from sweeps.space.load import load
from sweeps.space.model import Space, known_fits
from sweeps.space.section_models import (
    Constraint,
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
