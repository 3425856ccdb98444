"""Train a booster of LightGBM, and write checkpoints.

A checkpoint has the best model and its predictions.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import numpy as np

from sweeps import trial
from sweeps.core.metrics import OWN, USUAL

from . import LabeledRows, Params, read_rows, require_numbers, safe_names
from ._metrics import SPLITS, measure
from ._requested import RequestedMetrics
from ._rounds import BoostingSteps

if TYPE_CHECKING:
    import pandas as pd

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
LARGE = 400_000  # from this number of values in a rank's table, a round takes several milliseconds
REFUSED_IN_NAMES = ' \t\n[]{}",:'
# LightGBM's names of the metrics in `sweeps.core.metrics`. `multi_error` is not among them: it
# counts ties between classes as errors.
NATIVE = {
    "binary": {
        "logloss": "binary_logloss",
        "error": "binary_error",
        "auc": "auc",
        "rmse": "rmse",
        "mae": "l1",
        "mse": "l2",
    },
    "multiclass": {"mlogloss": "multi_logloss", "logloss": "multi_logloss"},
    "regression": {"rmse": "rmse", "mae": "l1", "mse": "l2"},
}
# Tiny tables, with which LightGBM is asked whether it knows a metric.
TINY: dict[str, tuple[list[float], Params]] = {
    "binary": ([0, 1, 0, 1], {"objective": "binary"}),
    "multiclass": ([0, 1, 2, 0], {"objective": "multiclass", "num_class": 3}),
    "regression": ([1.0, 2.0, 3.0, 4.0], {"objective": "regression"}),
}


def metric_name(task: str, split: str, metric: str) -> str | None:
    """Return LightGBM's name of a metric.

    Return None if LightGBM does not have the metric, or defines it in another way.

    Args:
        task: "binary", "multiclass" or "regression".
        split: "train" or "valid". The name does not depend on it.
        metric: Name of the metric without a split.
    """
    return NATIVE[task].get(metric) if metric in OWN else _own_name(task, metric)


@functools.lru_cache(maxsize=64)
def _own_name(task: str, metric: str) -> str | None:
    """Return the name under which LightGBM reports one of its metrics.

    A name that LightGBM does not know gives None.
    """
    label, params = TINY[task]
    params = params | metric_parameters([metric])
    params |= {"verbosity": -1, "num_threads": 1, "min_data_in_bin": 1}
    try:
        data = lgb.Dataset(np.arange(4.0).reshape(4, 1), label, group=[4], params=params)
        results = lgb.Booster(params, data).eval_train()
    except lgb.basic.LightGBMError:
        return None
    return str(results[0].metric_name) if len(results) == 1 else None


def metric_parameters(metrics: Sequence[str]) -> Params:
    """Return LightGBM's parameters for metrics, which may have a position such as `ndcg@5`."""
    names = [name.partition("@")[0] for name in metrics]
    params: Params = {"metric": names or "None"}
    positions = re.findall(r"@(\d+)", " ".join(metrics))
    if positions:
        params["eval_at"] = positions
    return params


def predict(
    booster: lgb.Booster, features: pd.DataFrame, threads: int, rounds: int = -1
) -> np.ndarray:
    """Predict rows with the first rounds of a booster.

    Args:
        booster: The model.
        features: The rows.
        threads: Number of threads; 0 for all CPUs. LightGBM also uses this number for the next
            rounds of training.
        rounds: Number of rounds to use; -1 for all.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k
        classes, shape (n, k); or the values of a regression, shape (n,).
    """
    if not len(features):  # LightGBM refuses a table without rows
        outputs = booster.num_model_per_iteration()
        return np.zeros((0, outputs) if outputs > 1 else 0)
    return np.asarray(
        booster.predict(_with_safe_names(features), num_iteration=rounds, num_threads=threads),
        np.float64,
    )


