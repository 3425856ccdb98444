"""Every problem of a space file, each at its line and column, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.load import Recorded
from tests.bad_input import names_of
from tests.space.conftest import HEAD
from tests.space.test_load import data, top

BAD_TOP = [
    (top(name="2019"), "4:7", "name: must be text, got 2019; put quotes around it"),
    (top(name="a/b"), "4:7", "name: must have 1 to 100 characters"),
    (top(name=".."), "4:7", "not begin with - or ."),
    (top(name="{choice: [a, b]}"), "4:8", "name: cannot be tuned (`choice`)"),
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
    (top(trainer=None), "1:1", "trainer: is required; give "),
    (
        top(trainer="xgbost"),
        "1:10",
        (
            "`xgbost` is neither a built-in trainer nor a mapping {loop: module:attr}; did you "
            "mean "
            "`xgboost`?"
        ),
    ),
    (top(trainer="../x"), "1:10", "`../x` is neither a built-in trainer"),
    (top(trainer="__init__"), "1:10", "`__init__` is neither a built-in trainer"),
    (
        top(trainer="my_mod:train"),
        "1:10",
        "trainer: `my_mod:train` is a loop, not a trainer's name; write {loop: my_mod:train}",
    ),
    (top(trainer="3"), "1:10", "trainer: must be a name or a mapping"),
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
        top(trainer="{loop: json:load, backend: gloo}"),
        "1:37",
        "must be torch, xgboost, lightgbm, tensorflow, jax, none or",
    ),
    (
        top(trainer="{loop: json:load, backend: Horovod}"),
        "1:37",
        "works only with a worker group that Ray has removed, got Horovod",
    ),
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
    (
        top(trainer="{grid: [xgboost]}"),
        "1:11",
        "trainer: cannot be tuned (`grid`); only values under `space:` can be tuned",
    ),
    (top(data="d.csv"), "2:7", "data: must be a mapping with keys train, valid"),
    (
        top(data="{train: d.csv, label: y}"),
        "2:1",
        (
            "data.valid: is required; give a fraction such as 0.2 (for whole groups, use "
            "`data.group`), a path, {column"
        ),
    ),
    (top(data="{valid: 0.2, label: y}"), "2:1", "data.train: is required; give a path, a glob"),
    (
        top(data="{train: 3, valid: 0.2, label: y}"),
        "2:15",
        "data.train: must be a path, a glob, a URI, sklearn:NAME or module:function, got 3",
    ),
    (
        top(data="{train: '', valid: 0.2, label: y}"),
        "2:15",
        "data.train: must be a path, a glob, a URI, sklearn:NAME or module:function",
    ),
    (
        top(data="{train: sklearn:irs, valid: 0.2, label: y}"),
        "2:15",
        "scikit-learn has no data set `irs`; did you mean `iris`?",
    ),
    (top(data="{train: json:lod, valid: 0.2, label: y}"), "2:15", "data.train: `json:lod`"),
    (
        top(data="{train: a, valid: 0.2, label: {grid: [a, b]}}"),
        "2:38",
        "data.label: cannot be tuned (`grid`)",
    ),
    (data("valid: 1.5"), "2:29", "data.valid: a fraction must be above 0 and below 1, got 1.5"),
    (data("valid: 0"), "2:29", "above 0 and below 1, got 0"),
    (data("valid: true"), "2:29", "data.valid: must be a fraction such as 0.2"),
    (data("valid: '0.2'"), "2:29", "got '0.2' (text); write it without quotes"),
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
    (
        data("valid: {group: a, part: 0.1}"),
        "2:29",
        "data.valid: must be a fraction such as 0.2 (for whole groups, use `data.group`), a path",
    ),
    (data("valid: 0.2, groups: q"), "2:34", "data.groups: unknown key; use `data.group`"),
    (
        data("valid: 0.2, group: 3"),
        "2:41",
        "data.group: must be",
    ),
    (data("valid: {uniform: [0.1, 0.2]}"), "2:30", "data.valid: cannot be tuned (`uniform`)"),
    (
        data("valid: 0.6, test: 0.4"),
        "2:40",
        "data.test: valid and test leave no rows to train on: 0.6 + 0.4",
    ),
    (data("valid: v.csv, test: v.csv"), "2:42", "data.test: has the same rows as valid"),
    (data("valid: 0.2, label: 3"), "2:41", "data.label: must be text; put quotes around it, got 3"),
    (
        data("valid: 0.2, task: multi"),
        "2:40",
        "must be binary, multiclass or regression, got multi; did you mean `multiclass`?",
    ),
    (data("valid: 0.2, tets: 0.1"), "2:34", "data.tets: unknown key; did you mean `test`?"),
    (top(objective="{metric: m}"), "3:1", "objective.goal: is required; give minimize or maximize"),
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
        top(search="{seed: -1}"),
        "4:16",
        "search.seed: must be an integer of at least 0 and less than 4294967296, got -1",
    ),
    (
        top(search="{seed: 1.0}"),
        "4:16",
        "search.seed: must be an integer of at least 0 and less than 4294967296, got 1.0",
    ),
    (
        top(search="{seed: true}"),
        "4:16",
        "search.seed: must be an integer of at least 0 and less than 4294967296, got true",
    ),
    (
        top(search="{seed: 4294967296}"),
        "4:16",
        "search.seed: must be an integer of at least 0 and less than 4294967296, got",
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
        top(scheduler="{name: asha}"),
        "4:1",
        "scheduler.max_t: is required; set max_t to the step at which a trial ends",
    ),
    (
        top(scheduler="{name: bohb}"),
        "4:19",
        f"scheduler.name: must be {names_of('scheduler')}, got bohb",
    ),
    (top(scheduler="{max_t: 3}"), "4:1", "scheduler.name: is required; give none, asha"),
    (
        top(scheduler="{name: asha, max_t: 3, grace_period: 4}"),
        "4:49",
        "scheduler.grace_period: must be at most max_t, 3, got 4",
    ),
    (
        top(scheduler="{name: asha, max_t: 3, reduction_factor: 1}"),
        "4:53",
        "reduction_factor: must be an integer of at least 2, got 1",
    ),
    (
        top(limits="{max_trials: 0}"),
        "4:22",
        "limits.max_trials: must be an integer of at least 1, got 0",
    ),
    (
        top(limits="{max_trials: '8'}"),
        "4:22",
        "limits.max_trials: must be an integer of at least 1, got '8'",
    ),
    (top(limits="{timeout: 30 minutes}"), "4:19", "must be a time above 0 such as 90s, 30m, 1h30m"),
    (top(limits="{timeout: 1:30}"), "4:19", "limits.timeout: must be a time"),
    (top(limits="{timeout: 0s}"), "4:19", "limits.timeout: must be a time above 0"),
    (top(limits="{timeout: true}"), "4:19", "limits.timeout: must be a time"),
    (
        top(limits="{max_concurrent_trials: many}"),
        "4:33",
        "must be `auto` or an integer of at least 1, got many",
    ),
    (
        top(limits="{max_failures: -1}"),
        "4:24",
        "limits.max_failures: must be an integer of at least 0, got -1",
    ),
    (
        top(limits="{max_trials: {grid: [1, 2]}}"),
        "4:23",
        "limits.max_trials: cannot be tuned (`grid`)",
    ),
    (
        top(limits="{max_trils: 8}"),
        "4:10",
        "limits.max_trils: unknown key; did you mean `max_trials`?",
    ),
    (top(space="3"), "4:8", "space: must be a mapping with sections"),
    (top(space="{grid: [1]}"), "4:9", "space.grid: unknown section"),
    (
        top(space="{data: {}}"),
        "4:9",
        "space.data: unknown section; `data` is a section at the top of the file",
    ),
    (top(space="{parms: {}}"), "4:9", "space.parms: unknown section; did you mean `params`?"),
    (top(space="{when: {}}"), "4:9", "space.when: unknown section; write `when` beside a domain"),
    (
        top(space="{params: {eta: {uniform: [0, 1]}}}"),
        "1:1",
        "limits.max_trials: is required, because params.eta is sampled",
    ),
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
    (
        top(space="{params: {" + ", ".join(f"p{i}: {{grid: [1, 2]}}" for i in range(40)) + "}}"),
        "4:1",
        "the grids make more than 100000 cells",
    ),
]

# under `space:`, which is line 5 of the file, so that the first line here is line 6 and begins in
# column 3
BAD_SPACE = [
    (
        "params:\n  eta: {loguniform: [0, 0.1]}",
        "7:11",
        "params.eta: loguniform needs 0 < lower < upper, got [0, 0.1]",
    ),
    (
        "params:\n  eta:\n    loguniform: [0.1, true]",
        "8:25",
        "params.eta: loguniform [lower, upper]: upper must be a number",
    ),
    (
        "params: {n: {randint: [3, 3]}}",
        "6:16",
        "params.n: randint needs lower < upper (upper is excluded), got [3, 3]",
    ),
    (
        "params: {eta: {uniform: {lower: 0}}}",
        "6:18",
        "params.eta: uniform needs a list [lower, upper], got {lower: 0}",
    ),
    (
        "params: {eta: {uniform: }}",
        "6:18",
        "params.eta: uniform needs a list [lower, upper], got null",
    ),
    (
        "params: {eta: {loguniforn: [1e-4, 1]}}",
        "6:18",
        "params.eta: unknown domain `loguniforn`; did you mean `loguniform`?",
    ),
    (
        "params: {eta: {grid_search: [1, 2]}}",
        "6:18",
        "unknown domain `grid_search`; did you mean `grid`?",
    ),
    (
        "params: {eta: {grid: []}}",
        "6:18",
        "params.eta: grid needs a list with at least one option, got an empty list",
    ),
    (
        "params: {eta: {choice: 3}}",
        "6:18",
        "params.eta: choice needs a list with at least one option, got 3",
    ),
    (
        "params: {eta: {choice: [1, 2, 1.0]}}",
        "6:33",
        "params.eta: choice has the same option twice: 1.0 (options 1 and 3)",
    ),
    (
        "params: {layers: {grid: [{a: 1, b: 2}, {b: 2, a: 1}]}}",
        "6:42",
        "same option twice: {b: 2, a: 1}",
    ),
    (
        "params: {eta: {uniform: [0, 1], choice: [1]}}",
        "6:35",
        "two domains in one mapping: uniform, choice",
    ),
    (
        "params: {eta: {quniform: [0, 1], q: 0.1}}",
        "6:18",
        "`quniform` must be the only key of its mapping; the mapping also has: q",
    ),
    (
        "params: {eta: {uniform: [0, 1], when: {a: b}}}",
        "6:42",
        "params.eta: `when` names an unknown dimension: `a`",
    ),
    ("params: {a: [1, {uniform: [1, 0]}]}", "6:20", "params.a.1: uniform needs lower < upper"),
    (
        "params: {a: {grid: [1, {uniform: [1, 0]}]}}",
        "6:27",
        "params.a.grid.1: uniform needs lower < upper",
    ),
    ("params: 3", "6:11", "params: must be a mapping such as {eta: 0.1}, got 3"),
    (
        "params: {uniform: [0, 1]}",
        "6:11",
        "params: must be a constant, a grid or a choice, not uniform",
    ),
    ("params: {grid: [3]}", "6:19", "params.grid.0: must be a mapping such as {eta: 0.1}, got 3"),
    ("params: {1: 2}", "6:12", "params.1: the name of a parameter must be text"),
    (
        "preprocessor: StandardScalr",
        "6:17",
        (
            "`StandardScalr` is neither a built-in step nor a reference module:attr; did you mean "
            "`StandardScaler`?"
        ),
    ),
    ("preprocessor: Chain", "6:17", "leave this step out, because a list of steps is a chain"),
    ("preprocessor: 3", "6:17", "preprocessor: a step must be a name or `{Name: {...}}`, got 3"),
    ("preprocessor: [[StandardScaler]]", "6:18", "preprocessor.0: a step must be a name or"),
    (
        "preprocessor: {StandardScaler: {column: all}}",
        "6:35",
        "unknown parameter of StandardScaler; did you mean `columns`?",
    ),
    (
        "preprocessor: {StandardScaler: [a]}",
        "6:34",
        "preprocessor.StandardScaler: parameters must be a mapping, got [a]",
    ),
    (
        "preprocessor: {StandardScaler: , MinMaxScaler: }",
        "6:17",
        "write each step as a separate entry of a list",
    ),
    (
        "preprocessor:\n  - StandardScaler:\n    columns: all",
        "7:7",
        "indent its parameters under its name",
    ),
    (
        "preprocessor: {uniform: [0, 1]}",
        "6:17",
        "preprocessor: must be a constant, a grid or a choice, not uniform",
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
        "preprocessor: {StandardScaler: {columns: [a, 3]}}",
        "6:48",
        "columns.1: a column's name must be text, got 3; put quotes around it",
    ),
    (
        "preprocessor: {StandardScaler: {columns: {randint: [0, 1]}}}",
        "6:44",
        "must be a constant, a grid or a choice, not randint",
    ),
    (
        "preprocessor: {SimpleImputer: {strategy: {choice: []}}}",
        "6:45",
        "preprocessor.SimpleImputer.strategy: choice needs a list",
    ),
    (
        "preprocessor: {StandardScaler: {when: 3}}",
        "6:35",
        "preprocessor.StandardScaler: `when` is allowed only beside a domain",
    ),
    (
        "scaling: 2",
        "6:12",
        "scaling: must be a mapping with keys num_workers, use_gpu, resources_per_worker, got 2",
    ),
    ("scaling: {workers: 2}", "6:13", "scaling.workers: unknown key; did you mean `num_workers`?"),
    (
        "scaling: {num_workers: 0}",
        "6:26",
        "scaling.num_workers: must be an integer of at least 1 and at most 1000000, got 0",
    ),
    (
        "scaling: {num_workers: true}",
        "6:26",
        "must be an integer of at least 1 and at most 1000000, got true",
    ),
    (
        "scaling: {num_workers: {grid: [1, 0]}}",
        "6:37",
        "scaling.num_workers.grid.1: must be an integer of at least 1 and at most 1000000, got 0",
    ),
    (
        "scaling: {num_workers: {grid: [1, {choice: [2, two]}]}}",
        "6:50",
        "num_workers.grid.1.choice.1: must be an integer",
    ),
    (
        "scaling: {num_workers: {uniform: [1, 2]}}",
        "6:26",
        "must be a constant, a grid, a choice or a range of integers",
    ),
    (
        "scaling: {num_workers: {randint: [0, 3]}}",
        "6:26",
        "scaling.num_workers: must be an integer of at least 1",
    ),
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
        "scaling: {num_workers: {elastic: [3, 2]}}",
        "6:36",
        "the upper bound must be greater than the lower bound, got [3, 2]",
    ),
    (
        "scaling: {num_workers: {elastic: [2, 2]}}",
        "6:36",
        "for a fixed number of workers, write `num_workers: 2`",
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
        "scaling: {num_workers: {choice: [1, {elastic: [2, 1]}]}}",
        "6:49",
        "scaling.num_workers.choice.1: elastic needs a list",
    ),
    (
        "scaling: {num_workers: [1, 4]}",
        "6:26",
        "for a number that may change while a trial runs, write {elastic: [1, 4]}",
    ),
    ("scaling: {use_gpu: maybe}", "6:22", "scaling.use_gpu: must be true or false, got maybe"),
    (
        "scaling: {use_gpu: {randint: [0, 2]}}",
        "6:22",
        "must be true or false, got {randint: [0, 2]}",
    ),
    (
        "scaling: {resources_per_worker: {CPU: -1}}",
        "6:41",
        "CPU: must be a number of at least 0 and at most 1000000000000000, got -1",
    ),
    ("scaling: {resources_per_worker: {cpu: 1}}", "6:36", "unknown resource; did you mean `CPU`?"),
    (
        "scaling: {resources_per_worker: {CPU: {uniform: [0, 1]}}}",
        "6:41",
        "must be a constant, a grid, a choice or a range",
    ),
    (
        "scaling: {grid: [{num_workers: 0}]}",
        "6:34",
        "scaling.grid.0.num_workers: must be an integer of at least 1",
    ),
]


@pytest.mark.parametrize(
    ("text", "place", "piece"), BAD_TOP, ids=[f"{piece[:50]}" for _, _, piece in BAD_TOP]
)
def test_one_problem_at_the_top(lines, text: str, place: str, piece: str) -> None:
    (found,) = lines(text)
    assert found.startswith(place + ": ") and piece in found


@pytest.mark.parametrize(
    ("body", "place", "piece"), BAD_SPACE, ids=[f"{piece[:50]}" for _, _, piece in BAD_SPACE]
)
def test_one_problem_under_space(lines, body: str, place: str, piece: str) -> None:
    body = "".join(f"  {line}\n" for line in body.splitlines())
    (found,) = lines(f"{HEAD}limits: {{max_trials: 99}}\nspace:\n{body}")
    assert found.startswith(place + ": ") and piece in found


def test_all_problems_at_once_in_the_order_of_the_file(lines) -> None:
    found = lines(
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
    assert [line.partition(": ")[0] for line in found] == ["--set search.seed=[1", "--set nonsense"]
    found = lines(Path("space.yaml").read_text(), "limits.max_trials=0", "search.sed=1")
    assert [line.split(": ")[0] for line in found] == [
        *("1:10", "2:15", "2:35", "2:38", "3:1", "3:19", "4:33", "4:63", "5:1", "8:27", "9:13"),
        *("10:18", "10:40", "11:26", "11:29", "--set limits.max_trials=0", "--set search.sed=1"),
    ]


@pytest.mark.parametrize(
    ("trainer", "place"),
    [
        ('"xgboost:XGBClassifier"', "1:10: trainer: `xgboost:XGBClassifier`"),
        (
            '{loop: "xgboost:XGBClassifier", backend: torch}',
            "1:17: trainer.loop: `xgboost:XGBClassifier`",
        ),
        ('{loop: "sklearn.svm:SVC"}', "1:17: trainer.loop: `sklearn.svm:SVC`"),
    ],
)
def test_an_estimator_is_no_loop(lines, trainer: str, place: str) -> None:
    (found,) = lines(top(trainer=trainer))
    assert found.startswith(
        f"{place} is an estimator, not a training loop; write trainer: {{estimator: "
    )


def test_a_module_of_the_users_may_have_a_librarys_name(write) -> None:
    path = write(top(trainer="{loop: catboost:train}"))
    Path("catboost.py").write_text("def train(config): ...\n")
    assert load(path).trainer.loop == "catboost:train"


def test_a_space_is_required(lines, write) -> None:
    for space, place in ((None, "1:1"), ("", "4:1"), ("{}", "4:1")):
        (found,) = lines(top(space=space))
        assert found.startswith(f"{place}: space: ")
    assert load(
        write(top(data="{train: {grid: [a.csv, b.csv]}, valid: 0.2, label: y}", space=None))
    ).dimensions


def test_a_trainer_may_need_a_label(lines, write) -> None:
    unlabeled = "{train: d.csv, valid: 0.2}"
    for trainer in ("xgboost", "torch_tabular"):
        (found,) = lines(top(trainer=trainer, data=unlabeled))
        assert found.startswith("2:1: data.label: ") and f"`{trainer}`" in found
    path = write(top(trainer="{loop: own_loop:train}", data=unlabeled))
    Path("own_loop.py").write_text("raise SystemExit('imported')\ndef train(config): ...\n")
    assert load(path).data.label is None
    path = write(top(trainer="{loop: needy_loop:train}", data=unlabeled))
    Path("needy_loop.py").write_text(
        "raise SystemExit('imported')\nTRAINER = {'needs_label': True}\ndef train(config): ...\n"
    )
    with pytest.raises(InputError) as e:
        load(path)
    assert [p.text.partition(":")[0] for p in e.value.problems] == ["data.label"]
    assert load(path, recorded=Recorded("tpe")).data.label is None


def test_rows_without_a_label_are_left_out_only_beside_a_label(lines) -> None:
    (found,) = lines(
        top(
            trainer="{loop: json:load}", data="{train: d.csv, valid: 0.2, drop_missing_label: true}"
        )
    )
    assert found.startswith("2:34: data.drop_missing_label: ") and "`data.label`" in found
    (found,) = lines(data("valid: 0.2, drop_missing_label: yes"))
    assert found.startswith("2:54: data.drop_missing_label: must be true or false, got yes")


def test_weights_are_refused_for_a_trainer_that_does_not_use_them(write, lines) -> None:
    for key in ("weight: w", "weight: {grid: [w, null]}", "class_weight: balanced"):
        given = top(
            data="{train: d.csv, label: y, valid: 0.2, " + key + "}",
            space="{params: {a: {grid: [1]}}}",
            trainer="TRAINER",
        )
        path = write(given.replace("TRAINER", "own_trainer"))
        Path("own_trainer.py").write_text(
            "TRAINER = {'metrics': {'binary': ['logloss']}}\ndef train_func(config): ...\n"
        )
        with pytest.raises(InputError) as e:
            load(path)
        (found,) = e.value.problems
        assert found.text.startswith(
            f"data.{key.partition(':')[0]}: `own_trainer:train_func` does not use weights; "
        ), found
        assert (
            "xgboost" in found.text and "lightgbm" in found.text and '"weights": True' in found.text
        )
        Path("own_trainer.py").write_text(
            "TRAINER = {'weights': True}\ndef train_func(config): ...\n"
        )
        assert load(path).data.weight_columns == (
            ("w",) if "w" in key.replace("[", " ").replace(",", " ").split() else ()
        )
        Path("own_loop.py").write_text("def train(config): ...\n")
        assert load(write(given.replace("TRAINER", '{loop: "own_loop:train"}'))), (
            "a loop of the user gets the weights"
        )


def test_balanced_classes_need_a_label_of_a_classification(lines) -> None:
    (found,) = lines(
        top(trainer="{loop: json:load}", data="{train: d.csv, valid: 0.2, class_weight: balanced}")
    )
    assert found == "2:34: data.class_weight: needs `data.label`"
    for value in ("balanced", "{choice: [balanced, null]}"):
        found = "".join(
            lines(data(f"valid: 0.2, label: y, task: regression, class_weight: {value}"))
        )
        assert "data.class_weight: is only for a classification" in found


ASHA = "{name: asha, max_t: 9, grace_period: 2, reduction_factor: 3}"


def test_another_scheduler_by_set_names_the_keys_to_drop_and_a_command_that_works(
    lines, write
) -> None:
    (found,) = lines(top(scheduler=ASHA), "scheduler.name=none")
    assert (
        found.startswith("--set scheduler.name=none: scheduler: ")
        and "grace_period, reduction_factor" in found
    )
    override = found.partition("--set '")[2].removesuffix("'")
    scheduler = load(write(top(scheduler=ASHA)), [override]).scheduler
    assert (scheduler.name, scheduler.max_t) == ("none", 9)
    assert [
        line.split(": ")[1]
        for line in lines(top(scheduler="{name: none, grace_period: 2, brackets: 2}"))
    ] == [
        "scheduler.grace_period",
        "scheduler.brackets",
    ]
