"""The whole plan as text and as JSON. Planning starts nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.plan import plan, render
from sweeps.search.earlier_trials import EarlierSweep
from sweeps.space import load
from sweeps.space.sections.search_models import InitialPoint
from tests import shipped_spaces

SPACES = Path(sweeps.__file__).parent.parent / "search_spaces"

WIDE = """\
preprocessor:
  - SimpleImputer: {strategy: {choice: [mean, most_frequent]}}
  - choice:
    - none
    - PowerTransformer: {power: {uniform: [0.5, 2]}}
scaling:
  num_workers: {randint: [1, 40]}
  use_gpu: {grid: [true, false]}
params:
  objective: {grid: ["binary:logistic", "binary:hinge", \
"an objective of a very long name, which no line can hold to its end"]}
  many: {grid: [1, 2, 3, 4, 5]}
  words: {choice: [alpha, beta, gamma, delta, epsilon, zeta, eta, theta, \
iota, kappa, lambda, mu, nu, xi, omicron, pi, rho, sigma, tau]}
  normal: {qrandn: [0, 1, 0.5]}
  nothing: {choice: [null, true, false]}
"""


def test_the_plan_of_the_quickstart() -> None:
    lines = render(
        plan(load(SPACES / "quickstart.yaml"), {"CPU": 2.0}), machine="--resources"
    ).splitlines()
    assert (
        "\n".join(lines)
        == """\
quickstart on 2 CPU (--resources)

dimensions  preprocessor         grid        StandardScaler, MinMaxScaler
            scaling.num_workers  grid        1, 2
            params.eta           loguniform  0.001 to 0.3
            params.subsample     uniform     0.5 to 1
            params.max_depth     randint     1 to 8

search      gp, chosen by sweeps: one objective, at most 10,000 trials
trials      16 in 4 cells, 4 each

cells       preprocessor    num_workers  trials
            StandardScaler  1                 4
            StandardScaler  2                 4
            MinMaxScaler    1                 4
            MinMaxScaler    2                 4

shapes      1 worker × 1 CPU   8 trials  2 at once
            2 workers × 1 CPU  8 trials  1 at once

at once     at most 2 trials, if each has the smallest shape
data        in memory: it has less than 4 GB
fits        2 preprocessors, each fitted once
steps       at most 800; about 320 in a simulation with random values
            asha decides at steps 5, 15, 45 and ends trials at step 50
