"""An artificial space with every kind of dimension, and artificial trials, to test the report."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweeps.core.trial import Result, State
from sweeps.space import Dimension, Space, load
from sweeps.space.sections.search_models import Objective
from sweeps.study.objectives import Objectives
from sweeps.study.states import TrialState
from sweeps.sweep_report.plot_data import PlotData
from tests.study.trial_states import known_trial

SPACE = """\
name: made
trainer: xgboost
data: {train: "sklearn:wine", label: target, valid: 0.25}
objective: {metric: "acc@5", goal: maximize}
scheduler: {name: asha, max_t: 50, grace_period: 5}
limits: {max_trials: 1000}
space:
  preprocessor:
    grid: [none, StandardScaler, [SimpleImputer, MinMaxScaler]]
  scaling: {num_workers: {grid: [1, 2]}}
  params:
    eta: {loguniform: [1e-3, 0.5]}
    depth: {randint: [1, 9]}
    mixed: {choice: [null, true, 1.5, "a_b|c"]}
    normal: {randn: [0, 1]}
    stepped: {qloguniform: [0.1, 1, 0.1]}
    optimizer: {choice: [{name: sgd, momentum: {uniform: [0.1, 0.9]}}, {name: adam}]}
    fixed: 3
"""
RUNGS = (5, 15, 45)


def space_in(folder: Path) -> Space:
    file = folder / "made.yaml"
    file.write_text(SPACE)
    return load(file)


def random_key(dimension: Dimension, rng: random.Random) -> Any:
    """Return a random key of a dimension, as a search would sample it."""
    if dimension.options:
        return rng.choice(dimension.options).key
    if dimension.lower is None or dimension.highest is None:
        return rng.uniform(0.001, 0.999)
    if dimension.is_integer:
        return rng.randint(int(dimension.lower), int(dimension.highest))
    return math.exp(rng.uniform(math.log(dimension.lower), math.log(dimension.highest)))


def trial(
    space: Space,
    number: int,
    state: State = State.COMPLETE,
    curve: Sequence[float] = (0.5,),
    error: str | None = None,
    objectives: Objectives | None = None,
    seconds: float = 1.5,
    **known: Any,
) -> TrialState:
    """Return a trial of this space. Equal arguments give an equal trial.

    Args:
        space: The space.
        number: The trial's number, which also decides the parameters.
        state: State of the trial.
        curve: Values of each metric of the objectives and constraints at the steps 1, 2, ...
        error: Error of a failed trial.
        objectives: Objectives and constraints of the sweep; None for those of the space.
        seconds: Wall time of the trial.
        known: Other arguments of `known_trial`, such as `began`.
    """
    rng, labels = random.Random(number), {}

    def choose(dimension: Dimension) -> Any:
        key = random_key(dimension, rng)
        labels[dimension.name] = key if dimension.options else dimension.value(key)
        return key

    params = space.fill(choose)["params"]
    objectives = objectives or Objectives.from_space(space)
    scaling = {
        "num_workers": labels["scaling.num_workers"],
        "resources_per_worker": {"CPU": 1.0},
    }
    reason = None if state is State.COMPLETE else "asha at step 5"
    return known_trial(
        number,
        objectives,
        Result(state, error=error, reason=reason, seconds=seconds),
        [dict.fromkeys(objectives.reported_metrics, value) for value in curve],
        worker_seconds=2 * seconds,
        params=params,
        labels=labels,
        chain_text=str(labels["preprocessor"]),
        **{"scaling": scaling} | known,
    )


def trials(space: Space, count: int, **known: Any) -> list[TrialState]:
    """Return trials as ASHA leaves them: most were stopped at the first rung, and few reached the
    end.

    Args:
        space: The space.
        count: Number of trials.
        known: Other arguments of `trial`, such as `objectives`.
    """
    states = []
    for number in range(count):
        rng = random.Random(-number)
        steps = rng.choice([5] * 9 + [15] * 4 + [45] * 2 + [50])
        curve = [1 - rng.random() / step for step in range(1, steps + 1)]
        state = State.COMPLETE if steps == 50 else State.PRUNED
        states.append(trial(space, number, state, curve, **known))
    return states


# A stranger's name. In a figure, it is no link, no entity, no formula and no template.
MARKUP = "<a href=//e>&lt;$x$%{y}"
# Two long options that differ only in their middle.
LONG = [f"{'x' * 5000}{n}{'x' * 5000}" for n in (1, 2)]


def marked_space(folder: Path) -> Space:
    """Return a space whose metric, parameters and options have names with markup."""
    text = SPACE.replace('"acc@5"', json.dumps(f"metric {MARKUP}"))
    text = text.replace("    depth:", f"    {json.dumps(f'depth {MARKUP}')}:")
    text = text.replace("    mixed:", f"    {json.dumps(f'mixed {MARKUP}')}:")
    text = text.replace('[null, true, 1.5, "a_b|c"]', json.dumps([None, *LONG, MARKUP]))
    file = folder / "marked.yaml"
    file.write_text(text)
    return load(file)


def marked_data(folder: Path, count: int = 40, metrics: int = 1) -> PlotData:
    """Return the trials of `marked_space`, which also held a resource with such a name."""
    space = marked_space(folder)
    objectives = tuple(Objective(f"{i} {MARKUP}", "maximize") for i in range(metrics))
    states = trials(
        space,
        count,
        objectives=Objectives(objectives),
        scaling={"num_workers": 1, "resources_per_worker": {MARKUP: 1.0}},
        began=1_000_000.0,
        ended=1_000_000.0,
    )
    gains = [{"trial": MARKUP, "value": 0.1, "low": 0.0, "high": 0.2}]
    return PlotData(
        space.dimensions,
        objectives,
        RUNGS,
        tuple(states),
        front=(1, 2),
        new_rows={"trials": gains},
    )
