"""Bad input: what users of other tools write. The answers show the form to write in sweeps."""

from __future__ import annotations

from tests.bad_input import Case, line, names_of, params, top

TABLE: dict[str, tuple[Case, ...]] = {
    "Domains of other tools": (
        params(
            "W&B's bounds, of integers",
            "depth: {min: 1, max: 8}",
            "5:25: params.depth: {min: 1, max: 8} is not a domain; write {randint: [1, 9]} for "
            "integers, or {uniform: [1, 8]}; "
            "to use the mapping as a constant, write {grid: [{min: 1, max: 8}]}",
        ),
        params(
            "W&B's bounds, of numbers",
            "eta: {min: 0.0, max: 0.3}",
            "5:23: params.eta: {min: 0.0, max: 0.3} is not a domain; write {uniform: [0.0, 0.3]}; "
            "to use the mapping as a constant, write {grid: [{min: 0.0, max: 0.3}]}",
        ),
        params(
            "W&B's values",
            "booster: {values: [gbtree, dart]}",
            "5:27: params.booster: {values: [gbtree, dart]} is not a domain; write {choice: "
            "[gbtree, dart]}; "
            "to use the mapping as a constant, write {grid: [{values: [gbtree, dart]}]}",
        ),
        params(
            "W&B's value",
            "eta: {value: 0.1}",
            "5:23: params.eta: {value: 0.1} is not a domain; write the value itself: 0.1; "
            "to use the mapping as a constant, write {grid: [{value: 0.1}]}",
        ),
        params(
            "W&B's distribution",
            "eta: {distribution: log_uniform_values, min: 1e-3, max: 0.3}",
            "5:23: params.eta: {distribution: log_uniform_values, min: 1e-3, max: 0.3} is not a "
            "domain; write {loguniform: [1e-3, 0.3]}; "
            "to use the mapping as a constant, write {grid: [{distribution: log_uniform_values, "
            "min: 1e-3, max: 0.3}]}",
        ),
        params(
            "Ray Tune's sample_from",
            "eta: {sample_from: by_depth}",
            "5:23: params.eta: {sample_from: by_depth} is not a domain; a value cannot be a "
            "function of other values; use `when`, "
            "or compute the value in the loop; to use the mapping as a constant, write {grid: "
            "[{sample_from: by_depth}]}",
        ),
        params(
            "Optuna's bounds",
            "eta: {type: float, low: 1e-3, high: 0.3, log: true}",
            "5:23: params.eta: {type: float, low: 1e-3, high: 0.3, log: true} is not a domain; "
            "write {loguniform: [1e-3, 0.3]}; "
            "to use the mapping as a constant, write {grid: [{type: float, low: 1e-3, high: 0.3, "
            "log: true}]}",
        ),
        params(
            "Katib's feasible space",
            'eta: {feasibleSpace: {min: "0.01", max: "0.3"}}',
            "5:23: params.eta: {feasibleSpace: {min: '0.01', max: '0.3'}} is not a domain; "
            "write {uniform: [lower, upper]}, {choice: [...]} or another domain; "
            "to use the mapping as a constant, write {grid: [{feasibleSpace: {min: '0.01', max: "
            "'0.3'}}]}",
        ),
        line(
            "bounds of the number of workers",
            "space: {scaling: {num_workers: {min: 1, max: 2}}}",
            "5:32: scaling.num_workers: {min: 1, max: 2} is not a domain; write {randint: [1, 3]}",
        ),
    ),
    "Keys and names of other tools": (
        line(
            "a list in place of a choice of workers",
            "space: {scaling: {num_workers: [1, 2]}}",
            "5:32: scaling.num_workers: must be an integer of at least 1 and at most 1000000, got "
            "[1, 2]; to try each value, "
            "write {choice: [1, 2]}; for a number that may change while a trial runs, write "
            "{elastic: [1, 2]}",
        ),
        line(
            "the step Scaler",
            "space: {preprocessor: Scaler}",
            "5:23: preprocessor: `Scaler` is neither a built-in step nor a reference module:attr; "
            "did you mean `StandardScaler`?",
        ),
        line(
            "scikit-learn's FunctionTransformer",
            "space: {preprocessor: FunctionTransformer}",
            "5:23: preprocessor: `FunctionTransformer` is neither a built-in step nor a reference "
            "module:attr; write the function "
            "itself, as `module:function`",
        ),
        line(
            "a step that is not needed",
            "space: {preprocessor: Repartitioner}",
            "5:23: preprocessor: `Repartitioner` is neither a built-in step nor a reference "
            "module:attr; leave this step out, because each "
            "worker gets an equal part of the rows",
        ),
        line(
            "a parameter of scikit-learn's encoder",
            "space: {preprocessor: {OrdinalEncoder: {unknown_value: -1}}}",
            "5:41: preprocessor.OrdinalEncoder.unknown_value: unknown parameter of "
            "OrdinalEncoder; this encoder turns an "
            "unseen category into a missing value; scikit-learn's encoder has this parameter: "
            '{"sklearn.preprocessing:OrdinalEncoder": {handle_unknown: '
            "use_encoded_value, unknown_value: -1, encoded_missing_value: -2}}",
        ),
        line(
            "a framework as the trainer",
            "trainer: jax",
            "1:10: trainer: `jax` is neither a built-in trainer nor a mapping {loop: "
            "module:attr}; write a loop, as "
            "docs/how-to/own-loop.md shows, and name the loop: trainer: {loop: "
            '"my_loop:train_func", backend: jax}',
        ),
        line(
            "Optuna's number of trials",
            "n_trials: 4",
            "6:1: n_trials: unknown key; write `limits: {max_trials: N}`",
        ),
        line(
            "a key outside its section",
            "max_trials: 4",
            "6:1: max_trials: unknown key; move this key to the section `limits`",
        ),
        line(
            "a metric outside its section",
            "metric: valid-logloss",
            "6:1: metric: unknown key; write `objective: {metric: ..., goal: minimize}`, or a "
            "list of such mappings",
        ),
        line(
            "a parameter outside its section",
            "space: {eta: 0.1}",
            "5:9: space.eta: unknown section; valid: preprocessor, scaling, params; put a "
            "parameter of the loop under `params`",
        ),
        line(
            "Optuna's goal",
            "objective: {metric: valid-logloss, direction: minimize}",
            "3:1: objective.goal: is required; give minimize or maximize",
            "3:36: objective.direction: unknown key; did you mean `goal`?",
        ),
        line(
            "W&B's method",
            "search: {algorithm: bayes}",
            f"6:21: search.algorithm: must be {names_of('sampler', 'auto')}, got bayes; did you "
            "mean `gp`?",
        ),
        Case(
            "another scheduler with the old scheduler's keys",
            "scheduler: {name: asha, max_t: 9, grace_period: 2}; sweeps validate space.yaml --set "
            "scheduler.name=none",
            (
                "space.yaml:6:35: scheduler.grace_period: is a key of asha, hyperband, median, not "
                "of none; keys of none: max_t",
            ),
            top(scheduler="{name: asha, max_t: 9, grace_period: 2}"),
            args=("space.yaml", "--set", "scheduler.name=none"),
        ),
    ),
}
