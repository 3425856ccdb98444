"""Train gradient-boosted trees with LightGBM, on one or several workers.

A step is a boosting round.

`params` has LightGBM's own parameters, and `num_boost_round` (default: the scheduler's `max_t`, or
100). The objective, the number of classes, the number of threads and the seed follow from the
trial, unless `params` sets them. A column of the pandas type `category` is a categorical feature,
and the saved model has its categories. `params.patience` ends the training earlier.
`sweeps.trainers._rounds` chooses the rounds that are reported.

A report has only the metrics named in the objectives, the constraints and `params.eval_metric`,
because each metric takes time. The metrics of `eval_metric` are measured on valid. Names are those
of `sweeps.core.metrics`, or LightGBM's own.

If the trial is not stopped, more metrics are measured after the last round, on train and valid, for
the model of the best round (`Current.report_final`).

With several workers, each worker measures the metrics of train on its own part of the rows, because
LightGBM does so. sweeps uses the metrics of rank 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np

from sweeps import trial
from sweeps.trainers import (
    LabeledRows,
    constraints_by_position,
    main_names,
    read_rows,
    report,
    require_numbers,
    safe_names,
)
from sweeps.trainers._lightgbm_booster import (
    REFUSED_IN_NAMES,
    BestRound,
    RoundMetrics,
    metric_name,
    metric_parameters,
    predict,
)
from sweeps.trainers._metrics import REPORTED
from sweeps.trainers._requested import RequestedMetrics
from sweeps.trainers._rounds import Rounds, agree, max_rounds

if TYPE_CHECKING:
    import pandas as pd

OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}
# Parameters of the trainer, which LightGBM does not have
OWN = ("num_boost_round", "patience", "eval_metric")
# Parameters that the trainer sets itself
RESERVED = ("num_iterations", "num_rounds", "max_iter", "metrics", "early_stopping_round")
# Parameters of the data set. They cannot change after the data set is made.
DATASET_PARAMETERS = (
    "bin_construct_sample_cnt",
    "data_random_seed",
    "enable_bundle",
    "feature_pre_filter",
    "is_enable_sparse",
    "linear_tree",
    "max_bin",
    "max_bin_by_feature",
    "min_data_in_bin",
    "pre_partition",
    "use_missing",
    "zero_as_missing",
)
SEEDS = ("bagging_seed", "feature_fraction_seed", "extra_seed")
NARROW = 50  # a table with fewer columns has its histograms built row by row
FEW = 2_000  # up to this number of rows, a loaded model predicts with one thread
LARGE = 400_000  # from this number of values in a rank's table, a round takes several milliseconds


def train_func(config: dict[str, Any]) -> None:
    """Train one booster, and keep the model of the best round that is reported.

    Args:
        config: The trial's `params`: LightGBM's parameters, and the trainer's own (`OWN`).

    Raises:
        ValueError: The data has no label, a column is not numeric, a parameter is refused, or a
            requested metric is unknown.
    """
    import ray.train

    cur, rank = trial.current(), ray.train.get_context().get_world_rank()
    config = main_names("lightgbm", config, RESERVED)
    requested = RequestedMetrics.of(
        config, cur, REPORTED, functools.partial(metric_name, str(cur.task))
    )
    most = int(config.get("num_boost_round") or cur.max_t or max_rounds(config, 100))
    rounds = Rounds.of(config, most, cur.max_t)
    if cur.weight is not None:
        requested = requested.with_computed_train(str(cur.task))
    rows = {
        split: cur.cached(f"lightgbm.{split}", functools.partial(_rows, split, cur))
        for split in ("train", "valid")
    }
    params = parameters(config, cur, list(rows["train"].features.columns)) | _network()
    params |= metric_parameters(requested.framework_metrics(requested.reported))
    best = BestRound(cur, params["boosting"] == "dart")
    previous, done = _restore(best, _can_continue(params))
    if rounds.is_last(done, best.step):
        return
    training = _Training(
        cur,
        rank,
        params,
        patient=bool(config.get("patience")),
        requested=requested,
        rounds=rounds,
        rows=rows,
        best=best,
        previous=previous,
        done=done,
    )
    training.run()


@dataclass
class _Training:
    """The training of one booster.

    Attributes:
        cur: The trial.
        rank: Rank of this worker.
        params: LightGBM's parameters.
        patient: True if `params.patience` is set.
        requested: The requested metrics.
        rounds: The rounds of the trial.
        rows: Rows of "train" and "valid".
        best: The best round.
        previous: The model from which the trial continues; None to start with no trees.
        done: Number of rounds before the checkpoint.
    """

    cur: trial.Current
    rank: int
    params: dict[str, Any]
    patient: bool
    requested: RequestedMetrics
    rounds: Rounds
    rows: dict[str, LabeledRows]
    best: BestRound
    previous: lgb.Booster | None
    done: int

    def __post_init__(self) -> None:
        params, continued = self.params, self.previous is not None
        self.train, self.valid = _datasets(self.cur, self.rows, params, continued=continued)
        self.metrics_of = RoundMetrics(self.requested, str(self.cur.task))
        self.interval = _renewal_interval(params, self.rows["train"].features.size)
        frequency = params["bagging_freq"] if _draws_rows(params) else 1
        self.renewals = self.rounds.resumable(self.interval, frequency)

    def run(self) -> None:
        """Train all rounds, and report those that are due."""
        booster: lgb.Booster | None = None
        try:
            for step in self.rounds.after(0 if self.previous is None else self.done, self.best):
                booster = self._next_round(booster, step)
                if step <= self.done:  # a round before the checkpoint, which is trained again
                    continue
                if self.cur.report_due(step, step in self.rounds.reported):
                    self._report(booster, step)
        finally:
            if booster is not None:
                # when Python deletes this booster later, the booster must not close the network of
                # the next trial
                booster.free_network()

    def _next_round(self, booster: lgb.Booster | None, step: int) -> lgb.Booster:
        """Train a round. Return the booster, which is new if there was none."""
        params = self.params
        if booster is None:
            params = params | (_seeds(params, step) if self.interval else {})
            return _first_round(params, self.train, self.valid, previous=self.previous)
        if self.interval and self._renews_after(step - 1):
            _renew(booster, params, step)
        booster.update()
        return booster

    def _renews_after(self, step: int) -> bool:
        return step in self.renewals or step in self.cur.milestones

    def _report(self, booster: lgb.Booster, step: int) -> None:
        """Measure and report the last round, with a checkpoint if one is due."""
        cur, best = self.cur, self.best
        metrics = self.metrics_of.measure(booster)
        if best.compare(step, metrics, self.requested.lead):
            best.rounds = booster.current_iteration()
            best.text = booster.model_to_string(num_iteration=-1) if best.whole else None
        if self.patient:
            agree(best)
        is_last = self.rounds.is_last(step, best.step)
        resumable = not self.interval or is_last or self._renews_after(step)
        if (
            is_last and self.rank == 0
        ):  # before `report`, which ends the trial at the scheduler's `max_t`
            final = self.metrics_of.final(booster, best, step, rows=self.rows, reported=metrics)
            cur.report_final(final)
        due = self.rank == 0 and resumable and cur.checkpoint_due(step, last=is_last)
        report(metrics, functools.partial(best.save, booster, step) if due else None)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    return Model(lgb.Booster(model_file=str(Path(folder, "model.txt"))))


class Model:
    """A trained booster."""

    def __init__(self, booster: lgb.Booster):
        self.booster = booster

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Args:
            features: The training columns, in their order.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,).
        """
        return predict(self.booster, features, threads=1 if len(features) <= FEW else 0)


