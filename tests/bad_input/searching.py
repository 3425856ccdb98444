"""Bad input: objectives, search, scheduler, limits, checkpoints and variants of the data."""

from __future__ import annotations

from tests.bad_input import Case, answered, line, top

TWO = "[{metric: valid-logloss, goal: minimize}, {metric: seconds, goal: minimize}]"

TABLE: dict[str, tuple[Case, ...]] = {
    "Objectives, search and limits": (
        Case(
            "several objectives under a scheduler",
            f"objective: {TWO}⏎scheduler: {{name: asha, max_t: 9}}",
            answered(
                (
                    "6:19: scheduler.name: must be none, because running trials with several "
                    "objectives cannot be "
                    "ranked by one number; got asha",
                )
            ),
            top(objective=TWO, scheduler="{name: asha, max_t: 9}"),
        ),
        Case(
            "a cost as the objective under a scheduler",
            "objective: {metric: seconds, goal: minimize}⏎scheduler: {name: asha, max_t: 9}",
            answered(
                (
                    "6:19: scheduler.name: must be none, because a scheduler compares running "
                    "trials, but `seconds` is known only after "
                    "a trial has ended; got asha",
                )
            ),
            top(objective="{metric: seconds, goal: minimize}", scheduler="{name: asha, max_t: 9}"),
        ),
        line(
            "an objective twice",
            "objective: [{metric: a, goal: minimize}, {metric: a, goal: maximize}]",
            "3:51: objective.1.metric: `a` is already the metric of another objective",
        ),
        line(
            "a choice that needs one objective",
            "objective: [{metric: a, goal: minimize, choose: mean}, {metric: b, goal: minimize}]",
            "3:1: objective: `choose` is allowed only for one objective, but the file has several; "
            "leave it out",
        ),
        line(
            "a cost that is confirmed",
            "objective: {metric: seconds, goal: minimize, choose: confirmed}",
            "3:54: objective.choose: must be best for a cost such as `seconds`; got confirmed",
        ),
        line(
            "a mean without a known noise",
            "objective: {metric: made, goal: minimize, choose: mean}",
            "3:51: objective.choose: `mean` needs to know how noisy the values are: from "
            "predictions for the labelled rows of valid and a metric of sweeps, from `data.valid: "
            "{folds: 5}` or from `repeats`; add one of them, or write confirmed",
        ),
        Case(
            "confirmed with repeats",
            "objective: {metric: valid-logloss, goal: minimize, choose: confirmed}⏎repeats: 3",
            answered(
                (
                    "3:60: objective.choose: `confirmed` trains the best trials again, but "
                    "`repeats` already trains all of them 3 times; write mean, or leave `repeats` "
                    "out",
                )
            ),
            top(
                objective="{metric: valid-logloss, goal: minimize, choose: confirmed}", repeats="3"
            ),
        ),
        Case(
            "confirmed under PBT",
            "objective: {…, choose: confirmed}⏎scheduler: {name: pbt, …}",
            answered(
                (
                    "3:60: objective.choose: must be best under pbt, whose trials change their "
                    "parameters; got confirmed",
                )
            ),
            top(
                objective="{metric: valid-logloss, goal: minimize, choose: confirmed}",
                scheduler="{name: pbt, max_t: 9, perturbation_interval: 3}",
            ),
        ),
        line(
            "a constraint that is not a comparison",
            "constraints: {latency_ms: 5}",
            "6:27: constraints.latency_ms: must be a comparison (<=, >=, <, >) with a number, "
            'such as "<= 5", got 5',
        ),
        line(
            "repeats of 0",
            "repeats: 0",
            "6:10: repeats.count: must be an integer of at least 1, got 0",
        ),
        line(
            "an unknown aggregate",
            "repeats: {count: 3, aggregate: average}",
            "6:32: repeats.aggregate: must be mean, median, min or max, got average",
        ),
        line(
            "a key of another scheduler",
            "scheduler: {name: asha, max_t: 9, brackets: 3}",
            "6:35: scheduler.brackets: is a key of hyperband, not of asha; "
            "keys of asha: max_t, grace_period, reduction_factor, resource, type",
        ),
        line(
            "PBT without perturbation_interval",
            "scheduler: {name: pbt}",
            "6:1: scheduler.perturbation_interval: is required; set perturbation_interval to the "
            "number of reports "
            "between two perturbations",
        ),
        line(
            "a population of PBT that differs from max_trials",
            "scheduler: {name: pbt, perturbation_interval: 4, population: 6}",
            "6:62: scheduler.population: must be equal to limits.max_trials, 4, because every "
            "trial of pbt is in the population; got 6",
        ),
        line(
            "an option of another algorithm",
            "search: {algorithm: tpe, options: {popsize: 8}}",
            "6:36: search.options.popsize: unknown option of tpe; `popsize` is an option of cmaes",
        ),
        line(
            "unknown option",
            "search: {algorithm: tpe, options: {n_startup: 8}}",
            "6:36: search.options.n_startup: unknown option of tpe; did you mean "
            "`n_startup_trials`?",
        ),
        line(
            "options without an algorithm",
            "search: {options: {n_startup_trials: 8}}",
            "6:19: search.options: need `search.algorithm`, the name of the algorithm that has "
            "these options",
        ),
        line(
            "an option of the wrong type",
            "search: {algorithm: tpe, options: {n_startup_trials: few}}",
            "6:54: search.options.n_startup_trials: must be an integer of at least 0, got few",
        ),
        line(
            "an initial point with an unknown dimension",
            "search: {initial_points: [{params.etta: 0.1}]}",
            "6:28: search.initial_points.0: the space has no dimension `params.etta`; did you "
            "mean `params.eta`?",
        ),
        line(
            "an initial point outside the bounds",
            "search: {initial_points: [{params.eta: 1}]}",
            "6:40: search.initial_points.0.params.eta: must be within its bounds, 0.001 to 0.3, "
            "got 1",
        ),
        line(
            "a known result of an incomplete point",
            "search: {initial_points: [{value: 0.5}]}",
            "6:28: search.initial_points.0: a point with `value` must have a value for every "
            "active dimension; missing: params.eta",
        ),
        line(
            "an earlier sweep that is not in a list",
            "search: {from: latest}",
            "6:16: search.from: must be a list of sweeps, such as [latest], got latest",
        ),
        line(
            "an earlier sweep that is a number",
            "search: {from: [3]}",
            "6:17: search.from.0: must be text, got 3; put quotes around it",
        ),
        line(
            "a target that is not a number",
            "limits: {max_trials: 4, target: low}",
            "4:33: limits.target: must be a number, got low",
        ),
        line(
            "patience of 0",
            "limits: {max_trials: 4, patience: 0}",
            "4:35: limits.patience: must be an integer of at least 1, got 0",
        ),
        line(
            "max_gpu_hours of 0",
            "limits: {max_trials: 4, max_gpu_hours: 0}",
            "4:40: limits.max_gpu_hours: must be a number greater than 0, got 0",
        ),
    ),
    "Checkpoints": (
        line(
            "per_trial of 0",
            "checkpoints: {per_trial: 0}",
            "6:26: checkpoints.per_trial: must be an integer of at least 1, got 0",
        ),
        line(
            "top of 0",
            "checkpoints: {top: 0}",
            "6:20: checkpoints.top: must be an integer of at least 1, got 0",
        ),
        line(
            "an average without a model",
            "bundle: {ensemble: 0}",
            "6:20: bundle.ensemble: must be an integer of at least 1, got 0",
        ),
        line(
            "a size without a unit",
            "checkpoints: {max_disk: 10}",
            "6:25: checkpoints.max_disk: must be a size such as 500MB or 10GB, got 10",
        ),
        line(
            "an unknown unit",
            "checkpoints: {max_disk: 10GiB}",
            "6:25: checkpoints.max_disk: must be a size such as 500MB or 10GB, got 10GiB",
        ),
        line(
            "an unknown key",
            "checkpoints: {disk: 10GB}",
            "6:15: checkpoints.disk: unknown key; did you mean `max_disk`?",
        ),
        line(
            "a number in place of a mapping",
            "checkpoints: 5",
            "6:14: checkpoints: must be a mapping with keys per_trial, top, max_disk, predictions, "
            "got 5",
        ),
        line(
            "a grid",
            "checkpoints: {top: {grid: [1, 2]}}",
            "6:21: checkpoints.top: cannot be tuned (`grid`); only values under `space:` can be "
            "tuned",
        ),
    ),
    "Data as dimensions": (
        line(
            "a range of files",
            "data: {train: {uniform: [0, 1]}, label: y, valid: 0.25}",
            "2:15: data.train: must be a constant, a grid or a choice, not uniform",
        ),
        line(
            "an option that is not a source",
            "data: {train: {grid: [rows.csv, 3]}, label: y, valid: 0.25}",
            "2:33: data.train.grid.1: must be a path, a glob, a URI, sklearn:NAME or "
            "module:function, got 3",
        ),
        line(
            "more than all rows",
            "data: {train: rows.csv, label: y, valid: 0.25, rows: {choice: [0.5, 2]}}",
            "2:69: data.rows.choice.1: must be a number greater than 0 and at most 1, got 2",
        ),
        line(
            "a range that starts at 0 rows",
            "data: {train: rows.csv, label: y, valid: 0.25, rows: {uniform: [0, 1]}}",
            "2:54: data.rows: all values must be above 0 and at most 1, got {uniform: [0, 1]}",
        ),
        line(
            "a feature subset that is not a list",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: {choice: [age, plan]}}",
            "2:64: data.drop.choice.0: must be a list of columns, got age",
            "2:69: data.drop.choice.1: must be a list of columns, got plan",
        ),
        line(
            "the label in a feature subset",
            "data: {train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [y]]}}",
            "2:54: data.drop: must not contain the label, `y`",
        ),
    ),
}