class LightGBMTraining(BoostingSteps):
    """The training of one booster. A step is a round.

    Args:
        cur: The trial.
        config: The trial's `params`.
        params: LightGBM's parameters, without metrics.

    Attributes:
        rows: This rank's rows of "train" and "valid".
        best_rounds: Number of rounds of the best model. It is less than `best` if rounds have grown
            no tree. -1 if there is no best round yet.
        best_text: The best model as text, if later rounds change its trees.
        previous: The model from which the trial continues; None to start with no trees.
    """

    def __init__(self, cur: trial.Current, config: Params, params: Params):
        translate = functools.partial(metric_name, str(cur.task))
        requested = RequestedMetrics(config, cur, USUAL, translate)
        if cur.weight is not None:
            requested.compute_train()
        super().__init__(cur, config, requested)
        self.rows: dict[str, LabeledRows] = {
            split: cur.cached(f"lightgbm.{split}", functools.partial(_rows, split, cur))
            for split in SPLITS
        }
        self.params = params | metric_parameters(requested.framework_metrics(requested.reported))
        self.best_rounds = -1
        self.best_text: str | None = None
        self.previous: lgb.Booster | None = None
        self.booster: lgb.Booster | None = None
        # LightGBM draws rows at every multiple of this number of rounds.
        self.frequency = params["bagging_freq"] if _draws_rows(params) else 1
        if _can_continue(params) and (_draws_rows(params) or _draws_columns(params)):
            self.renewals = self.rounds.renewal_rounds(self._renewal_interval(), self.frequency)

    def train(self) -> None:
        """Train all rounds, and report those that are due."""
        if self.rounds.is_last(self.step, self.best):  # patience had ended this trial
            return
        try:
            self.run(0 if self.previous is None else self.step)
        finally:
            if self.booster is not None:
                # When Python deletes this booster later, the booster must not close the network of
                # the next trial.
                self.booster.free_network()

    def grow(self, step: int) -> None:
        """Train a round. The first round creates the booster."""
        if self.booster is not None:
            self.booster.update()
            return
        params = self.params | ({} if self.renewals is None else self._seeds(step))
        train, valid = self._datasets()
        self.booster = lgb.train(
            params,
            train,
            num_boost_round=1,
            valid_sets=[valid],
            valid_names=["valid"],
            init_model=self.previous,
            keep_training_booster=True,
        )

    def _datasets(self) -> tuple[lgb.Dataset, lgb.Dataset]:
        """Return LightGBM's data sets of train and valid, which an earlier trial may have built.

        The worker keeps one pair for new trials and one pair for trials that continue from a model,
        because LightGBM stores the predictions of this model in the data set. A pair is built again
        if a parameter of the data set has another value.
        """
        params = self.params
        wanted = {name: params[name] for name in DATASET_PARAMETERS if name in params}
        # Parameters and pair of data sets, by True for trials that continue from a model.
        cache: dict[bool, tuple[Params, lgb.Dataset, lgb.Dataset]]
        cache = self.cur.cached("lightgbm.datasets", dict)
        continues = self.previous is not None
        if continues not in cache or cache[continues][0] != wanted:
            settings = wanted | {name: params[name] for name in ("num_threads", "verbosity")}

            def dataset(split: str, reference: lgb.Dataset | None) -> lgb.Dataset:
                rows = self.rows[split]
                return lgb.Dataset(
                    _with_safe_names(rows.features),
                    rows.label,
                    reference=reference,
                    weight=rows.weight,
                    group=None if rows.query is None else np.bincount(rows.query),
                    params=settings,
                    free_raw_data=False,
                )

            train = dataset("train", None)
            cache[continues] = (wanted, train, dataset("valid", train))
        _, train, valid = cache[continues]
        return train, valid

    def _renewal_interval(self) -> int:
        """Return the number of rounds between two calls of `renew`.

        LightGBM samples rows and columns with random states that no model file contains. The states
        therefore get new seeds at fixed rounds, and only these rounds have checkpoints. A resumed
        trial then grows the same trees as an uninterrupted one. A small table has about 50 rounds
        between two calls, because a call takes as long as a round; a table with at least `LARGE`
        values has 1 round. The number is a multiple of `bagging_freq`, because LightGBM counts
        rounds from 0 again after a resume.
        """
        interval = 1 if self.rows["train"].features.size >= LARGE else 50
        return self.frequency * math.ceil(interval / self.frequency)

    def _seeds(self, step: int) -> dict[str, int]:
        """Return the seeds of all random states from a round on."""
        numbers = [self.params["seed"], step, *(self.params.get(name, 0) for name in SEEDS)]
        seed = np.random.SeedSequence(numbers).generate_state(1)[0] >> 1  # below 2**31
        return dict.fromkeys(SEEDS, int(seed))

    def renew(self, step: int) -> None:
        """Give LightGBM's random states new seeds.

        They then equal the random states of a new booster that starts at round `step`.
        """
        assert self.booster is not None
        changed = self._seeds(step)
        if _draws_rows(self.params):
            # The random state of bagging gets a new seed only if bagging changes.
            changed["bagging_freq"] = self.frequency
            self.booster.reset_parameter({"bagging_freq": self.frequency + 1})
        self.booster.reset_parameter(changed)

    def measure(self) -> dict[str, float]:
        """Measure the last round."""
        measured: dict[tuple[str, str], float] = {}
        for split in SPLITS:
            computed = [name for name in self.requested.computed if name.startswith(split)]
            if computed or split in self.requested.splits:
                compute = functools.partial(self._compute, split, computed) if computed else None
                for _, name, value, *_ in self._eval(split, compute):
                    measured[split, name] = float(value)
        # Metrics that sweeps computes are not in `names`. LightGBM returns them by full names.
        names = self.requested.framework_names
        return {
            name: measured[name.partition("-")[0], names.get(name, name)]
            for name in self.requested.reported
        }

    def _eval(self, split: str, function: Callable[..., Any] | None) -> list[Any]:
        """Let LightGBM evaluate its metrics and a function of predictions on a split.

        Return a tuple for each metric: name of the data set, name and value of the metric, and True
        if larger values are better.
        """
        assert self.booster is not None
        evaluate = self.booster.eval_valid if split == "valid" else self.booster.eval_train
        return evaluate(function)

    def _compute(
        self, split: str, names: Sequence[str], predictions: np.ndarray, data: lgb.Dataset
    ) -> list[tuple[str, float, bool]]:
        """Compute the metrics that LightGBM does not have.

        LightGBM calls this method with predictions for all rows of a split.
        """
        values = measure(
            str(self.cur.task), split, np.asarray(data.get_label()), y_pred=predictions, names=names
        )
        return [(name, value, False) for name, value in values.items()]

    def keep(self) -> None:
        """Note the rounds of the best model. Keep the model, if later rounds change its trees."""
        assert self.booster is not None
        self.best_rounds = self.booster.current_iteration()
        if self.params["boosting"] == "dart":
            self.best_text = self.booster.model_to_string(num_iteration=-1)

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the model of the best round, with the metrics that sweeps has."""
        return self.requested.measure_final(reported, self._predict_split)

    def _predict_split(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels of a split and the predictions of the model of the best round."""
        rows = self.rows[split]
        if not self.is_best:
            return rows.label, self._predict(rows.features)
        # LightGBM has the predictions of the last round, and passes them to functions of metrics.
        copies: list[np.ndarray] = []

        def copy_predictions(array: np.ndarray, _: lgb.Dataset) -> list[tuple[str, float, bool]]:
            copies.append(array.copy())
            return []

        self._eval(split, copy_predictions)
        return rows.label, copies[0]

    def _predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict rows with the model of the best round."""
        assert self.booster is not None
        if self.best_text is not None:
            return predict(lgb.Booster(model_str=self.best_text), features, self.cur.threads)
        return predict(self.booster, features, self.cur.threads, rounds=self.best_rounds)

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best round, and that of the last round if it is another one."""
        assert self.booster is not None
        if self.best_text is not None:
            (folder / "model.txt").write_text(self.best_text)
        else:
            self.booster.save_model(folder / "model.txt", num_iteration=self.best_rounds)
        if not self.is_best:
            self.booster.save_model(folder / "latest.txt", num_iteration=-1)
        return None if self.cur.check is None else self._predict(self.cur.check)

    def load(self, folder: Path) -> None:
        """Restore the models that `save` wrote, as far as the training can continue from them."""
        best = folder / "model.txt"
        latest = folder / "latest.txt"
        self.best_rounds = lgb.Booster(model_file=best).current_iteration()
        if self.params["boosting"] == "dart":
            self.best_text = best.read_text()
        if _can_continue(self.params):
            self.previous = lgb.Booster(model_file=latest if latest.exists() else best)


def _can_continue(params: Params) -> bool:
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


def _draws_rows(params: Params) -> bool:
    """Return whether rounds are trained on random parts of the rows."""
    fractions = ("bagging_fraction", "pos_bagging_fraction", "neg_bagging_fraction")
    return params.get("bagging_freq", 0) > 0 and any(params.get(name, 1) < 1 for name in fractions)


def _draws_columns(params: Params) -> bool:
    """Return whether trees are grown with random columns or thresholds."""
    fractions = ("feature_fraction", "feature_fraction_bynode")
    return bool(params.get("extra_trees")) or any(params.get(name, 1) < 1 for name in fractions)


def _with_safe_names(features: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with names of columns that LightGBM accepts."""
    return features.set_axis(safe_names(features.columns, REFUSED_IN_NAMES), axis=1)


def _rows(split: str, cur: trial.Current) -> LabeledRows:
    """Return this rank's rows of `train` or `valid`."""
    rows = read_rows(split, cur)
    require_numbers(rows.features, accepted_dtype="category")
    return rows