def parameters(
    config: dict[str, Any], cur: trial.Current, columns: Sequence[str]
) -> dict[str, Any]:
    """Return LightGBM's parameters: the defaults for the trial, overridden by `config`.

    `metric` is not included.

    Args:
        config: The trial's `params`.
        cur: The trial.
        columns: Names of the columns. `monotone_constraints` and `interaction_constraints` may name
            them.

    Raises:
        ValueError: A constraint names an unknown column.
    """
    given = {name: value for name, value in config.items() if name not in OWN}
    params: dict[str, Any] = {
        "objective": OBJECTIVES[str(cur.task)],
        "boosting": "gbdt",
        "num_threads": cur.threads,
        "seed": cur.seed % 2**31,
        "verbosity": -1,
        # Without these two, LightGBM adds numbers in another order in each run, and measures at the
        # start which histograms are faster.
        "deterministic": True,
        **_histograms(given, len(columns)),
        # One data set then serves trials with other values of `min_data_in_leaf` and `seed`.
        "feature_pre_filter": False,
        "data_random_seed": 1,
    }
    if cur.task == "multiclass":
        params["num_class"] = len(cur.classes or ())
    return params | given | constraints_by_position(given, columns)


def _histograms(given: dict[str, Any], columns: int) -> dict[str, bool]:
    """Choose how LightGBM builds histograms, unless `given` chooses.

    Row by row is up to 15 % faster for a narrow table.
    """
    if given.get("force_col_wise") or given.get("force_row_wise"):
        return {}
    return {"force_row_wise": columns < NARROW, "force_col_wise": columns >= NARROW}


def _network() -> dict[str, Any]:
    """Return the parameters that connect the workers of the trial; {} for a single worker."""
    import ray.train
    from ray.train.lightgbm import get_network_params

    if ray.train.get_context().get_world_size() == 1:
        return {}
    return {"pre_partition": True, "tree_learner": "data"} | get_network_params()


def _rows(split: str, cur: trial.Current) -> LabeledRows:
    """Return this rank's rows of `train` or `valid`."""
    rows = read_rows(split, cur)
    require_numbers(rows.features, also="category")
    return rows


