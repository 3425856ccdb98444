"""The tutorials with XGBoost: 200 points, breast cancer, taxi trips, and data sets as a dimension.

Each original passes a preprocessor and XGBoost's parameters to `XGBoostTrainer`, and the trainer to
`Tuner`. Today's Ray refuses all three. The port therefore does what Ray documents instead: a
function trial fits the preprocessor, and calls `XGBoostTrainer.fit` with a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.tutorials.tutorial import Point, Port, Tutorial, draw, params_of, train_run

METRIC = "valid-logloss"
DOMAINS: dict[str, Callable[..., Any]] = {
    "eta": lambda rng: float(10 ** rng.uniform(-4, -1)),
    "subsample": lambda rng: float(rng.uniform(0.5, 1.0)),
    "max_depth": lambda rng: int(rng.integers(1, 9)),
}


def train_loop(config: dict[str, Any]) -> None:
    """Train on this worker, as in Ray's documentation of `XGBoostTrainer`."""
    import ray.train
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    label, rounds, params = config["label"], config["rounds"], config["params"]
    matrices = []
    for name in ("train", "valid"):
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        matrices.append(xgboost.DMatrix(frame.drop(columns=label), frame[label]))
    evals = [(matrices[0], "train"), (matrices[1], "valid")]
    xgboost.train(
        params,
        matrices[0],
        rounds,
        evals=evals,
        verbose_eval=False,
        callbacks=[RayTrainReportCallback()],
    )


def fit(
    point: Point,
    train: Any,
    valid: Any,
    preprocessor: Any,
    label: str,
    rounds: int,
    fixed: Mapping[str, Any],
    workers: int,
) -> None:
    """Fit the preprocessor on train, and train a model in Ray Train.

    Args:
        point: The configuration.
        train: Ray Dataset of train.
        valid: Ray Dataset of valid.
        preprocessor: Ray Data's preprocessor.
        label: Name of the label.
        rounds: Number of boosting rounds.
        fixed: Parameters of XGBoost that are the same for all trials.
        workers: Number of workers. Together they have two CPUs.
    """
    import ray.train
    from ray.train.xgboost import XGBoostTrainer

    # The data is transformed once, before the workers start.
    datasets = {
        "train": preprocessor.fit_transform(train).materialize(),
        "valid": preprocessor.transform(valid).materialize(),
    }
    params = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "nthread": 1,
        **fixed,
        **params_of(point),
    }
    with train_run() as run_config:
        XGBoostTrainer(
            train_loop,
            train_loop_config={"label": label, "rounds": rounds, "params": params},
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers, resources_per_worker={"CPU": 2 / max(2, workers)}
            ),
            run_config=run_config,
            datasets=datasets,
        ).fit()


def points(config: dict[str, Any], data: Any) -> None:
    """Train one configuration of the 200 points."""
    import ray.data
    from ray.data.preprocessors import MinMaxScaler, StandardScaler

    point = config["point"]
    scaler = {"StandardScaler": StandardScaler, "MinMaxScaler": MinMaxScaler}[
        point["preprocessor"]
    ](columns=["X"])
    train, valid = map(ray.data.from_pandas, data)
    fit(point, train, valid, scaler, "Y", 10, {"tree_method": "hist"}, point["scaling.num_workers"])


def breast_cancer(config: dict[str, Any], data: Any) -> None:
    """Train one configuration on the breast cancer data."""
    import ray.data
    from ray.data.preprocessors import Chain, SimpleImputer, StandardScaler

    columns = ["worst radius", "worst area"]
    chain = Chain(SimpleImputer(columns=columns), StandardScaler(columns=columns))
    train, valid = map(ray.data.from_pandas, data)
    fit(config["point"], train, valid, chain, "target", 100, {"tree_method": "approx"}, 2)


def taxi(config: dict[str, Any], data: Any) -> None:
    """Train one configuration on taxi trips."""
    import ray.data
    from ray.data.preprocessors import MinMaxScaler

    train, valid = (ray.data.from_pandas(_taxi_features(frame)) for frame in data)
    scaler = MinMaxScaler(columns=["trip_distance", "trip_duration"])
    fit(config["point"], train, valid, scaler, "is_big_tip", 50, {"tree_method": "approx"}, 2)


def _taxi_features(frame: Any) -> Any:
    from search_spaces.tutorials import big_tip

    return big_tip.features(frame).assign(is_big_tip=frame["is_big_tip"])


CANCER = {
    "worst radius": ["worst radius", "worst area"],
    "worst concavity": ["worst concavity", "worst smoothness"],
}


def _scaled(columns: list[str]) -> str:
    """Return the name that sweeps gives to a `StandardScaler` of these columns."""
    return f"StandardScaler(columns=[{', '.join(columns)}])"


def data_sets(config: dict[str, Any], data: Any) -> None:
    """Train one configuration with its data set, preprocessor and number of workers."""
    import ray.data
    from ray.data.preprocessors import StandardScaler

    from search_spaces.tutorials import tumors

    point = config["point"]
    columns = next(
        columns for columns in CANCER.values() if _scaled(columns) == point["preprocessor"]
    )
    source = {"tumors:shuffled": tumors.shuffled, "tumors:half": tumors.half}[point["data.train"]]
    train, valid = ray.data.from_pandas(source()), ray.data.from_pandas(tumors.valid())
    scaler = StandardScaler(columns=columns)
    fit(
        point,
        train,
        valid,
        scaler,
        "target",
        50,
        {"tree_method": "approx"},
        point["scaling.num_workers"],
    )


PORTED = "Train V2 in Tune"
TUTORIALS = (
    Tutorial(
        "points",
        "1. 200 points",
        METRIC,
        True,
        [
            {"preprocessor": scaler, "scaling.num_workers": workers, **params}
            for (scaler, workers), params in zip(
                [(s, w) for s in ("StandardScaler", "MinMaxScaler") for w in (2, 4)],
                draw(4, **DOMAINS),
                strict=True,
            )
        ],
        [Port(PORTED, points)],
    ),
    Tutorial(
        "breast_cancer",
        "2. breast cancer",
        METRIC,
        True,
        draw(4, **DOMAINS),
        [Port(PORTED, breast_cancer)],
    ),
    Tutorial(
        "taxi_xgboost",
        "3. taxi, XGBoost",
        METRIC,
        True,
        draw(
            3,
            eta=lambda rng: float(rng.uniform(0.2, 0.4)),
            max_depth=lambda rng: int(rng.integers(1, 6)),
            min_child_weight=lambda rng: float(rng.uniform(0.8, 1.0)),
        ),
        [Port(PORTED, taxi)],
    ),
    Tutorial(
        "data_sets",
        "7. data sets",
        METRIC,
        True,
        [
            {
                "data.train": source,
                "preprocessor": _scaled(columns),
                "scaling.num_workers": workers,
                **params,
            }
            for (source, columns, workers), params in zip(
                [
                    (s, c, w)
                    for s in ("tumors:shuffled", "tumors:half")
                    for c in CANCER.values()
                    for w in (2, 4)
                ],
                draw(8, **DOMAINS),
                strict=True,
            )
        ],
        [Port(PORTED, data_sets)],
    ),
)
