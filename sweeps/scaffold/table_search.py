"""Choose how a table is searched: splits, scheduler, limits and ranges of the parameters.

The functions are pure. The thresholds up to 12,000 rows were compared with `python -m benchmarks
tables run --dev`. Those of larger tables let the first trial train on some thousand rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# With fewer rows, each trial is a cross-validation, because a fifth of few rows says little.
FOLDS_BELOW = 5_000
FOLDS = 5
# From this number of rows on, rows are plenty, and a test split is cut off.
TEST_FROM = 50_000
# Trials of a table with at least 12,000 rows train on a ninth of the rows first, and so on.
PARTS = {12_000: 9, 100_000: 27, 500_000: 81}
# Limits of the boosting rounds. Each round grows a tree for each class, and a model with more trees
# predicts slowly.
MOST_ROUNDS = 4_000
MOST_TREES = 40_000
LEAST_ROUNDS = 200
# Rounds without an improvement after which a trial ends
PATIENCE = 50
TRAINERS = ("xgboost", "lightgbm", "catboost")
# Largest number of models in the bundle.
ENSEMBLE = 8
# The name of the parameter with the number of rounds.
_ROUNDS = {"xgboost": "num_boost_round", "lightgbm": "num_boost_round", "catboost": "iterations"}


@dataclass(frozen=True)
class TableSearch:
    """The splits, the scheduler and the parameters with which a table is searched.

    Attributes:
        folds: Number of folds of the cross-validation; 0 for a holdout of a fifth of the rows.
        has_test: True if a test split is cut off.
        scheduler: Value of the key `scheduler` and its comment; None for no scheduler.
        params: Entries of `params` for each trainer, each with its comment.
    """

    folds: int
    has_test: bool
    scheduler: tuple[str, str] | None
    params: dict[str, dict[str, str]]

    @property
    def trains_on_all(self) -> bool:
        """True if the models are trained again on all rows.

        After a cross-validation, the models of the folds have seen all rows together.
        """
        return not self.folds


def choose_search(
    trainers: Sequence[str], rows: int, classes: int, foldable: bool = True
) -> TableSearch:
    """Choose how a table is searched.

    Args:
        trainers: Some of `TRAINERS`.
        rows: Number of rows of the table.
        classes: Number of classes; 0 for a regression.
        foldable: False if folds would mix past and future, or a class lacks a row for each fold.
    """
    folds = FOLDS if rows < FOLDS_BELOW and foldable else 0
    scheduler = None
    if folds:
        scheduler = f"{{name: asha, max_t: {FOLDS}, grace_period: 1}}", "a step is a fold"
    elif rows >= min(PARTS):
        parts = max(parts for least_rows, parts in PARTS.items() if rows >= least_rows)
        scheduler = (
            f"{{name: asha, resource: data.rows, max_t: {parts}, grace_period: 1}}",
            f"trials begin with 1/{parts} of the rows; the best go on with more",
        )
    trees = f", each with {classes} trees" if classes > 2 else ""
    limit = f"at most{trees}; patience ends most trials"
    patience = {f"patience: {PATIENCE}": "rounds without an improvement on valid"}
    params = {}
    for trainer in trainers:
        rounds = {f"{_ROUNDS[trainer]}: {most_rounds(classes)}": limit}
        params[trainer] = rounds | patience | _PARAMS[trainer]
    return TableSearch(
        folds=folds,
        has_test=rows >= TEST_FROM,
        scheduler=scheduler,
        params=params,
    )


def trainers_for(classes: int) -> tuple[str, ...]:
    """Return the trainers of a table. CatBoost is too slow for many classes.

    >>> trainers_for(2), trainers_for(12)
    (('xgboost', 'lightgbm', 'catboost'), ('xgboost', 'lightgbm'))
    """
    return TRAINERS if classes <= 2 else TRAINERS[:-1]


def most_rounds(classes: int) -> int:
    """Return the largest number of boosting rounds, each of which grows a tree for each class.

    >>> most_rounds(2), most_rounds(50), most_rounds(1000)
    (4000, 800, 200)
    """
    trees = classes if classes > 2 else 1
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, MOST_TREES // trees))


_PARAMS = {
    "xgboost": {
        "eta: {loguniform: [0.01, 0.3]}": "learning rate",
        "max_depth: {randint: [2, 11]}": "2 to 10",
        "min_child_weight: {loguniform: [0.5, 50]}": "",
        "subsample: {uniform: [0.5, 1.0]}": "share of the rows for each tree",
        "colsample_bytree: {uniform: [0.4, 1.0]}": "share of the columns for each tree",
        "lambda: {loguniform: [0.01, 30]}": "L2 regularization",
    },
    "lightgbm": {
        "learning_rate: {loguniform: [0.01, 0.3]}": "",
        "num_leaves: {lograndint: [4, 256]}": "4 to 255",
        "min_child_samples: {lograndint: [3, 100]}": "rows of a leaf, at least",
        "subsample: {uniform: [0.5, 1.0]}": "share of the rows for each tree",
        "subsample_freq: 1": "other rows for each tree",
        "colsample_bytree: {uniform: [0.4, 1.0]}": "share of the columns for each tree",
        "reg_lambda: {loguniform: [0.001, 30]}": "L2 regularization",
    },
    "catboost": {
        "learning_rate: {loguniform: [0.02, 0.3]}": "",
        "depth: {randint: [3, 10]}": "3 to 9",
        "l2_leaf_reg: {loguniform: [0.3, 30]}": "L2 regularization",
        "random_strength: {loguniform: [0.1, 10]}": "noise in the choice of splits",
    },
}
