"""Bad input: domains in a wrong place, and names of things that do not exist."""

from __future__ import annotations

from tests.bad_input import Case, line, names_of, params

BACKENDS = (
    "must be torch, xgboost, lightgbm, tensorflow, jax, none or a reference `module:BackendConfig`"
)

TABLE: dict[str, tuple[Case, ...]] = {
    "Domains in the wrong place": (
        params(
            "two domains in one mapping",
            "eta: {uniform: [0, 1], choice: [1]}",
            "5:41: params.eta: two domains in one mapping: uniform, choice; a dimension must have "
            "only one domain",
        ),
        params(
            "a domain and another key",
            "eta: {quniform: [0, 1], q: 0.1}",
            "5:24: params.eta: `quniform` must be the only key of its mapping; the mapping also "
            "has: q",
        ),
        params(
            "unknown domain",
            "eta: {loguniforn: [1e-3, 0.3]}",
            "5:24: params.eta: unknown domain `loguniforn`; did you mean `loguniform`?",
        ),
        params(
            "an old name of Ray Tune",
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
            "4:23: limits.max_trials: cannot be tuned (`grid`); only values under `space:` can be "
            "tuned",
        ),
        line(
            "a choice under data",
            "data: {train: rows.csv, label: y, valid: {choice: [0.2, 0.3]}}",
            "2:43: data.valid: cannot be tuned (`choice`); only train, drop and rows of data can "
            "be tuned",
        ),
        line(
            "a domain for the trainer",
            "trainer: {uniform: [0, 1]}",
            "1:10: trainer: must be one trainer, or a grid or choice of several trainers, not "
            "uniform",
        ),
        line(
            "parameters outside of the blocks of several trainers",
            "trainer: {choice: [xgboost, torch_tabular]}",
            "5:18: params.eta: `params` has a block for each trainer, and this key is none of "
            "them; it is a parameter of xgboost; move it to `space.params.xgboost`",
        ),
        line(
            "a domain in place of a section",
            "space: {grid: [{}]}",
            "5:9: space.grid: unknown section; valid: preprocessor, scaling, params; put a "
            "parameter of the loop under `params`",
        ),
        line(
            "a range of chains",
            "space: {preprocessor: {uniform: [0, 1]}}",
            "5:23: preprocessor: must be a constant, a grid or a choice, not uniform",
        ),
        line(
            "a range of floats for workers",
            "space: {scaling: {num_workers: {uniform: [1, 2]}}}",
            "5:32: scaling.num_workers: must be a constant, a grid, a choice or a range of "
            "integers, got {uniform: [1, 2]}",
        ),
        line(
            "an elastic gang without a range",
            "space: {scaling: {num_workers: {elastic: [2, 2]}}}",
            "5:42: scaling.num_workers: elastic needs a list [lower, upper]: the upper bound must "
            "be greater than the lower bound, "
            "got [2, 2]; for a fixed number of workers, write `num_workers: 2`",
        ),
        line(
            "grid search with a sampled dimension",
            "search: {algorithm: grid}",
            "6:21: search.algorithm: grid search allows only `grid` dimensions, but these are "
            "sampled: params.eta",
        ),
        params(
            "too many grid cells",
            ", ".join(f"p{i}: {{grid: [1, 2]}}" for i in range(17)),
            "5:1: space: the grids make more than 100000 cells; change some grids to choices",
        ),
    ),
    "Names": (
        line(
            "a reference to an unknown module",
            'data: {train: "rows:load", label: y, valid: 0.25}',
            "2:15: data.train: `rows:load`: no module `rows` in ./ or among the installed packages",
        ),
        line(
            "the label as the weight",
            "data: {train: rows.csv, label: y, valid: 0.25, weight: y}",
            "2:56: data.weight: must be another column than the label, `y`; name a column of "
            "numbers",
        ),
        line(
            "the column of weights in data.drop",
            "data: {train: rows.csv, label: y, valid: 0.25, weight: age, drop: [age]}",
            "2:67: data.drop: must not contain `age`, the column of data.weight; it is no feature "
            "anyway",
        ),
        line(
            "an unknown way to weight classes",
            "data: {train: rows.csv, label: y, valid: 0.25, class_weight: {no: 1, yes: 3}}",
            "2:62: data.class_weight: must be balanced, or left out, got {no: 1, yes: 3}",
        ),
        line(
            "a list with one label",
            "data: {train: rows.csv, label: [y], valid: 0.25}",
            "2:32: data.label: must be the name of a column, or a list of at least two different "
            "columns, got [y]",
        ),
        line(
            "balanced classes with several labels",
            "data: {train: rows.csv, label: [y, z], valid: 0.25, class_weight: balanced}",
            "2:53: data.class_weight: needs a label of one column; leave this key out, or give "
            "the rows weights with data.weight",
        ),
        line(
            "the label in data.drop",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: [y]}",
            "2:54: data.drop: must not contain the label, `y`",
        ),
        line(
            "unknown trainer",
            "trainer: xgbost",
            "1:10: trainer: `xgbost` is neither a built-in trainer nor a mapping {loop: "
            "module:attr}; did you mean `xgboost`?",
        ),
        line(
            "a loop in place of a trainer's name",
            "trainer: my_mod:train",
            "1:10: trainer: `my_mod:train` is a loop, not a trainer's name; write {loop: "
            "my_mod:train}, and add `backend: torch` if "
            "its ranks need torch's process group",
        ),
        line(
            "an unknown estimator of scikit-learn",
            'trainer: "sklearn.ensemble:RandomForestClasifier"',
            "1:10: trainer.estimator: `sklearn.ensemble:RandomForestClasifier`: "
            "`sklearn.ensemble` has no `RandomForestClasifier`; "
            "did you mean `RandomForestClassifier`?",
        ),
        line(
            "an estimator of another library as the trainer",
            'trainer: "xgboost:XGBClassifier"',
            "1:10: trainer: `xgboost:XGBClassifier` is an estimator, not a training loop; write "
            "trainer: {estimator: "
            '"xgboost:XGBClassifier"}',
        ),
        line(
            "the trainer of scikit-learn without an estimator",
            "trainer: sklearn",
            "1:1: trainer.estimator: is required by `sklearn`; give a class of estimators, an "
            "estimator, or a function that returns "
            "an estimator, such as `sklearn.svm:SVC`",
        ),
        line(
            "a class of Ray Tune under its own key",
            'trainable: "marks:train"',
            '6:1: trainable: unknown key; write `trainer: {trainable: "my_mod:MyTrainable"}`',
        ),
        line(
            "a class of Ray Tune that does not exist",
            "trainer: {trainable: marks:Trian}",
            "1:22: trainer.trainable: `marks:Trian`: `marks` has no `Trian`; did you mean `train`?",
        ),
        line(
            "a bare name of an estimator",
            "trainer: random_forest",
            "1:10: trainer: `random_forest` is neither a built-in trainer nor a mapping {loop: "
            "module:attr}; name the estimator, such as "
            'trainer: "sklearn.ensemble:RandomForestClassifier"',
        ),
        line(
            "a scikit-learn estimator as the loop",
            'trainer: {loop: "sklearn.ensemble:RandomForestClassifier", backend: torch}',
            "1:17: trainer.loop: `sklearn.ensemble:RandomForestClassifier` is an estimator, not a "
            "training loop; write trainer: "
            '{estimator: "sklearn.ensemble:RandomForestClassifier"}',
        ),
        line(
            "an unknown module",
            "trainer: {loop: my_mod:train}",
            "1:17: trainer.loop: `my_mod:train`: no module `my_mod` in ./ or among the installed "
            "packages",
        ),
        line(
            "an unknown function of a module",
            "trainer: {loop: marks:trian}",
            "1:17: trainer.loop: `marks:trian`: `marks` has no `trian`; did you mean `train`?",
        ),
        line(
            "text that is not a reference",
            "trainer: {loop: marks.train}",
            "1:17: trainer.loop: `marks.train` is not a reference; write `module:attr`",
        ),
        line(
            "unknown backend",
            "trainer: {loop: marks:train, backend: gloo}",
            f"1:39: trainer.backend: {BACKENDS}, got gloo",
        ),
        line(
            "Horovod as the backend",
            "trainer: {loop: marks:train, backend: horovod}",
            f"1:39: trainer.backend: {BACKENDS}; Ray's Horovod backend works only with a worker "
            "group that Ray has removed, got horovod",
        ),
        line(
            "Horovod by its class",
            'trainer: {loop: marks:train, backend: "ray.train.horovod:HorovodConfig"}',
            f"1:39: trainer.backend: {BACKENDS}; Ray's Horovod backend works only with a worker "
            "group that Ray has removed, "
            "got 'ray.train.horovod:HorovodConfig'",
        ),
        line(
            "a backend of your own that does not exist",
            'trainer: {loop: marks:train, backend: "marks:Config"}',
            "1:39: trainer.backend: `marks:Config`: `marks` has no `Config`; valid: clip, load, "
            "rows, train",
        ),
        line(
            "unknown step",
            "space: {preprocessor: StandardScalr}",
            "5:23: preprocessor: `StandardScalr` is neither a built-in step nor a reference "
            "module:attr; did you mean `StandardScaler`?",
        ),
        line(
            "unknown parameter of a step",
            "space: {preprocessor: {StandardScaler: {column: all}}}",
            "5:41: preprocessor.StandardScaler.column: unknown parameter of StandardScaler; did "
            "you mean `columns`?",
        ),
        line(
            "a step without a required parameter",
            "space: {preprocessor: {HashingVectorizer: {columns: plan}}}",
            "5:24: preprocessor.HashingVectorizer: `num_features` is required by HashingVectorizer",
        ),
        line(
            "an unknown value of a step's parameter",
            "space: {preprocessor: {SimpleImputer: {strategy: median}}}",
            "5:50: preprocessor.SimpleImputer.strategy: must be mean, most_frequent or constant, "
            "got median; "
            "for median, use scikit-learn:"
            ' {"sklearn.impute:SimpleImputer": {strategy: median, columns: numeric}}',
        ),
        line(
            "an unknown step of scikit-learn",
            "space: {preprocessor: sklearn.preprocessing:PowerTransfomer}",
            "5:23: preprocessor: `sklearn.preprocessing:PowerTransfomer`: `sklearn.preprocessing` "
            "has no "
            "`PowerTransfomer`; did you mean `PowerTransformer`?",
        ),
        line(
            "parameters beside a step in place of under it",
            "space: {preprocessor: {StandardScaler: , columns: all}}",
            "5:23: preprocessor: a step must be a mapping with one key, got keys StandardScaler, "
            "columns; "
            "write each step as a separate entry of a list, and indent its parameters under its "
            "name",
        ),
        line(
            "unknown scheduler",
            "scheduler: {name: bohb, max_t: 9}",
            f"6:19: scheduler.name: must be {names_of('scheduler')}, got bohb; did you mean "
            "`hyperband`?",
        ),
        line(
            "unknown algorithm",
            "search: {algorithm: hyperopt}",
            f"6:21: search.algorithm: must be {names_of('sampler', 'auto')}, got hyperopt; did "
            "you mean `tpe`?",
        ),
        line(
            "unknown goal",
            "objective: {metric: valid-logloss, goal: minimise}",
            "3:42: objective.goal: must be minimize or maximize, got minimise; did you mean "
            "`minimize`?",
        ),
        line(
            "unknown task",
            "data: {train: rows.csv, valid: 0.25, task: multi, label: y}",
            "2:44: data.task: must be binary, multiclass or regression, got multi; did you mean "
            "`multiclass`?",
        ),
        line(
            "an unknown data set of scikit-learn",
            'data: {train: "sklearn:irs", valid: 0.25, label: y}',
            "2:15: data.train: scikit-learn has no data set `irs`; did you mean `iris`?",
        ),
        line(
            "unknown resource",
            "space: {scaling: {resources_per_worker: {cpu: 1}}}",
            "5:42: scaling.resources_per_worker.cpu: unknown resource; did you mean `CPU`?",
        ),
        line(
            "a name that cannot name a folder",
            "name: a/b",
            "6:7: name: must have 1 to 100 characters out of A-Z a-z 0-9 _ - . and must not begin "
            "with - or ., got a/b",
        ),
        line(
            "a label that is not text",
            "data: {train: rows.csv, label: 1, valid: 0.25}",
            "2:32: data.label: must be text; put quotes around it, got 1",
        ),
        line(
            "a dropped column that is not text",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: [1]}",
            "2:55: data.drop.0: a column's name must be text, got 1; put quotes around it",
        ),
        line(
            "data.drop that is not a list",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: age}",
            "2:54: data.drop: must be a list of columns, got age",
        ),
        line(
            "a metric that is not text",
            "objective: {metric: 3, goal: minimize}",
            "3:21: objective.metric: must be text, got 3; put quotes around it",
        ),
        line(
            "a trainer that is a number",
            "trainer: 3",
            "1:10: trainer: must be a name or a mapping with the key `loop` or `name`, got 3",
        ),
        line(
            "a step in nested lists",
            "space: {preprocessor: [[StandardScaler]]}",
            "5:24: preprocessor.0: a step must be a name or `{Name: {...}}`, got [StandardScaler]",
        ),
        line(
            "a step that is a number",
            "space: {preprocessor: 3}",
            "5:23: preprocessor: a step must be a name or `{Name: {...}}`, got 3",
        ),
        line(
            "an empty step",
            "space: {preprocessor: {}}",
            "5:23: preprocessor: a step must be a name or `{Name: {...}}`, got {}",
        ),
        line(
            "params that are not a mapping",
            "space: {params: [1]}",
            "5:17: params: must be a mapping such as {eta: 0.1}, got [1]",
        ),
        line(
            "resources that are not a mapping",
            "space: {scaling: {resources_per_worker: 2}}",
            "5:41: scaling.resources_per_worker: must be a mapping such as {CPU: 1}, got 2",
        ),
        params(
            "a parameter whose name is not text",
            "1: 2",
            "5:18: params.1: the name of a parameter must be text; put quotes around it",
        ),
        line(
            "a column that is not text",
            "space: {preprocessor: {StandardScaler: {columns: [age, 3]}}}",
            "5:56: preprocessor.StandardScaler.columns.1: a column's name must be text, got 3; "
            "put quotes around it",
        ),
    ),
}
