"""Every problem of a space file, each at its line and column, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.bad_input import names_of
from tests.space.conftest import HEAD
from tests.space.test_load import data, top

BAD_TOP = [
    (top(name="2019"), "4:7", "name: must be text, got 2019; put quotes around it"),
    (top(nmae="x"), "4:1", "nmae: unknown key; did you mean `name`?"),
    (top(zzz="1"), "4:1", "zzz: unknown key; valid: name, trainer, data"),
    (
        top(when="x"),
        "4:1",
        (
            "when: unknown key; write `when` beside a domain: {uniform: [0, 1], when: "
            "{params.booster: dart}}"
        ),
    ),
    (top(trainer="../x"), "1:10", "`../x` is neither a built-in trainer"),
    (top(trainer="__init__"), "1:10", "`__init__` is neither a built-in trainer"),
    (
        top(trainer="{loop: no_mod:train}"),
        "1:17",
        "trainer.loop: `no_mod:train`: no module `no_mod`",
    ),
    (
        top(trainer="{loop: json:lod}"),
        "1:17",
        "trainer.loop: `json:lod`: `json` has no `lod`; did you mean `load`?",
    ),
    (top(trainer="{loop: json}"), "1:17", "`json` is not a reference; write `module:attr`"),
    (top(trainer="{loop: json:load, load: json:lod}"), "1:34", "trainer.load: `json:lod`"),
    (
        top(trainer="{loop: json:load, backend: 'json:Config'}"),
        "1:37",
        "trainer.backend: `json:Config`: `json` has no `Config`; valid: ",
    ),
    (
        top(trainer="{loop: json:load, backend: 'a b:c'}"),
        "1:37",
        "`a b:c` is not a reference; write `module:attr`",
    ),
    (
        top(
            trainer="{loop: json:load, backend: jax}",
            space="{scaling: {num_workers: {grid: [1, 2]}}}",
        ),
        "4:18",
        "whole GPUs or TPUs, but the shape 2 workers × 1 CPU has none; give each worker a GPU "
        "with `use_gpu: true`, or "
        "set num_workers to 1",
    ),
    (top(trainer="{backend: torch}"), "1:1", "trainer.loop: is required; give a reference"),
    (top(data="d.csv"), "2:7", "data: must be a mapping with keys train, valid"),
    (top(data="{train: json:lod, valid: 0.2, label: y}"), "2:15", "data.train: `json:lod`"),
    (data("valid: {colum: a, value: b}"), "2:29", "got {colum: a, value: b}"),
    (data("valid: {column: a}"), "2:22", "data.valid.value: is required"),
    (
        data("valid: {column: a, value: [b]}"),
        "2:48",
        "data.valid.value: must be a single value of the column, not a list or a mapping, got [b]",
    ),
    (
        data("valid: {time: a, last: 2}"),
        "2:45",
        "data.valid.last: must be a number greater than 0 and less than 1, got 2",
    ),
    (
        data("valid: {time: a, lst: 2, last: 0.1}"),
        "2:39",
        "data.valid.lst: unknown key; did you mean `last`?",
    ),
    (data("valid: 0.2, groups: q"), "2:34", "data.groups: unknown key; use `data.group`"),
    (
        data("valid: 0.2, group: 3"),
        "2:41",
        "data.group: must be",
    ),
    (data("valid: {uniform: [0.1, 0.2]}"), "2:30", "data.valid: cannot be tuned (`uniform`)"),
    (data("valid: v.csv, test: v.csv"), "2:42", "data.test: has the same rows as valid"),
    (data("valid: 0.2, tets: 0.1"), "2:34", "data.tets: unknown key; did you mean `test`?"),
    (
        top(objective="{metric: m, goal: minimise}"),
        "3:30",
        "got minimise; did you mean `minimize`?",
    ),
    (
        top(search="{algorithm: hyperopt}"),
        "4:21",
        f"search.algorithm: must be {names_of('sampler', 'auto')}, got hyperopt",
    ),
    (
        top(search="tpe"),
        "4:9",
        (
            "search: must be a mapping with keys algorithm, seed, options, initial_points, from, "
            "portfolio, got tpe"
        ),
    ),
    (
        top(scheduler="{name: bohb}"),
        "4:19",
        f"scheduler.name: must be {names_of('scheduler')}, got bohb",
    ),
    (
        top(scheduler="{name: asha, max_t: 3, grace_period: 4}"),
        "4:49",
        "scheduler.grace_period: must be at most max_t, 3, got 4",
    ),
    (
        top(limits="{max_trils: 8}"),
        "4:10",
        "limits.max_trils: unknown key; did you mean `max_trials`?",
    ),
    (top(space="3"), "4:8", "space: must be a mapping with sections"),
    (
        top(space="{data: {}}"),
        "4:9",
        "space.data: unknown section; `data` is a section at the top of the file",
    ),
    (top(space="{when: {}}"), "4:9", "space.when: unknown section; write `when` beside a domain"),
    (
        top(limits="{max_trials: 3}", space="{params: {a: {grid: [1, 2]}, b: {grid: [1, 2]}}}"),
        "4:22",
        "limits.max_trials: must be at least the number of grid cells, 4, got 3",
    ),
    (
        top(
            search="{algorithm: grid}",
            limits="{max_trials: 3}",
            space="{params: {a: {choice: [1, 2]}}}",
        ),
        "4:21",
        (
            "search.algorithm: grid search allows only `grid` dimensions, but these are sampled: "
            "params.a"
        ),
    ),
]

# under `space:`, which is line 5 of the file, so that the first line here is line 6 and begins in
# column 3
BAD_SPACE = [
    (
        "params:\n  eta:\n    loguniform: [0.1, true]",
        "8:25",
        "params.eta: loguniform [lower, upper]: upper must be a number",
    ),
    (
        "params: {layers: {grid: [{a: 1, b: 2}, {b: 2, a: 1}]}}",
        "6:42",
        "same option twice: {b: 2, a: 1}",
    ),
    (
        "params: {eta: {uniform: [0, 1], when: {a: b}}}",
        "6:42",
        "params.eta: `when` names an unknown dimension: `a`",
    ),
    ("preprocessor: Chain", "6:17", "leave this step out, because a list of steps is a chain"),
    (
        "preprocessor: {StandardScaler: [a]}",
        "6:34",
        "preprocessor.StandardScaler: parameters must be a mapping, got [a]",
    ),
    (
        "preprocessor: {grid: [StandardScaler, [StandardScaler]]}",
        "6:41",
        "grid has the same option twice: [StandardScaler]",
    ),
    (
        "preprocessor: {grid: [StandardScaler, Standardscaler]}",
        "6:41",
        "preprocessor.grid.1: `Standardscaler` is neither a built-in step",
    ),
    (
        "preprocessor: {gridd: [StandardScaler]}",
        "6:18",
        "unknown domain `gridd`; did you mean `grid`?",
    ),
    ("preprocessor: {PowerTransformer: {}}", "6:18", "`power` is required by PowerTransformer"),
    (
        "preprocessor: json:lod",
        "6:17",
        "preprocessor: `json:lod`: `json` has no `lod`; did you mean `load`?",
    ),
    (
        "preprocessor: {StandardScaler: {columns: 3}}",
        "6:44",
        "must be numeric, categorical, all, a pattern or a list of names, got 3",
    ),
    ("preprocessor: {StandardScaler: {columns: []}}", "6:44", "must be numeric, categorical, all"),
    (
        "preprocessor: {StandardScaler: {columns: {randint: [0, 1]}}}",
        "6:44",
        "must be a constant, a grid or a choice, not randint",
    ),
    (
        "scaling: 2",
        "6:12",
        "scaling: must be a mapping with keys num_workers, use_gpu, resources_per_worker, got 2",
    ),
    ("scaling: {workers: 2}", "6:13", "scaling.workers: unknown key; did you mean `num_workers`?"),
    (
        "scaling: {num_workers: {randint: [1, 99999]}}",
        "6:3",
        "scaling: makes more than 10000 combinations",
    ),
    (
        "scaling: {num_workers: {grid: [1], choice: [2]}}",
        "6:38",
        "two domains in one mapping: grid, choice",
    ),
    (
        "scaling: {num_workers: {elastic: [0, 3]}}",
        "6:37",
        "elastic needs a list [lower, upper]: each bound must be an integer of at least 1",
    ),
    (
        "scaling: {num_workers: {elastic: [1, 2.5]}}",
        "6:40",
        "each bound must be an integer of at least 1 and at most 1000000, got 2.5",
    ),
    (
        "scaling: {num_workers: {elastic: [1]}}",
        "6:36",
        "elastic needs a list [lower, upper] with two numbers of workers, got [1]",
    ),
    (
        "scaling: {num_workers: {elastic: {grid: [1, 2]}}}",
        "6:36",
        "with two numbers of workers, got {grid: [1, 2]}",
    ),
    (
        "scaling: {num_workers: {elastic: [1, 2], most: 3}}",
        "6:27",
        "`elastic` must be the only key of its mapping; the mapping also has: most",
    ),
    (
        "scaling: {num_workers: [1, 4]}",
        "6:26",
        "for a number that may change while a trial runs, write {elastic: [1, 4]}",
    ),
]


@pytest.mark.parametrize(
    ("text", "place", "piece"), BAD_TOP, ids=[f"{piece[:50]}" for _, _, piece in BAD_TOP]
)
def test_one_problem_at_the_top(lines: Any, text: str, place: str, piece: str) -> None:
    (line,) = lines(text)
    assert line.startswith(place + ": ") and piece in line


@pytest.mark.parametrize(
    ("body", "place", "piece"), BAD_SPACE, ids=[f"{piece[:50]}" for _, _, piece in BAD_SPACE]
)
def test_one_problem_under_space(lines: Any, body: str, place: str, piece: str) -> None:
    body = "".join(f"  {line}\n" for line in body.splitlines())
    (only_line,) = lines(f"{HEAD}limits: {{max_trials: 99}}\nspace:\n{body}")
    assert only_line.startswith(place + ": ") and piece in only_line


def test_all_problems_at_once_in_the_order_of_the_file(lines: Any) -> None:
    problems = lines(
        "trainer: xgbost\n"
        "data: {train: sklearn:irs, valid: 2, tets: 0.1}\n"
        "objective: {goal: min}\n"
        "scheduler: {name: asha, max_t: {grid: [1]}, reduction_factor: 1}\n"
        "limts: {}\n"
        "space:\n"
        "  params:\n"
        "    eta: {loguniform: [0, true]}\n"
        "    depth: {randint: [3, 3]}\n"
        "  preprocessor: [Foo, {SimpleImputer: {strateg: mean}}]\n"
        "  scaling: {num_workers: 0, cpus: 1}\n",
        "limits.max_trials=0",
        "search.sed=1",
        "nonsense",
        "search.seed=[1",
    )
    # what cannot be read stops all else: first the overrides that are none
    assert [line.partition(": ")[0] for line in problems] == [
        "--set search.seed=[1",
        "--set nonsense",
    ]
    problems = lines(Path("space.yaml").read_text(), "limits.max_trials=0", "search.sed=1")
    assert [line.split(": ")[0] for line in problems] == [
        *("1:10", "2:15", "2:35", "2:38", "3:1", "3:19", "4:33", "4:63", "5:1", "8:27", "9:13"),
        *("10:18", "10:40", "11:26", "11:29", "--set limits.max_trials=0", "--set search.sed=1"),
    ]
