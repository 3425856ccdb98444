"""Bad input: keys and names that are not there, or stand where they cannot."""

from __future__ import annotations

from tests.bad_input import Case, answered, line, params, short, top, whole, without

SEVERAL = """\
trainer: xgbost
data: {train: rows.csv, valid: 2}
objective: {metric: m, goal: min}
limits: {max_trials: 0}
space: {params: {eta: {uniform: [1, 0]}}}
"""

TWO = "[{metric: valid-logloss, goal: minimize}, {metric: seconds, goal: minimize}]"

TABLE: dict[str, tuple[Case, ...]] = {
    "Keys": (
        line("unknown key", "limts: {max_trials: 4}", "6:1: limts: unknown key; did you mean `limits`?"),
        line(
            "unknown key of a section",
            "limits: {max_trials: 4, max_failurs: 1}",
            "4:25: limits.max_failurs: unknown key; did you mean `max_failures`?",
        ),
        line(
            "unknown key, like none",
            "search: {temperature: 3}",
            "6:10: search.temperature: unknown key; valid: algorithm, seed, options, initial_points",
        ),
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
            "6:1: scheduler.name: is required beside other keys: asha, hyperband, median, pbt or none",
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
            "4:9: limits: must be a mapping with keys max_trials, timeout, max_concurrent_trials, max_failures, trial_timeout, "
            "max_gpu_hours, target, patience, max_failures_in_a_row, got 4",
        ),
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
    "Conditions": (
        params(
            "a condition on what is not there",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.boster: dart}}",
            "5:83: params.eta: `when` names no dimension: `params.boster`; did you mean `params.booster`?",
        ),
        params(
            "a condition on what comes later",
            "eta: {uniform: [0, 1], when: {params.booster: dart}}, booster: {choice: [gbtree, dart]}",
            "5:48: params.eta: `when` may name what stands before it; `params.booster` comes later",
        ),
        params(
            "a condition on no option",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.booster: drat}}",
            "5:99: params.eta: when params.booster: is none of the options of params.booster; did you mean `dart`?, got drat",
        ),
        params(
            "a comparison of words",
            'booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.booster: "> 1"}}',
            "5:99: params.eta: when params.booster: compares numbers, but params.booster has the option gbtree, got '> 1'",
        ),
        params(
            "a comparison that can never hold",
            'depth: {randint: [1, 9]}, eta: {uniform: [0, 1], when: {params.depth: "> 8"}}',
            "5:88: params.eta: when params.depth: can never hold, as params.depth is 1 to 8, got '> 8'",
        ),
        params(
            "a comparison in another form",
            "depth: {randint: [1, 9]}, eta: {uniform: [0, 1], when: {params.depth: {gt: 3}}}",
            '5:88: params.eta: when params.depth: must be a number or a comparison such as "> 3", got {gt: 3}',
        ),
        params(
            "conditions that exclude each other",
            "a: {choice: [x, y]}, b: {choice: [1, 2], when: {params.a: x}}, c: {randint: [1, 9], when: {params.a: y, params.b: 1}}",
            "5:102: params.c: `when` can never hold: with what it rests on, `params.a` would have to be two things at once",
        ),
        params(
            "a condition that is no mapping",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: params.booster == dart}",
            "5:76: params.eta: `when` must be a mapping of dimensions to what they must be, such as {params.booster: dart}, "
            "got params.booster == dart",
        ),
        params(
            "a condition of a grid on what is no grid",
            "booster: {choice: [gbtree, dart]}, eta: {grid: [0.1, 0.3], when: {params.booster: dart}}",
            "5:84: params.eta: the `when` of a grid may name grids alone, as a cell must know it; `params.booster` is a choice",
        ),
        params(
            "a condition of a constant",
            "booster: {choice: [gbtree, dart]}, eta: {value: 0.1, when: {params.booster: dart}}",
            "5:71: params.eta: `when` stands beside a domain; a constant has none, but may be a choice of one option: "
            "{choice: [...], when: {...}}",
        ),
        line(
            "a condition of what a step needs",
            "space: {preprocessor: [{choice: [none, MinMaxScaler]}, PowerTransformer: "
            "{power: {choice: [1], when: {preprocessor.0: none}}}]}",
            "5:96: preprocessor.1.PowerTransformer.power: is required by PowerTransformer, so it cannot have a `when`",
        ),
    ),
    "What is searched for, and how": (
        Case(
            "several objectives under a scheduler",
            f"objective: {TWO}⏎scheduler: {{name: asha, max_t: 9}}",
            answered(
                ("6:19: scheduler.name: several objectives need none: trials cannot be ranked by one number before they end, got asha",)
            ),
            top(objective=TWO, scheduler="{name: asha, max_t: 9}"),
        ),
        Case(
            "a cost as the objective under a scheduler",
            "objective: {metric: seconds, goal: minimize}⏎scheduler: {name: asha, max_t: 9}",
            answered(
                ("6:19: scheduler.name: must be none: seconds is known only when a trial has ended, and asha compares trials before",)
            ),
            top(objective="{metric: seconds, goal: minimize}", scheduler="{name: asha, max_t: 9}"),
        ),
        line(
            "an objective twice",
            "objective: [{metric: a, goal: minimize}, {metric: a, goal: maximize}]",
            "3:51: objective.1.metric: `a` is an objective already",
        ),
        line(
            "a constraint that is no comparison",
            "constraints: {latency_ms: 5}",
            '6:27: constraints.latency_ms: must be a comparison with a number, one of <=, >=, <, >, such as "<= 5", got 5',
        ),
        line("no repeats", "repeats: 0", "6:10: repeats.count: must be at least 1, got 0"),
        line(
            "an aggregate of another name",
            "repeats: {count: 3, aggregate: average}",
            "6:32: repeats.aggregate: must be mean, median, min or max, got average",
        ),
        line(
            "a key of another scheduler",
            "scheduler: {name: asha, max_t: 9, brackets: 3}",
            "6:35: scheduler.brackets: is a key of hyperband, not of asha, which takes max_t, grace_period, reduction_factor",
        ),
        line(
            "PBT without an interval",
            "scheduler: {name: pbt}",
            "6:1: scheduler.perturbation_interval: is required by pbt: the reports between two perturbations",
        ),
        line(
            "a population of PBT beside more trials",
            "scheduler: {name: pbt, perturbation_interval: 4, population: 6}",
            "6:62: scheduler.population: must be limits.max_trials, 4, as pbt trains its population and no other trials; got 6",
        ),
        line(
            "an option of another algorithm",
            "search: {algorithm: tpe, options: {popsize: 8}}",
            "6:36: search.options.popsize: unknown option of tpe; it is one of cmaes",
        ),
        line(
            "unknown option",
            "search: {options: {n_startup: 8}}",
            "6:20: search.options.n_startup: unknown option of tpe; did you mean `n_startup_trials`?",
        ),
        line(
            "an option that will not do",
            "search: {options: {n_startup_trials: few}}",
            "6:38: search.options.n_startup_trials: must be an integer of at least 0, got few",
        ),
        line(
            "an initial point of what is not there",
            "search: {initial_points: [{params.etta: 0.1}]}",
            "6:28: search.initial_points.0: no dimension `params.etta`; did you mean `params.eta`?",
        ),
        line(
            "an initial point beyond the bounds",
            "search: {initial_points: [{params.eta: 1}]}",
            "6:40: search.initial_points.0.params.eta: must be within its bounds, 0.001 to 0.3, got 1",
        ),
        line(
            "a known result of half a point",
            "search: {initial_points: [{value: 0.5}]}",
            "6:28: search.initial_points.0: a point with a known result must say all that is there; missing: params.eta",
        ),
        line("a target that is no number", "limits: {max_trials: 4, target: low}", "4:33: limits.target: must be a number, got low"),
        line("no patience", "limits: {max_trials: 4, patience: 0}", "4:35: limits.patience: must be at least 1, got 0"),
        line("no GPU-hours", "limits: {max_trials: 4, max_gpu_hours: 0}", "4:40: limits.max_gpu_hours: must be a number above 0, got 0"),
    ),
    "Checkpoints": (
        line(
            "three of a trial",
            "checkpoints: {per_trial: 3}",
            "6:26: checkpoints.per_trial: must be 1 (a trial's best) or 2 (its latest too), got 3",
        ),
        line("no trial at all", "checkpoints: {top: 0}", "6:20: checkpoints.top: must be at least 1, got 0"),
        line(
            "a size without a unit",
            "checkpoints: {max_disk: 10}",
            "6:25: checkpoints.max_disk: must be a size such as 500MB or 10GB, got 10",
        ),
        line(
            "a unit that is not known",
            "checkpoints: {max_disk: 10GiB}",
            "6:25: checkpoints.max_disk: must be a size such as 500MB or 10GB, got 10GiB",
        ),
        line("an unknown key", "checkpoints: {disk: 10GB}", "6:15: checkpoints.disk: unknown key; did you mean `max_disk`?"),
        line(
            "a number alone",
            "checkpoints: 5",
            "6:14: checkpoints: must be a mapping with keys per_trial, top, max_disk, got 5",
        ),
        line(
            "a grid",
            "checkpoints: {top: {grid: [1, 2]}}",
            "6:21: checkpoints.top: a grid under checkpoints; only what stands under `space:` is tuned",
        ),
    ),
    "Variants of the data": (
        line(
            "a range of files",
            "data: {train: {uniform: [0, 1]}, label: y, valid: 0.25}",
            "2:15: data.train: can be a grid or a choice, not uniform",
        ),
        line(
            "an option that is no source",
            "data: {train: {grid: [rows.csv, 3]}, label: y, valid: 0.25}",
            "2:33: data.train.grid.1: must be a path, a glob, a URI, sklearn:NAME or module:function, got 3",
        ),
        line(
            "more than all rows",
            "data: {train: rows.csv, label: y, valid: 0.25, rows: {choice: [0.5, 2]}}",
            "2:69: data.rows.choice.1: must be a part above 0 and at most 1, got 2",
        ),
        line(
            "a range that begins at no rows",
            "data: {train: rows.csv, label: y, valid: 0.25, rows: {uniform: [0, 1]}}",
            "2:54: data.rows: must be parts above 0 and at most 1, got {uniform: [0, 1]}",
        ),
        line(
            "a feature subset that is no list",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: {choice: [age, plan]}}",
            "2:64: data.drop.choice.0: must be a list of columns, got age",
            "2:69: data.drop.choice.1: must be a list of columns, got plan",
        ),
        line(
            "the label in a feature subset",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [y]]}}",
            "2:54: data.drop: `y` is the label",
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
            "data: {train: rows.csv, label: y, valid: {choice: [0.2, 0.3]}}",
            "2:43: data.valid: a choice under data; of data, train, drop and rows may be tuned",
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
        line(
            "unknown scheduler",
            "scheduler: {name: bohb, max_t: 9}",
            "6:19: scheduler.name: must be none, asha, hyperband, median or pbt, got bohb",
        ),
        line(
            "unknown algorithm",
            "search: {algorithm: hyperopt}",
            "6:21: search.algorithm: must be tpe, random, grid, gp, qmc, cmaes or nsga2, got hyperopt",
        ),
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