trackers    mlflow"""
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(make: Any, width: int) -> None:
    spaces = [load(file) for file in shipped_spaces.loadable()]
    spaces += [
        make(WIDE, trials=200, limits="timeout: 1h"),
        make("params: {a: 1}", trials=1, scheduler="{}"),
    ]
    for space in spaces:
        text = render(plan(space, {"CPU": 64.0, "GPU": 64.0}), width)
        assert max(map(len, text.splitlines())) <= width, text
        assert "\n\n\n" not in text and not any(line.endswith(" ") for line in text.splitlines())


def test_numbers_that_the_sampler_decides_are_shown_as_ranges(make: Any) -> None:
    text = render(plan(make(WIDE, trials=200), {"CPU": 64.0, "GPU": 64.0}))
    for part in (
        "200 in 30 cells (2 use_gpu × 3 objective × 5 many), 6 or 7",
        "up to 95 trials",
        "… 67 more",
        "39 workers × 1 CPU  ",
        "fits        at most 200 preprocessors",
        "mean 0, sd 1, by 0.5",
        "null, true, false",
        "… 19 in all",
    ):
        assert part in text, (part, text)


def test_the_plan_counts_the_configurations_of_a_portfolio(make: Any) -> None:
    space = make("params: {eta: {loguniform: [0.01, 0.5]}, max_depth: {randint: [3, 11]}}")
    space = replace(space, search=replace(space.search, portfolio="xgboost"))
    text = " ".join(render(plan(space, {"CPU": 2.0}), 200).split())
    assert "12; 5 are the default of the trainer and known good ones (xgboost)" in text


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([None], "12; the first is an initial point; then one is suggested"),
        ([(0.5,)], "12; one is suggested"),
        ([(0.5,), None, None], "12; the first 2 are initial points; then one is suggested"),
    ],
)
def test_the_plan_counts_only_initial_points_without_known_results(
    known: Any, expected: str, make: Any
) -> None:
    space = make("params: {eta: {uniform: [0, 1]}}")
    points = tuple(InitialPoint({}, values) for values in known)
    space = replace(space, search=replace(space.search, initial_points=points))
    earlier = (EarlierSweep("earlier", "runs/earlier", ()),)
    text = " ".join(render(plan(space, {"CPU": 2.0}, earlier=earlier), 200).split())
    assert expected in text


def test_the_plan_of_the_smallest_sweep(make: Any) -> None:
    text = render(plan(make("params: {a: 1}", trials=1, scheduler="{}"), {"CPU": 2.0}))
    assert "none: trials differ only in their seeds" in text
    assert "unlimited: there is no scheduler.max_t" in text
    assert "none: no preprocessing" in text
    assert "\ncells" not in text


def test_the_plan_names_a_limit_above_what_fits(make: Any) -> None:
    text = render(plan(make("params: {a: 1}", limits="max_concurrent_trials: 9"), {"CPU": 2.0}))
    assert "at once     9 trials (limits.max_concurrent_trials); 2 fit, the others wait" in text


def test_a_grid_inside_a_choice_makes_the_counts_approximate(make: Any) -> None:
    text = render(
        plan(
            make(
                "params:\n  a:\n    choice:\n      - {b: {grid: [1, 2]}}\n"
                "      - 3\n  eta: {uniform: [0, 1]}"
            ),
            {"CPU": 2.0},
        )
    )
    assert "12 in 2 cells, 6 each, approximately: a grid inside a choice" in text


@pytest.mark.parametrize("scheduler", ["{name: asha, max_t: 9}", "{name: none, max_t: 9}", "{}"])
def test_the_plan_as_json_is_plain_data(make: Any, scheduler: str) -> None:
    planned = plan(make(WIDE, trials=200, scheduler=scheduler), {"CPU": 64.0, "GPU": 64.0})
    plan_json = json.loads(json.dumps(planned.to_json(), allow_nan=False))
    assert plan_json["trials"] == sum(cell["trials"] for cell in plan_json["cells"]) == 200
    assert [d["name"] for d in plan_json["dimensions"]] == [
        d.name for d in planned.space.dimensions
    ]
    assert len(plan_json["shapes"]) == len(planned.space.shapes)
    assert (plan_json["steps"] is None) is (scheduler == "{}")


@pytest.mark.parametrize(
    "scheduler, trials, shapes, steps",
    [
        (
            "{name: none, max_t: 9}",
            "12 in 2 cells, 6 each; each complete trial is run 3 times, at most 36 trials in all",
            "18",
            "at most 324",
        ),
        (
            "{name: asha, max_t: 9, grace_period: 3}",
            "run 3 times, at most 36 trials in all",
            "18",
            "at most 324",
        ),
        ("{}", "36 trials in all", "18", "unlimited"),
    ],
)
def test_repeats_are_in_every_figure(
    make: Any, scheduler: str, trials: str, shapes: str, steps: str
) -> None:
    planned = plan(
        make(
            "scaling: {num_workers: {grid: [1, 2]}}\nparams: {eta: {uniform: [0, 1]}}",
            repeats=3,
            scheduler=scheduler,
        ),
        {"CPU": 8.0},
    )
    text = " ".join(render(planned, 200).split())
    for part in (
        trials,
        f"2 workers × 1 CPU {shapes} trials",
        steps,
    ):
        assert part in text, (part, text)
    assert planned.to_json()["repeats"] == 24 and planned.to_json()["trials"] == 12


def test_the_plan_starts_nothing(tmp_path: Path) -> None:
    code = f"""\
import os, sys
from pathlib import Path
from sweeps.core.host.host_resources import detect
from sweeps.plan import plan, render
from sweeps.space import load
for file in {[str(f) for f in shipped_spaces.loadable()]!r}:
    made = plan(load(file), {{**detect(), 'CPU': 8.0}})
    assert render(made) and made.to_json()
heavy = {{'ray', 'torch', 'mlflow', 'numpy', 'pandas', 'pyarrow', 'sklearn', 'optuna', 'xgboost'}} \
& set(sys.modules)
assert not heavy, heavy
assert not [name for name in sys.modules if name.startswith('sweeps.trainers')]
tasks = Path('/proc/self/task')
assert not any((task / 'children').read_text().strip() for task in tasks.iterdir()) \
if tasks.exists() else True
assert sum(os.times()[:2]) < 2, os.times()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_space_without_data(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        'trainer: {loop: "json:dumps"}\nobjective: {metric: m, goal: minimize}\n'
        "space: {params: {x: {grid: [1, 2, 3]}}}\n"
    )
    planned = plan(load(file), {"CPU": 2.0})
    assert (planned.trials, planned.variants, planned.fits.most) == (3, 1, 0)
    assert "preprocessing" in render(planned)


def test_a_sampler_without_dimensions_says_so(make: Any) -> None:
    assert "which has nothing to choose: no dimension is tuned" in render(
        plan(make("params: {a: 1}", trials=3), {"CPU": 4.0})
    )
