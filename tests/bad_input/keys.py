"""Bad input: keys and names that are not there, or stand where they cannot."""

from __future__ import annotations

from tests.bad_input import Case, line, params, short, top, whole, without

SEVERAL = """\
trainer: xgbost
data: {train: rows.csv, valid: 2}
objective: {metric: m, goal: min}
limits: {max_trials: 0}
space: {params: {eta: {uniform: [1, 0]}}}
"""

TABLE: dict[str, tuple[Case, ...]] = {
    "Keys": (
        line("unknown key", "limts: {max_trials: 4}", "6:1: limts: unknown key; did you mean `limits`?"),
        line(
            "unknown key of a section",
            "limits: {max_trials: 4, max_failurs: 1}",
            "4:25: limits.max_failurs: unknown key; did you mean `max_failures`?",
        ),
        line("unknown key, like none", "search: {temperature: 3}", "6:10: search.temperature: unknown key; valid: algorithm, seed"),
        line("unknown section of space", "space: {parms: {eta: 0.1}}", "5:9: space.parms: unknown section; did you mean `params`?"),
        line("unknown key of scaling", "space: {scaling: {workers: 2}}", "5:19: scaling.workers: unknown key; did you mean `num_workers`?"),
        line(
            "unknown form of a split",
            "data: {train: rows.csv, label: y, valid: {colum: split, value: valid}}",
            "2:42: data.valid: must be a fraction such as 0.2, a path, {column: split, value: valid}, {time: "
            "col, last: 0.2} or {group: col, part: 0.2}, got {colum: split, value: valid}",
        ),
        without("no trainer", "trainer", "1:1: trainer: is required: one of torch_tabular, xgboost, or {loop: module:attr, backend: ...}"),
        without(
            "no data",
            "data",
            "1:1: data.train: is required; give a path, a glob, a URI, sklearn:NAME or module:function",
            "1:1: data.valid: is required; give a fraction such as 0.2, a path, {column: split, value: valid}, "
            "{time: col, last: 0.2} or {group: col, part: 0.2}",
        ),
        without(
            "no objective",
            "objective",
            "1:1: objective.goal: is required; give minimize or maximize",
            "1:1: objective.metric: is required; give the name of a metric that the trainer reports, such as valid-logloss",
        ),
        line("no goal", "objective: {metric: valid-logloss}", "3:1: objective.goal: is required; give minimize or maximize"),
        line(
            "no valid",
            "data: {train: rows.csv, label: y}",
            "2:1: data.valid: is required; give a fraction such as 0.2, a path, {column: split, value: valid}, "
            "{time: col, last: 0.2} or {group: col, part: 0.2}",
        ),
        line(
            "no max_trials, though eta is sampled",
            "limits: {}",
            "4:1: limits.max_trials: is required, as params.eta is sampled: how many trials in all (at least the number of grid cells, 1)",
        ),
        line("no max_t for asha", "scheduler: {name: asha}", "6:1: scheduler.max_t: is required by asha: the report at which a trial ends"),
        line(
            "no scheduler named beside its keys",
            "scheduler: {max_t: 9}",
            "6:1: scheduler.name: is required beside other keys: asha or none",
        ),
        line(
            "the same key twice",
            "data: {train: rows.csv, valid: 0.2, valid: 0.3}",
            "2:37: duplicate key `valid`; it stands on line 2 already",
        ),
        whole(
            "the same section twice",
            "limits: {max_trials: 4}⏎...⏎limits: {max_trials: 8}",
            top() + "limits: {max_trials: 8}\n",
            "6:1: duplicate key `limits`; it stands on line 4 already",
        ),
        line(
            "a section that is no mapping",
            "limits: 4",
            "4:9: limits: must be a mapping with keys max_trials, timeout, max_concurrent_trials, max_failures, trial_timeout, got 4",
        ),
        params("conditions", "eta: {uniform: [0, 1], when: {a: b}}", "5:41: params.eta: conditions (`when:`) are not supported yet"),
        whole(
            "several at once",
            short(SEVERAL),
            SEVERAL,
            "1:10: trainer: unknown trainer xgbost (your own: {loop: module:attr}); did you mean `xgboost`?",
            "2:32: data.valid: a fraction must be above 0 and below 1, got 2",
            "3:30: objective.goal: must be minimize or maximize, got min",
            "4:22: limits.max_trials: must be at least 1, got 0",
            "5:24: params.eta: uniform needs lower < upper, got [1, 0]",
        ),
    ),
    "Domains in the wrong place": (
        params(
            "two domains in one mapping",
            "eta: {uniform: [0, 1], choice: [1]}",
            "5:41: params.eta: two domains in one mapping: uniform, choice; a dimension has one",
        ),
        params(
            "a domain and another key",
            "eta: {quniform: [0, 1], q: 0.1}",
            "5:24: params.eta: `quniform` must be the only key of its mapping, which also has: q",
        ),
        params(
            "unknown domain", "eta: {loguniforn: [1e-3, 0.3]}", "5:24: params.eta: unknown domain `loguniforn`; did you mean `loguniform`?"
        ),
        params(
            "a domain of Ray Tune by its old name",
            "eta: {grid_search: [1, 2]}",
            "5:24: params.eta: unknown domain `grid_search`; did you mean `grid`?",
        ),
        params(
            "a domain of another library",
            "eta: {log_uniform: [1e-3, 0.3]}",
            "5:24: params.eta: unknown domain `log_uniform`; did you mean `loguniform`?",
        ),
        line(
            "a grid under limits",
            "limits: {max_trials: {grid: [4, 8]}}",
            "4:23: limits.max_trials: a grid under limits; only what stands under `space:` is tuned",
        ),
        line(
            "a choice under data",
            "data: {train: {choice: [a.csv, b.csv]}, valid: 0.2}",
            "2:16: data.train: a choice under data; only what stands under `space:` is tuned",
        ),
        line(
            "a domain for the trainer",
            "trainer: {grid: [xgboost, torch_tabular]}",
            "1:11: trainer: a grid under trainer; only what stands under `space:` is tuned",
        ),
        line(
            "a domain for all of space",
            "space: {grid: [{}]}",
            "5:9: space.grid: a grid stands inside a section: preprocessor, scaling, params",
        ),
        line("a range of chains", "space: {preprocessor: {uniform: [0, 1]}}", "5:23: preprocessor: can be a grid or a choice, not uniform"),
        line(
            "a range of floats for workers",
            "space: {scaling: {num_workers: {uniform: [1, 2]}}}",
            "5:32: scaling.num_workers: must be a constant, a grid, a choice or a range of integers, got {uniform: [1, 2]}",
        ),
        line(
            "grid search of what is no grid",
            "search: {algorithm: grid}",
            "6:21: search.algorithm: grid needs grids alone; sampled: params.eta",
        ),
        params(
            "more cells than anybody runs",
            ", ".join(f"p{i}: {{grid: [1, 2]}}" for i in range(17)),
            "5:1: space: the grids make 131072 cells, more than 100000; make some a choice",
        ),
    ),
    "Names": (
        line(
            "a Python reference without its module",
            'data: {train: "rows:load", label: y, valid: 0.25}',
            "2:15: data.train: `rows:load`: no module `rows`",
        ),
        line("the label dropped", "data: {train: rows.csv, label: y, valid: 0.25, drop: [y]}", "2:55: data.drop: `y` is the label"),
        line(
            "unknown trainer",
            "trainer: xgbost",
            "1:10: trainer: unknown trainer xgbost (your own: {loop: module:attr}); did you mean `xgboost`?",
        ),
        line(
            "a loop without its backend",
            "trainer: my_mod:train",
            "1:10: trainer: a reference needs its backend: {loop: my_mod:train, backend: torch}",
        ),
        line("no such module", "trainer: {loop: my_mod:train}", "1:17: trainer.loop: `my_mod:train`: no module `my_mod`"),
        line(
            "no such function in it",
            "trainer: {loop: marks:trian}",
            "1:17: trainer.loop: `marks:trian`: `marks` has no `trian`; did you mean `train`?",
        ),
        line("no reference", "trainer: {loop: marks.train}", "1:17: trainer.loop: `marks.train` is not a reference; write `module:attr`"),
        line(
            "unknown backend",
            "trainer: {loop: marks:train, backend: gloo}",
            "1:39: trainer.backend: must be torch, xgboost, lightgbm or none, got gloo",
        ),
        line(
            "unknown step",
            "space: {preprocessor: StandardScalr}",
            "5:23: preprocessor: unknown step `StandardScalr` (any but Ray Data's: module:attr); did you mean `StandardScaler`?",
        ),
        line(
            "unknown parameter of a step",
            "space: {preprocessor: {StandardScaler: {column: all}}}",
            "5:41: preprocessor.StandardScaler.column: unknown parameter of StandardScaler; did you mean `columns`?",
        ),
        line(
            "a step without what it needs",
            "space: {preprocessor: {FeatureHasher: {num_features: 8}}}",
            "5:24: preprocessor.FeatureHasher: `output_column` is required by FeatureHasher",
        ),
        line(
            "unknown word for a step",
            "space: {preprocessor: {SimpleImputer: {strategy: median}}}",
            "5:50: preprocessor.SimpleImputer.strategy: SimpleImputer takes mean, most_frequent, constant, got median",
        ),
        line(
            "no such step of scikit-learn",
            "space: {preprocessor: sklearn.preprocessing:PowerTransfomer}",
            "5:23: preprocessor: `sklearn.preprocessing:PowerTransfomer`: `sklearn.preprocessing` has no "
            "`PowerTransfomer`; did you mean `PowerTransformer`?",
        ),
        line(
            "a step whose parameters are not under it",
            "space: {preprocessor: {StandardScaler: , columns: all}}",
            "5:23: preprocessor: a step is a one-key mapping, got keys StandardScaler, columns; indent `columns` under `StandardScaler`",
        ),
        line("unknown scheduler", "scheduler: {name: hyperband, max_t: 9}", "6:19: scheduler.name: must be none or asha, got hyperband"),
        line("unknown algorithm", "search: {algorithm: bayes}", "6:21: search.algorithm: must be tpe, random or grid, got bayes"),
        line(
            "unknown goal",
            "objective: {metric: valid-logloss, goal: minimise}",
            "3:42: objective.goal: must be minimize or maximize, got minimise; did you mean `minimize`?",
        ),
        line(
            "unknown task",
            "data: {train: rows.csv, valid: 0.25, task: multi}",
            "2:44: data.task: must be binary, multiclass or regression, got multi; did you mean `multiclass`?",
        ),
        line(
            "unknown set of scikit-learn",
            'data: {train: "sklearn:irs", valid: 0.25}',
            "2:15: data.train: scikit-learn's `irs` is not known; did you mean `iris`?",
        ),
        line(
            "unknown resource",
            "space: {scaling: {resources_per_worker: {cpu: 1}}}",
            "5:42: scaling.resources_per_worker.cpu: unknown resource; did you mean `CPU`?",
        ),
        line(
            "a name that is no folder's",
            "name: a/b",
            "6:7: name: must be up to 100 of A-Z a-z 0-9 _ - . and not begin with - or ., got a/b",
        ),
        line(
            "a label that is no text", "data: {train: rows.csv, label: 1, valid: 0.25}", "2:32: data.label: must be text, got 1; quote it"
        ),
        line(
            "a column to drop that is no text",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: [1]}",
            "2:55: data.drop.0: must be text, got 1; quote it",
        ),
        line(
            "a column to drop that is no list",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: age}",
            "2:54: data.drop: must be a list, got age",
        ),
        line("a metric that is no text", "objective: {metric: 3, goal: minimize}", "3:21: objective.metric: must be text, got 3; quote it"),
        line("a trainer that is no name", "trainer: 3", "1:10: trainer: must be a name or a mapping with keys loop, backend, load, got 3"),
        line(
            "a step in two lists",
            "space: {preprocessor: [[StandardScaler]]}",
            "5:24: preprocessor.0: a step is a name or `{Name: {...}}`, got the list [StandardScaler]",
        ),
        line("a step that is no name", "space: {preprocessor: 3}", "5:23: preprocessor: a step is a name or `{Name: {...}}`, got 3"),
        line("an empty step", "space: {preprocessor: {}}", "5:23: preprocessor: a step is a name or `{Name: {...}}`, got {}"),
        line("params that are no mapping", "space: {params: [1]}", "5:17: params: must be a mapping, got [1]"),
        line(
            "resources that are no mapping",
            "space: {scaling: {resources_per_worker: 2}}",
            "5:41: scaling.resources_per_worker: must be a mapping such as {CPU: 1}, got 2",
        ),
        params("a parameter without a text for a name", "1: 2", "5:18: params.1: a parameter's name must be text; quote it"),
        line(
            "columns that are no text",
            "space: {preprocessor: {StandardScaler: {columns: [age, 3]}}}",
            "5:56: preprocessor.StandardScaler.columns.1: a column's name must be text, got 3; quote it",
        ),
    ),
}
