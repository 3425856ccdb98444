"""The keys of `search`, `scheduler` and `limits`: their values, and which exclude each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from sweeps.core.plugins import plugin_registry
from sweeps.core.resources import COSTS
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.median import Median
from sweeps.search.schedulers.none import NoScheduler
from sweeps.search.schedulers.pbt import Pbt
from sweeps.space import Constraint, InitialPoint, Repeats, load
from sweeps.space.sections.search_sections import option_names

HEAD = {
    "trainer": "xgboost",
    "data": "{train: d.csv, valid: 0.2, label: y}",
    "objective": "{metric: m, goal: minimize}",
    "limits": "{max_trials: 20}",
    "space": "{params: {eta: {uniform: [0, 1]}, booster: {choice: [gbtree, dart]}, "
    "drop: {uniform: [0, 1], when: {params.booster: dart}}}}",
}
TWO = "[{metric: error, goal: minimize}, {metric: seconds, goal: minimize}]"


def top(**changes: str | None) -> str:
    return "".join(
        f"{key}: {value}\n" for key, value in (HEAD | changes).items() if value is not None
    )


class TestWhatIsTaken:
    @pytest.mark.parametrize("metric", COSTS)
    def test_what_a_trial_costs_is_a_metric(self, write: Any, metric: Any) -> None:
        space = load(
            write(
                top(
                    objective=f"{{metric: {metric}, goal: minimize}}",
                    constraints=f"{{{metric}: '<= 60'}}",
                )
            )
        )
        assert space.objective.metric == metric and space.constraints == (
            Constraint(metric, "<=", 60.0),
        )

    def test_constraints(self, write: Any) -> None:
        space = load(write(top(constraints='{latency_ms: "<= 5", recall: ">0.9"}')))
        assert space.constraints == (
            Constraint("latency_ms", "<=", 5.0),
            Constraint("recall", ">", 0.9),
        )
        latency = space.constraints[0]
        assert (latency.holds(5.0), latency.holds(5.1), latency.holds(float("nan"))) == (
            True,
            False,
            False,
        )
        assert load(write(top())).constraints == ()

    @pytest.mark.parametrize(
        ("yaml", "repeats"),
        [
            ("3", Repeats(3, "mean")),
            ("{count: 5, aggregate: median}", Repeats(5, "median")),
            (None, Repeats(1, "mean")),
        ],
    )
    def test_repeats(self, write: Any, yaml: str | None, repeats: Any) -> None:
        assert load(write(top(repeats=yaml))).repeats == repeats

    @pytest.mark.parametrize(
        ("yaml", "scheduler"),
        [
            ("{name: hyperband, max_t: 81}", Hyperband(81)),
            (
                "{name: hyperband, max_t: 81, brackets: 2, reduction_factor: 4}",
                Hyperband(81, 1, 4, brackets=2),
            ),
            ("{name: median, grace_period: 3}", Median(None, 3, min_trials=5)),
            ("{name: pbt, perturbation_interval: 4, population: 20}", Pbt(4, population=20)),
            ("{name: asha, max_t: 9}", Asha(9)),
            ("{name: asha, max_t: 9, type: promotion}", Asha(9, type="promotion")),
            ("{name: none, max_t: 9}", NoScheduler(9)),
        ],
    )
    def test_schedulers(self, write: Any, yaml: str, scheduler: Any) -> None:
        spec = load(write(top(scheduler=yaml))).scheduler
        assert plugin_registry.built_in("scheduler", spec.name) is type(
            scheduler
        ) and spec.options == asdict(scheduler)

    @pytest.mark.parametrize("algorithm", plugin_registry.names("sampler"))
    def test_algorithms_and_their_options(self, write: Any, algorithm: Any) -> None:
        values = {
            "deterministic_objective": "true",
            "scramble": "false",
            "qmc_type": "halton",
            "sigma0": "0.5",
            "cost": "seconds",
        }
        options = {
            name: values.get(name, "0.5" if name.endswith("_prob") else "4")
            for name in option_names("sampler", algorithm)
        }
        space = HEAD["space"] if algorithm != "grid" else "{params: {a: {grid: [1, 2]}}}"
        yaml = (
            f"{{algorithm: {algorithm}, options: "
            f"{{{', '.join(f'{k}: {v}' for k, v in options.items())}}}}}"
        )
        search = load(write(top(search=yaml, space=space))).search
        assert search.algorithm == algorithm and set(search.options or {}) == set(options)

    def test_initial_points(self, write: Any) -> None:
        points = (
            "[{params.eta: 0.5}, {params.booster: dart, params.eta: 1, params.drop: 0.25, value: "
            "0.7}, {params.booster: gbtree}]"
        )
        initial_points = load(
            write(top(search=f"{{initial_points: {points}}}"))
        ).search.initial_points
        assert initial_points == (
            InitialPoint({"params.eta": 0.5}),
            InitialPoint(
                {"params.booster": "dart", "params.eta": 1.0, "params.drop": 0.25}, (0.7,)
            ),
            InitialPoint({"params.booster": "gbtree"}),
        )
        of_two = "[{params.booster: gbtree, params.eta: 1, value: [0.7, 12]}]"
        assert load(
            write(top(search=f"{{initial_points: {of_two}}}", objective=TWO))
        ).search.initial_points[0].values == (0.7, 12.0)

    def test_initial_points_are_keys_that_are_sampled(self, write: Any) -> None:
        space = (
            "{preprocessor: {grid: [none, [SimpleImputer, StandardScaler]]}, params: {n: {randn: "
            "[3, 2]}, q: {quniform: [0, 1, 0.25]}}}"
        )
        (point,) = load(
            write(
                top(
                    space=space,
                    search="{initial_points: [{preprocessor: 1, params.n: 3, params.q: 0.75}]}",
                )
            )
        ).search.initial_points
        assert point.keys == {
            "preprocessor": "SimpleImputer+StandardScaler",
            "params.n": 0.5,
            "params.q": 0.75,
        }

    def test_final_model_trains_on_fraction_test_split_only(self, write: Any) -> None:
        for test, bundle, splits in (
            ("0.1", "{train_on: all}", ("train", "valid", "test")),
            ("0.1", None, ("train", "valid")),
            ("0.1, group: g", "{train_on: all}", ("train", "valid", "test")),
            ("other.csv", "{train_on: all}", ("train", "valid")),
            ("{column: s, value: t}", "{train_on: all}", ("train", "valid")),
            ("{time: day, last: 0.1}", "{train_on: all}", ("train", "valid")),
            ("null", "{train_on: all}", ("train", "valid")),
        ):
            data = f"{{train: d.csv, valid: 0.2, label: y, test: {test}}}"
            space = load(write(top(data=data, bundle=bundle)))
            assert space.refit_splits == splits and space.trains_winner == (bundle is not None)


ALL = {"bundle": "{train_on: all}"}
AVERAGE = {"bundle": "{ensemble: 4}"}
INVALID = [
    ({"bundle": "{ensemble: 0}"}, "bundle.ensemble: must be an integer of at least 1, got 0"),
    (
        AVERAGE | {"objective": TWO},
        "bundle.ensemble: needs a single objective, but this sweep has 2:",
    ),
    (
        AVERAGE | {"objective": "{metric: seconds, goal: minimize}"},
        "bundle.ensemble: cannot choose models by the objective `seconds`, because it is a cost",
    ),
    (
        AVERAGE | {"trainer": "{loop: 'tests.user_loops:plain'}"},
        "bundle.ensemble: needs the key `load` of the trainer",
    ),
    (
        AVERAGE
        | {"checkpoints": "{predictions: 1}"}
        | {"objective": "{metric: valid-logloss, goal: minimize}"},
        (
            "bundle.ensemble: averages models of several trials, chosen by their predictions for "
            "valid; `checkpoints.predictions` is 1, but must be at least 2"
        ),
    ),
    (ALL | {"bundle": "{train_on: both}"}, "bundle.train_on: must be train or all, got both"),
    (
        ALL | {"objective": TWO},
        (
            "bundle.train_on: `all` needs a single objective, because several objectives have no "
            "single winner; leave the section out"
        ),
    ),
    (
        ALL | {"scheduler": "{name: pbt, perturbation_interval: 4}"},
        (
            "bundle.train_on: `all` does not work under pbt, whose trials copy checkpoints of "
            "other "
            "trials; leave the section out"
        ),
    ),
    (
        ALL | {"trainer": "{loop: 'tests.user_loops:plain'}", "data": None},
        (
            "bundle.train_on: `all` needs the section `data`, because a loop that reads its own "
            "data "
            "chooses the rows; leave the section out"
        ),
    ),
    (
        {"scheduler": "{name: pbt, perturbation_interval: 4}", "checkpoints": "{top: 5}"},
        (
            "checkpoints: cannot be limited under pbt, because its trials continue from the "
            "checkpoints of other trials"
        ),
    ),
    ({"objective": "[]"}, "objective: must be a mapping or a list of mappings, got an empty list"),
    (
        {
            "objective": "{metric: gpu_seconds, goal: minimize}",
            "scheduler": "{name: asha, max_t: 9}",
        },
        "scheduler.name: must be none, because a scheduler compares running trials, but "
        "`gpu_seconds` is known only after a trial has "
        "ended; got asha",
    ),
    (
        {
            "objective": "{metric: seconds, goal: minimize}",
            "scheduler": '{name: "sweeps.search.schedulers.median:Median"}',
        },
        "scheduler.name: must be none, because a scheduler compares running trials, but `seconds` "
        "is known only after a trial has ended; "
        "got sweeps.search.schedulers.median:Median, and sweeps assumes that a scheduler of yours "
        "compares running trials",
    ),
    (
        {"objective": TWO, "search": "{algorithm: cmaes}"},
        (
            "search.algorithm: must be tpe, random, grid, gp, qmc or nsga2 for several "
            "objectives, "
            "got cmaes"
        ),
    ),
    (
        {"objective": TWO, "limits": "{max_trials: 9, target: 1}"},
        "limits.target: is allowed only for one objective, but the file has several",
    ),
    (
        {"constraints": "3"},
        (
            'constraints: must be a mapping of metrics to comparisons, such as {latency_ms: "<= '
            '5"}, '
            "got 3"
        ),
    ),
    ({"repeats": "{cuont: 3}"}, "repeats.cuont: unknown key; did you mean `count`?"),
    (
        {"scheduler": "{name: asha, max_t: 9, type: pausing}"},
        "scheduler.type: must be stopping or promotion, got pausing",
    ),
    (
        {"scheduler": "{name: none, grace_period: 3}"},
        (
            "scheduler.grace_period: is a key of asha, hyperband, median, not of none; "
            "keys "
            "of none: max_t"
        ),
    ),
    (
        {"scheduler": "{name: pbt, perturbation_interval: 3, quantile_fraction: 0.6}"},
        "greater than 0 and at most 0.5, got 0.6",
    ),
    (
        {"scheduler": "{name: pbt, perturbation_interval: 3, max_t: 2}"},
        "scheduler.perturbation_interval: must be at most max_t, 2, got 3",
    ),
    (
        {"scheduler": "{name: pbt, perturbation_interval: 3, population: 30}"},
        (
            "scheduler.population: must be equal to limits.max_trials, 20, because every trial of "
            "pbt "
            "is in the population; got 30"
        ),
    ),
    (
        {
            "scheduler": "{name: pbt, perturbation_interval: 3}",
            "limits": "{max_trials: 20, max_concurrent_trials: 4}",
        },
        "limits.max_concurrent_trials: must be at least 20, the population of pbt, because all "
        "its members start before any of them "
        "ends; got 4",
    ),
    (
        {"scheduler": "{name: pbt, perturbation_interval: 3}", "repeats": "2"},
        (
            "repeats.count: must be 1 under pbt, whose members change their parameters as they "
            "train; "
            "got 2"
        ),
    ),
    (
        {
            "scheduler": "{name: pbt, perturbation_interval: 3}",
            "space": "{params: {eta: {grid: [0, 1]}}}",
        },
        (
            "scheduler.name: pbt changes the sampled dimensions of `params`, but `params` has no "
            "sampled dimension"
        ),
    ),
    (
        {"search": "{algorithm: gp, options: {popsize: 3}}"},
        "search.options.popsize: unknown option of gp; `popsize` is an option of cmaes",
    ),
    (
        {"search": "{algorithm: random, options: {a: 3}}"},
        "search.options.a: unknown option of random; random has no options",
    ),
    (
        {"search": "{portfolio: xgboost}", "space": "{params: {eta: {grid: [0, 1]}}}"},
        "search.portfolio: has no effect, because no dimension is sampled; leave this key out",
    ),
    (
        {"search": "{portfolio: xgbost}"},
        "search.portfolio: must be xgboost, got xgbost; did you mean `xgboost`?",
    ),
    (
        {"search": "{initial_points: [3]}"},
        "search.initial_points.0: must be a mapping of dimensions to values",
    ),
    (
        {"search": "{initial_points: [{params.eta: 2}]}"},
        "search.initial_points.0.params.eta: must be within its bounds, 0 to 1, got 2",
    ),
    (
        {"search": "{initial_points: [{params.booster: gbtree, params.drop: 0.5}]}"},
        "search.initial_points.0.params.drop: is inactive with the other values of this point",
    ),
    (
        {"search": "{initial_points: [{params.booster: dart, value: 0.5}]}"},
        (
            "search.initial_points.0: a point with `value` must have a value for every active "
            "dimension; missing: params.eta, params.drop"
        ),
    ),
    (
        {
            "search": "{initial_points: [{params.booster: gbtree, params.eta: 1, value: 1}]}",
            "objective": TWO,
        },
        "value: must be a list of 2 numbers, one for each objective, got 1",
    ),
]


@pytest.mark.parametrize(
    ("changes", "piece"),
    INVALID,
    ids=[f"{i}: {piece[:60]}" for i, (_, piece) in enumerate(INVALID)],
)
def test_one_clear_line(lines: Any, changes: dict[str, str], piece: str) -> None:
    (line,) = lines(top(**changes))
    assert piece in line