def _datasets(
    cur: trial.Current, rows: dict[str, LabeledRows], params: dict[str, Any], continued: bool
) -> tuple[lgb.Dataset, lgb.Dataset]:
    """Return LightGBM's data sets of train and valid, which an earlier trial may have built.

    The worker keeps one pair for new trials and one pair for trials that continue from a model,
    because LightGBM stores the predictions of this model in the data set. A pair is built again if
    a parameter of the data set has another value.

    Args:
        cur: The trial.
        rows: Rows of "train" and "valid".
        params: LightGBM's parameters.
        continued: True if the trial continues from a model.
    """
    wanted = {name: params[name] for name in DATASET_PARAMETERS if name in params}
    kept = cur.cached("lightgbm.datasets", dict)
    if kept.get(continued, (None,))[0] != wanted:
        settings = wanted | {"num_threads": params["num_threads"], "verbosity": params["verbosity"]}

        def dataset(part: LabeledRows, reference: lgb.Dataset | None) -> lgb.Dataset:
            names = safe_names(part.features.columns, REFUSED_IN_NAMES)
            return lgb.Dataset(
                part.features.set_axis(names, axis=1),
                part.label,
                reference=reference,
                weight=part.weight,
                group=None if part.query is None else np.bincount(part.query),
                params=settings,
                free_raw_data=False,
            )

        train = dataset(rows["train"], None)
        kept[continued] = (wanted, train, dataset(rows["valid"], train))
    _, train, valid = kept[continued]
    return train, valid


def _restore(best: BestRound, can_continue: bool) -> tuple[lgb.Booster | None, int]:
    """Restore the best round from the checkpoint from which the trial continues.

    Args:
        best: The best round.
        can_continue: True if training can continue from the model of the last round.

    Returns:
        The model of the last round, and the number of rounds. The model is None if there is no
        checkpoint, or if the rounds must be trained again.
    """
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None, 0
    with checkpoint.as_directory() as folder:
        done, latest = best.restore(Path(folder)), Path(folder, "latest.txt")
        if not can_continue:
            return None, done
        return lgb.Booster(
            model_file=latest if latest.exists() else Path(folder, "model.txt")
        ), done


def _can_continue(params: dict[str, Any]) -> bool:
    """Return whether continued training grows the same trees as uninterrupted training.

    Otherwise the rounds before the checkpoint are trained again: `dart` changes the weights of
    earlier trees, a forest has one set of gradients, `goss` begins after some rounds, and no model
    file contains the random state of quantized gradients, the values of linear leaves in full, or
    the costs that CEGB has counted.
    """
    return (
        params["boosting"] == "gbdt"
        and params.get("data_sample_strategy", "bagging") == "bagging"
        and not params.get("use_quantized_grad")
        and not params.get("linear_tree")
        and not any(name.startswith("cegb_") for name in params)
    )


def _first_round(
    params: dict[str, Any], train: lgb.Dataset, valid: lgb.Dataset, previous: lgb.Booster | None
) -> lgb.Booster:
    """Create a booster, and train one round.

    If `previous` is given, the booster continues from this model.
    """
    if previous is not None:  # `lgb.train` is LightGBM's only public way to continue from a model
        return lgb.train(
            params, train, 1, [valid], ["valid"], init_model=previous, keep_training_booster=True
        )
    booster = lgb.Booster(params, train)
    booster.add_valid(valid, "valid")
    booster.update()
    return booster


def _renewal_interval(params: dict[str, Any], values: int) -> int:
    """Return the number of rounds between two calls of `_renew`; 0 if `_renew` is never called.

    LightGBM samples rows and columns with random states that no model file contains. The states
    therefore get new seeds at fixed rounds, and only these rounds have checkpoints. A resumed trial
    then grows the same trees as an uninterrupted one. A small table has about 50 rounds between two
    calls, because a call takes as long as a round; a table with at least `LARGE` values has 1
    round. The number is a multiple of `bagging_freq`, because LightGBM counts rounds from 0 again
    after a resume.

    If nothing is sampled, or if rounds are trained again after a resume, no call is needed.
    """
    if not _can_continue(params) or not (_draws_rows(params) or _draws_columns(params)):
        return 0
    frequency = params["bagging_freq"] if _draws_rows(params) else 1
    return frequency * math.ceil((1 if values >= LARGE else 50) / frequency)


def _draws_rows(params: dict[str, Any]) -> bool:
    fractions = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
    return params.get("bagging_freq", 0) > 0 and any(params.get(name, 1) < 1 for name in fractions)


def _draws_columns(params: dict[str, Any]) -> bool:
    return any(
        params.get(name, 1) < 1 for name in ("feature_fraction", "feature_fraction_bynode")
    ) or bool(params.get("extra_trees"))


def _seeds(params: dict[str, Any], step: int) -> dict[str, int]:
    """Return the seeds of all random states from a round on."""
    given = [params["seed"], step, *(params.get(name, 0) for name in SEEDS)]
    return dict.fromkeys(SEEDS, int(np.random.SeedSequence(given).generate_state(1)[0] >> 1))


def _renew(booster: lgb.Booster, params: dict[str, Any], step: int) -> None:
    """Give LightGBM's random states new seeds.

    They then equal the random states of a new booster that starts at round `step`.
    """
    frequency = {"bagging_freq": params["bagging_freq"]} if _draws_rows(params) else {}
    if frequency:  # the random state of bagging gets a new seed only if bagging changes
        booster.reset_parameter({"bagging_freq": params["bagging_freq"] + 1})
    booster.reset_parameter(frequency | _seeds(params, step))
