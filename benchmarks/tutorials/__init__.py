"""The tutorials of Ray, each as a space in sweeps and as the tutorial's own code on today's Ray,
with the same trials.

The spaces are in `search_spaces/tutorials/`. Both sides train the same configurations on the same
rows, one trial at a time, on the same number of workers. The tutorials' own code is ported only
where today's Ray refuses it. The modules in `benchmarks/tutorials/` say what changed. *Whole* is
the time of the whole search, in a Ray that is already running. For sweeps, it is the time of
`sweeps.run`, with the export, the check of the bundle, and the report. For Ray, it is the time to
read the data and of `Tuner.fit`, with a health check of Ray Train every 0.05 s (the default is two
seconds, for which each report may wait). *Best* and *mean* are the values of the metric over the
trials: the logloss on valid, or the AUC for the network.

    python -m benchmarks.tutorials --repeats 1 --trials 2 --side taxi_network-ours \
        --side taxi_network-ray-0
"""

from __future__ import annotations

from benchmarks.common import Goal, Measure, Median, Workload, ratio
from benchmarks.tutorials import boosted_trees, checkpoints, linear, taxi_network, vit

TUTORIALS = tuple(
    tutorial
    for module in (boosted_trees, taxi_network, linear, vit, checkpoints)
    for tutorial in module.TUTORIALS
)


def goals(median: Median) -> list[Goal]:
    """Return the goals: no sweep takes longer than the tutorial's own code."""
    return [
        Goal(
            f"{t.title}: seconds of sweeps over Ray's",
            ratio(median(f"{t.space}-ours", "whole"), median(f"{t.space}-ray-0", "whole")),
            1.0,
        )
        for t in TUTORIALS
    ]


WORKLOAD = Workload(
    name="tutorials",
    title="The tutorials of Ray",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=tuple(side for tutorial in TUTORIALS for side in tutorial.sides()),
    measures=(
        Measure("whole", "whole"),
        Measure("trial", "a trial"),
        Measure("best", "best", ""),
        Measure("mean", "mean", ""),
    ),
    goals=goals,
    reference="",
    timeout=900,
)
