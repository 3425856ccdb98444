"""Bad input: wrong bounds and numbers, and values that YAML 1.1 reads differently."""

from __future__ import annotations

from tests.bad_input import Case, line, params, top, whole

CAUSES = (
    "must be a list whose entries are `lost` or names of exception classes, such as [lost, "
    "ConnectionError], got"
)
TABLE: dict[str, tuple[Case, ...]] = {
    "Bounds and options": (
        params(
            "reversed bounds",
            "eta: {uniform: [1, 0]}",
            "5:24: params.eta: uniform needs lower < upper, got [1, 0]",
        ),
        params(
            "equal bounds",
            "n: {randint: [3, 3]}",
            "5:22: params.n: randint needs lower < upper (upper is excluded), got [3, 3]",
        ),
        params(
            "a logarithmic range from 0",
            "eta: {loguniform: [0, 0.1]}",
            "5:24: params.eta: loguniform needs 0 < lower < upper, got [0, 0.1]",
        ),
        params(
            "a logarithmic range from below 0",
            "n: {lograndint: [-1, 10]}",
            "5:22: params.n: lograndint needs 0 < lower < upper (upper is excluded); the bounds "
            "are values, not exponents, got [-1, 10]",
        ),
        params(
            "NaN as a bound",
            "eta: {uniform: [.nan, 1]}",
            "5:34: params.eta: uniform [lower, upper]: lower must be finite, got .nan",
        ),
        params(
            "infinity as a bound",
            "eta: {uniform: [0, .inf]}",
            "5:37: params.eta: uniform [lower, upper]: upper must be finite, got .inf",
        ),
        params(
            "a range wider than a float can hold",
            "eta: {uniform: [-1e308, 1e308]}",
            "5:24: params.eta: uniform needs a range that a float can hold, got [-1e308, 1e308]",
        ),
        params(
            "a number too large for a float",
            "eta: {uniform: [0, 1e999]}",
            "5:37: 1e999 is too large for a float; write `.inf` for infinity",
        ),
        params(
            "a number too large for 64 bits",
            "n: {randint: [0, 99999999999999999999]}",
            "5:35: params.n: randint [lower, upper]: upper must be within 64 bits, got "
            "99999999999999999999",
        ),
        params(
            "too few numbers",
            "eta: {uniform: [0]}",
            "5:24: params.eta: uniform takes 2 numbers [lower, upper], got [0]",
        ),
        params(
            "too many numbers",
            "eta: {uniform: [0, 1, 2]}",
            "5:24: params.eta: uniform takes 2 numbers [lower, upper], got [0, 1, 2]",
        ),
        params(
            "q that does not divide the bounds",
            "eta: {quniform: [0, 1, 0.3]}",
            "5:24: params.eta: quniform needs an upper bound that is lower plus a multiple of q, "
            "got [0, 1, 0.3]",
        ),
        params(
            "q of zero",
            "eta: {quniform: [0, 1, 0]}",
            "5:24: params.eta: quniform needs q > 0, got [0, 1, 0]",
        ),
        params(
            "negative deviation",
            "eta: {randn: [0, -1]}",
            "5:24: params.eta: randn needs sd > 0, got [0, -1]",
        ),
        params(
            "a float for an integer",
            "n: {randint: [1, 2.5]}",
            "5:35: params.n: randint [lower, upper]: upper must be an integer, got 2.5",
        ),
        params(
            "text for a number",
            "eta: {uniform: ['0', 1]}",
            "5:34: params.eta: uniform [lower, upper]: lower must be a number, got '0'; write it "
            "without quotes",
        ),
        params(
            "bounds by name",
            "eta: {uniform: {lower: 0, upper: 1}}",
            "5:24: params.eta: uniform needs a list [lower, upper], got {lower: 0, upper: 1}",
        ),
        params(
            "a number in place of a list",
            "eta: {uniform: 3}",
            "5:24: params.eta: uniform needs a list [lower, upper], got 3",
        ),
        params(
            "empty grid",
            "eta: {grid: []}",
            "5:24: params.eta: grid needs a list with at least one option, got an empty list",
        ),
        params(
            "a grid without a value",
            "eta: {grid: }",
            "5:24: params.eta: grid needs a list with at least one option, got null",
        ),
        params(
            "empty choice",
            "eta: {choice: []}",
            "5:24: params.eta: choice needs a list with at least one option, got an empty list",
        ),
        params(
            "empty range",
            "eta: {uniform: []}",
            "5:24: params.eta: uniform takes 2 numbers [lower, upper], got []",
        ),
        params(
            "an option twice",
            "eta: {choice: [1, 2, 1.0]}",
            "5:39: params.eta: choice has the same option twice: 1.0 (options 1 and 3)",
        ),
        params(
            "one option in place of a list",
            "eta: {choice: adam}",
            "5:24: params.eta: choice needs a list with at least one option, got adam",
        ),
    ),
    "Values that YAML 1.1 reads in another way": (
        line(
            "yes for true",
            "space: {scaling: {use_gpu: yes}}",
            "5:28: scaling.use_gpu: must be true or false, got yes; write true",
        ),
        line(
            "no for a number",
            "limits: {max_trials: no}",
            "4:22: limits.max_trials: must be an integer of at least 1, got no",
        ),
        line(
            "true in quotes",
            "space: {scaling: {use_gpu: 'true'}}",
            "5:28: scaling.use_gpu: must be true or false, got 'true'; write it without quotes",
        ),
        line(
            "off for false",
            "space: {scaling: {use_gpu: off}}",
            "5:28: scaling.use_gpu: must be true or false, got off; write false",
        ),
        line(
            "1_000",
            "limits: {max_trials: 1_000}",
            "4:22: limits.max_trials: must be an integer of at least 1, got 1_000; write 1000",
        ),
        params(
            "1_000 as a bound",
            "n: {randint: [1, 1_000]}",
            "5:35: params.n: randint [lower, upper]: upper must be an integer, got 1_000; write "
            "1000",
        ),
        params(
            "on as a bound",
            "eta: {uniform: [on, 1]}",
            "5:34: params.eta: uniform [lower, upper]: lower must be a number, got on",
        ),
        line(
            "1:30 for minutes and seconds",
            "limits: {timeout: 1:30}",
            "4:19: limits.timeout: must be a time above 0 such as 90s, 30m, 1h30m or a number of "
            "seconds, got 1:30",
        ),
        params(
            "1:30 as a bound",
            "n: {randint: [1, 1:30]}",
            "5:35: params.n: randint [lower, upper]: upper must be an integer, got 1:30; YAML 1.2 "
            "has no numbers to base 60",
        ),
        params(
            "a date as a bound",
            "day: {uniform: [2019-01-01, 2019-02-01]}",
            "5:34: params.day: uniform [lower, upper]: lower must be a number, got 2019-01-01",
            "5:46: params.day: uniform [lower, upper]: upper must be a number, got 2019-02-01",
        ),
        line(
            "a number for a name",
            "name: 2019",
            "6:7: name: must be text, got 2019; put quotes around it",
        ),
        line(
            "true for a name",
            "objective: {metric: valid-logloss, goal: true}",
            "3:42: objective.goal: must be minimize or maximize, got true",
        ),
        params(
            "null for a number in a list",
            "eta: {uniform: [~, 1]}",
            "5:34: params.eta: uniform [lower, upper]: lower must be a number, got ~",
        ),
        whole(
            "a %YAML 1.1 directive",
            "%YAML 1.1",
            "%YAML 1.1\n---\n" + top(),
            "2:1: %YAML 1.1: a space file must be YAML 1.2; remove this line",
        ),
    ),
    "Numbers": (
        line(
            "reduction_factor of 1",
            "scheduler: {name: asha, max_t: 9, reduction_factor: 1}",
            "6:53: scheduler.reduction_factor: must be an integer of at least 2, got 1",
        ),
        line(
            "grace_period above max_t",
            "scheduler: {name: asha, max_t: 9, grace_period: 10}",
            "6:49: scheduler.grace_period: must be at most max_t, 9, got 10",
        ),
        line(
            "max_t of 0",
            "scheduler: {name: asha, max_t: 0}",
            "6:32: scheduler.max_t: must be an integer of at least 1, got 0",
        ),
        line(
            "zero workers",
            "space: {scaling: {num_workers: 0}}",
            "5:32: scaling.num_workers: must be an integer of at least 1 and at most 1000000, got "
            "0",
        ),
        line(
            "zero workers in a grid",
            "space: {scaling: {num_workers: {grid: [0, 1]}}}",
            "5:40: scaling.num_workers.grid.0: must be an integer of at least 1 and at most "
            "1000000, got 0",
        ),
        line(
            "half a worker",
            "space: {scaling: {num_workers: 1.5}}",
            "5:32: scaling.num_workers: must be an integer of at least 1 and at most 1000000, got "
            "1.5",
        ),
        line(
            "negative CPUs",
            "space: {scaling: {resources_per_worker: {CPU: -1}}}",
            "5:47: scaling.resources_per_worker.CPU: must be a number of at least 0 and at most "
            "1000000000000000, got -1",
        ),
        line(
            "NaN CPUs",
            "space: {scaling: {resources_per_worker: {CPU: .nan}}}",
            "5:47: scaling.resources_per_worker.CPU: must be a number of at least 0 and at most "
            "1000000000000000, got .nan",
        ),
        line(
            "max_trials of 0",
            "limits: {max_trials: 0}",
            "4:22: limits.max_trials: must be an integer of at least 1, got 0",
        ),
        line(
            "text for a number",
            "limits: {max_trials: '8'}",
            "4:22: limits.max_trials: must be an integer of at least 1, got '8'; write it without "
            "quotes",
        ),
        line(
            "fewer trials than cells",
            "space: {params: {a: {grid: [1, 2, 3, 4, 5]}}}",
            "4:22: limits.max_trials: must be at least the number of grid cells, 5, got 4",
        ),
        line(
            "a time of 0",
            "limits: {max_trials: 4, timeout: 0s}",
            "4:34: limits.timeout: must be a time above 0 such as 90s, 30m, 1h30m or a number of "
            "seconds, got 0s",
        ),
        line(
            "time in words",
            "limits: {max_trials: 4, timeout: 30 minutes}",
            "4:34: limits.timeout: must be a time above 0 such as 90s, 30m, 1h30m or a number of "
            "seconds, got 30 minutes",
        ),
        line(
            "max_concurrent_trials of 0",
            "limits: {max_trials: 4, max_concurrent_trials: 0}",
            "4:48: limits.max_concurrent_trials: must be `auto` or an integer of at least 1, got 0",
        ),
        line(
            "workers in words",
            "space: {scaling: {num_workers: two}}",
            "5:32: scaling.num_workers: must be an integer of at least 1 and at most 1000000, got "
            "two",
        ),
        line(
            "too many workers",
            "space: {scaling: {num_workers: 99999999}}",
            "5:32: scaling.num_workers: must be an integer of at least 1 and at most 1000000, got "
            "99999999",
        ),
        line(
            "retry_on that is not a list",
            "limits: {max_trials: 4, retry_on: lost}",
            f"4:35: limits.retry_on: {CAUSES} lost",
        ),
        line(
            "a name that cannot be an exception's",
            "limits: {max_trials: 4, retry_on: [lost, 5xx]}",
            f"4:35: limits.retry_on: {CAUSES} [lost, 5xx]",
        ),
        line(
            "negative retries",
            "limits: {max_trials: 4, max_failures: -1}",
            "4:39: limits.max_failures: must be an integer of at least 0, got -1",
        ),
        params(
            "several quantiles",
            "quantile_alpha: [0.2, 0.8]",
            "5:34: params.quantile_alpha: a model predicts one quantile; give one, and run a "
            "sweep for each of the others, got [0.2, 0.8]",
        ),
        line(
            "half a seed",
            "search: {seed: 0.5}",
            "6:16: search.seed: must be an integer of at least 0 and less than 4294967296, got 0.5",
        ),
        line(
            "a seed that is too large",
            "search: {seed: 4294967296}",
            "6:16: search.seed: must be an integer of at least 0 and less than 4294967296, got "
            "4294967296",
        ),
        line(
            "negative seed",
            "search: {seed: -1}",
            "6:16: search.seed: must be an integer of at least 0 and less than 4294967296, got -1",
        ),
        line(
            "a fraction of 1",
            "data: {train: rows.csv, valid: 1.0, label: y}",
            "2:32: data.valid: a fraction must be above 0 and below 1, got 1.0",
        ),
        line(
            "a fraction in quotes",
            "data: {train: rows.csv, valid: '0.2', label: y}",
            "2:32: data.valid: a fraction must be a number, got '0.2' (text); write it without "
            "quotes",
        ),
        line(
            "fractions that leave no train rows",
            "data: {train: rows.csv, valid: 0.6, test: 0.4, label: y}",
            "2:43: data.test: valid and test leave no rows to train on: 0.6 + 0.4 is not below 1",
        ),
    ),
}
