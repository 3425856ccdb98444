"""Bad input: unknown keys, keys in a wrong place, and wrong conditions."""

from __future__ import annotations

from sweeps.space.sections.built_in_trainers import trainer_names
from tests.bad_input import Case, line, names_of, params, short, top, whole, without

SEVERAL_COLUMNS = """\
trainer: xgbost
data: {train: rows.csv, valid: 2, label: y}
objective: {metric: m, goal: min}
limits: {max_trials: 0}
space: {params: {eta: {uniform: [1, 0]}}}
"""

TABLE: dict[str, tuple[Case, ...]] = {
    "Keys": (
        line(
            "unknown key",
            "limts: {max_trials: 4}",
            "6:1: limts: unknown key; did you mean `limits`?",
        ),
        line(
            "unknown key of a section",
            "limits: {max_trials: 4, max_failurs: 1}",
            "4:25: limits.max_failurs: unknown key; did you mean `max_failures`?",
        ),
        line(
            "an unknown key that resembles no valid key",
            "search: {temperature: 3}",
            "6:10: search.temperature: unknown key; valid: algorithm, seed, options, "
            "initial_points, from, portfolio",
        ),
        line(
            "unknown section of space",
            "space: {parms: {eta: 0.1}}",
            "5:9: space.parms: unknown section; did you mean `params`?",
        ),
        line(
            "unknown key of scaling",
            "space: {scaling: {workers: 2}}",
            "5:19: scaling.workers: unknown key; did you mean `num_workers`?",
        ),
        line(
            "unknown form of a split",
            "data: {train: rows.csv, label: y, valid: {colum: split, value: valid}}",
            "2:42: data.valid: must be a fraction such as 0.2 (for whole groups, use "
            "`data.group`), a path, {column: split, value: valid} or {time: "
            "col, last: 0.2}; or {folds: 5} or {rolling: col} "
            "for a cross-validation, got {colum: split, value: valid}",
        ),
        without(
            "no space",
            "space",
            "1:1: space: is required; give the loop's parameters and their domains, such as "
            "{params: {eta: {loguniform: [1e-3, 0.3]}}}",
        ),
        line(
            "an empty space",
            "space: {}",
            "5:1: space: is required; give the loop's parameters and their domains, such as "
            "{params: {eta: {loguniform: [1e-3, 0.3]}}}",
        ),
        line(
            "no label for a trainer that needs one",
            "data: {train: rows.csv, valid: 0.25}",
            "2:1: data.label: is required by `xgboost`; give the name of the column to predict",
        ),
        without(
            "no trainer",
            "trainer",
            f"1:1: trainer: is required; give {', '.join(trainer_names())} or your own loop: "
            f"{{loop: module:attr, backend: ...}}",
        ),
        without(
            "no data",
            "data",
            "1:1: data.label: is required by `xgboost`; give the name of the column to predict",
            "1:1: data.train: is required; give a path, a glob, a URI, sklearn:NAME or "
            "module:function; "
            "a loop that reads its own data needs no `data`",
            "1:1: data.valid: is required; give a fraction such as 0.2 (for whole groups, use "
            "`data.group`), a path, {column: split, value: valid} or "
            "{time: col, last: 0.2}; or {folds: 5} or {rolling: col} for a cross-validation",
        ),
        without(
            "no objective",
            "objective",
            "1:1: objective.goal: is required; give minimize or maximize",
            "1:1: objective.metric: is required; give the name of a metric that the trainer "
            "reports, such as valid-logloss",
        ),
        line(
            "no goal",
            "objective: {metric: valid-logloss}",
            "3:1: objective.goal: is required; give minimize or maximize",
        ),
        line(
            "no valid",
            "data: {train: rows.csv, label: y}",
            "2:1: data.valid: is required; give a fraction such as 0.2 (for whole groups, use "
            "`data.group`), a path, {column: split, value: valid} or "
            "{time: col, last: 0.2}; or {folds: 5} or {rolling: col} for a cross-validation",
        ),
        line(
            "no max_trials with a sampled dimension",
            "limits: {}",
            "4:1: limits.max_trials: is required, because params.eta is sampled; give the number "
            "of trials, "
            "which must be at least the number of grid cells, 1",
        ),
        line(
            "no max_t for asha",
            "scheduler: {name: asha}",
            "6:1: scheduler.max_t: is required; set max_t to the step at which a trial ends",
        ),
        line(
            "keys of a scheduler without its name",
            "scheduler: {max_t: 9}",
            f"6:1: scheduler.name: is required; give {names_of('scheduler')}",
        ),
        line(
            "the same key twice",
            "data: {train: rows.csv, valid: 0.2, valid: 0.3}",
            "2:37: duplicate key `valid`; the key is already on line 2",
        ),
        whole(
            "the same section twice",
            "limits: {max_trials: 4}⏎...⏎limits: {max_trials: 8}",
            top() + "limits: {max_trials: 8}\n",
            "6:1: duplicate key `limits`; the key is already on line 4",
        ),
        line(
            "a section that is not a mapping",
            "limits: 4",
            "4:9: limits: must be a mapping with keys max_trials, timeout, max_concurrent_trials, "
            "max_failures, retry_on, trial_timeout, "
            "report_timeout, heartbeat_timeout, max_gpu_hours, target, patience, "
            "max_failures_in_a_row, got 4",
        ),
        line(
            "a time limit that is shorter than the interval of heartbeats",
            "limits: {max_trials: 4, heartbeat_timeout: 1s}",
            "4:44: limits.heartbeat_timeout: must be at least 5 s, because a worker sends a "
            "heartbeat every two seconds, got 1s",
        ),
        line(
            "a backend that a built-in trainer does not work with",
            "trainer: {name: xgboost, backend: none}",
            "1:35: trainer.backend: `xgboost` needs the backend `xgboost`, got `none`; leave the "
            "key out",
        ),
        whole(
            "several problems at once",
            short(SEVERAL_COLUMNS),
            SEVERAL_COLUMNS,
            "1:10: trainer: `xgbost` is neither a built-in trainer nor a mapping {loop: "
            "module:attr}; did you mean `xgboost`?",
            "2:32: data.valid: a fraction must be above 0 and below 1, got 2",
            "3:30: objective.goal: must be minimize or maximize, got min; did you mean `minimize`?",
            "4:22: limits.max_trials: must be an integer of at least 1, got 0",
            "5:24: params.eta: uniform needs lower < upper, got [1, 0]",
        ),
    ),
    "Conditions": (
        params(
            "a condition on an unknown dimension",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.boster: "
            "dart}}",
            "5:83: params.eta: `when` names an unknown dimension: `params.boster`; did you mean "
            "`params.booster`?",
        ),
        params(
            "a condition on a later dimension",
            "eta: {uniform: [0, 1], when: {params.booster: dart}}, booster: {choice: [gbtree, "
            "dart]}",
            "5:48: params.eta: `when` may name only earlier dimensions; `params.booster` comes "
            "later",
        ),
        params(
            "a condition on an unknown option",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.booster: "
            "drat}}",
            "5:99: params.eta.when: `params.booster`: must be an option of params.booster, got "
            "drat; did you mean `dart`?",
        ),
        params(
            "a comparison with an option that is text",
            'booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: {params.booster: "> '
            '1"}}',
            "5:99: params.eta.when: `params.booster`: a comparison needs options that are "
            "numbers, but params.booster has the option "
            "gbtree, got '> 1'",
        ),
        params(
            "a comparison that can never be true",
            'depth: {randint: [1, 9]}, eta: {uniform: [0, 1], when: {params.depth: "> 8"}}',
            "5:88: params.eta.when: `params.depth`: can never be true, because params.depth is 1 "
            "to 8, got '> 8'",
        ),
        params(
            "a comparison in an unknown form",
            "depth: {randint: [1, 9]}, eta: {uniform: [0, 1], when: {params.depth: {gt: 3}}}",
            '5:88: params.eta.when: `params.depth`: must be a number or a comparison such as "> '
            '3", got {gt: 3}',
        ),
        params(
            "conditions that exclude each other",
            "a: {choice: [x, y]}, b: {choice: [1, 2], when: {params.a: x}}, c: {randint: [1, 9], "
            "when: {params.a: y, params.b: 1}}",
            "5:102: params.c: `when` can never be true, because this condition and earlier "
            "conditions need two "
            "different values of `params.a`",
        ),
        params(
            "a condition that is not a mapping",
            "booster: {choice: [gbtree, dart]}, eta: {uniform: [0, 1], when: params.booster == "
            "dart}",
            "5:76: params.eta: `when` must map dimensions to required values, such as "
            "{params.booster: dart}, got params.booster == dart",
        ),
        params(
            "a grid with a condition on a choice",
            "booster: {choice: [gbtree, dart]}, eta: {grid: [0.1, 0.3], when: {params.booster: "
            "dart}}",
            "5:84: params.eta: the `when` of a grid may name only grids; `params.booster` is a "
            "choice",
        ),
        params(
            "a constant with a condition",
            "booster: {choice: [gbtree, dart]}, eta: {rate: 0.1, when: {params.booster: dart}}",
            "5:70: params.eta: `when` is allowed only beside a domain; "
            "write a conditional constant as {choice: [...], when: {...}} with one option",
        ),
        line(
            "a condition on a required parameter of a step",
            "space: {preprocessor: [{choice: [none, MinMaxScaler]}, PowerTransformer: "
            "{power: {choice: [1], when: {preprocessor.0: none}}}]}",
            "5:96: preprocessor.1.PowerTransformer.power: is required by PowerTransformer, so it "
            "cannot have a `when`",
        ),
    ),
}
