"""The space file: what may stand in it, and the frozen Space that the rest of a sweep reads.

nodes, yaml12               text to nodes that know their line and column
keys, checks                the sections that are not tuned, a dataclass each; what is wrong with one
domains                     the dimensions: what each domain takes, and from a key to a value
steps                       the steps of preprocessing, and Ray's table of them
spec, labels                the Space: filling, cells, shapes; readable keys for options
tunable, chains, sections   what stands under `space:`: dimensions anywhere, chains of steps, the sections
load                        all of it, and every problem at once
"""

from sweeps.space.domains import Dimension, Option
from sweeps.space.keys import DataSpec, Limits, Objective, Scheduler, Search, Split, TrainerSpec
from sweeps.space.load import load
from sweeps.space.spec import Space, known_chains
from sweeps.space.steps import Step

__all__ = [
    "DataSpec",
    "Dimension",
    "Limits",
    "Objective",
    "Option",
    "Scheduler",
    "Search",
    "Space",
    "Split",
    "Step",
    "TrainerSpec",
    "known_chains",
    "load",
]
