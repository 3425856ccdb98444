"""Train the user's Keras 3 model on PyTorch or TensorFlow, on one worker or on several workers.

The option `model` names a function that returns a model, compiled or not. `keras.yaml` describes
`params`. Each further name in `params` is an argument of the function. The function also
gets these arguments, if it takes them: `input_shape`, which is (columns,); `outputs`, the number of
classes for more than two classes, else 1; and `task`, which is "binary", "multiclass" or
"regression".

Each epoch sends one report, with the metrics that objectives and constraints name. They may name
the metrics in `sweeps.core.metrics`, `valid-loss`, `train-loss`, and each metric with which the
function compiles its model, as `valid-NAME` and `train-NAME`. If the trial is not stopped, the
usual metrics of the task are measured after the last epoch, for the model of the best epoch
(`Current.report_final`).

The labels are class codes, or numbers. For a regression, the network learns the standardized
target, unless the option `standardize_target` is false. A missing value of a feature becomes 0.
"""

from __future__ import annotations

import functools
import importlib
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from sweeps import trial
from sweeps.core import references
from sweeps.core.trainer_file import read
from sweeps.trainers import fill_parameters, read_rows, report, require_metric, require_task
from sweeps.trainers._arguments import SplitParams
from sweeps.trainers._keras_best import Best
from sweeps.trainers._keras_model import (
    BLOCK,
    ROWS_AT_ONCE,
    Description,
    Model,
    import_keras,
    predict,
    to_inputs,
)
from sweeps.trainers._keras_ranks import Ranks
from sweeps.trainers._metrics import is_computed, measure

LOSSES = {
    "binary": "BinaryCrossentropy",
    "multiclass": "SparseCategoricalCrossentropy",
    "regression": "MeanSquaredError",
}
COMPILED = (
    "optimizer",
    "loss",
    "weight_decay",
    "clipnorm",
)  # parameters that only a model that is not compiled accepts


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    description = Description.of(Path(folder))
    return Model(description, description.load(Path(folder)))


def train_func(config: dict[str, Any]) -> None:
    """Train one model. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`; see the description of this module.

    Raises:
        ValueError: The data has no label, a column is not numeric, a parameter or a requested
            metric is unknown, or the model does not fit the label.
    """
    import ray.train

    cur = trial.current()
    task = require_task(cur.task)
    framework = cur.options["framework"]
    params = fill_parameters("keras", config, cur.sweep_max_t)
    keras = _keras_with(framework)
    engine = importlib.import_module(f"sweeps.trainers._keras_{framework}")
    engine.set_threads(cur.threads)
    context = ray.train.get_context()
    ranks = Ranks(context.get_world_rank(), context.get_world_size())
    columns, x, y, weights = cur.cached("keras.train", lambda: _table("train", cur))
    _, x_valid, y_valid, _ = cur.cached("keras.valid", lambda: _table("valid", cur))
    if weights is not None:  # with a mean of 1, the weights do not change the learning rate
        weights = weights / ranks.mean(weights.mean(keepdims=True))

    _reset(keras, engine, cur.seed)
    network = _build(keras, cur, config, params, x[:1])
    moments = _moments(cur, y, weights, ranks=ranks)
    description = Description(
        framework, cur.options["model"], columns, task, _has_logits(network), **moments
    )
    _require_outputs(description, predict(network, x_valid[:BLOCK]), cur)
    network.set_weights(ranks.first(network.get_weights()))
    best = Best(cur, description, network, x_valid[:BLOCK])
    done = best.restore(network)
    if ranks.world > 1:
        engine.average_gradients(network.optimizer, ranks)
    batches = engine.Batches(x, description.target(y), weights, params["batch_size"])
    epochs = _Epochs(cur, params, network, best, batches, ranks, (x, y), (x_valid, y_valid))
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=epochs.begin, on_epoch_end=epochs.end)
    network.fit(
        **batches.arguments,
        initial_epoch=done,
        epochs=params["epochs"],
        verbose=0,
        callbacks=[callback],
    )


def _keras_with(framework: str) -> Any:
    """Return the module `keras` with a framework as its backend.

    Raises:
        ValueError: This process has imported Keras with another backend.
    """
    keras = import_keras(framework)
    if keras.config.backend() != framework:
        raise ValueError(
            f"trainer.framework is {framework}, but this process has imported Keras with "
            f"{keras.config.backend()}; "
            f"set KERAS_BACKEND={framework} before the first import of Keras"
        )
    return keras


def _reset(keras: Any, engine: Any, seed: int) -> None:
    """Forget the layers of an earlier trial, and seed all random numbers."""
    keras.utils.clear_session(
        free_memory=False
    )  # else the layers of the second trial have other names than those of the first
    for set_seed in (random.seed, np.random.seed, engine.set_seed):
        set_seed(_seed(seed))


class _Epochs:
    """A callback of Keras that prepares each epoch of `fit`, and reports after each epoch.

    Args:
        cur: The trial.
        params: The trainer's parameters, with their defaults.
        network: The compiled model.
        best: The best epoch.
        batches: The training rows of this rank.
        ranks: The ranks of the trial.
        train: Features and labels of this rank's rows of train.
        valid: Features and labels of all rows of valid.
    """

    def __init__(
        self,
        cur: trial.Current,
        params: dict[str, Any],
        network: Any,
        best: Best,
        batches: Any,
        ranks: Ranks,
        train: tuple[np.ndarray, np.ndarray],
        valid: tuple[np.ndarray, np.ndarray],
    ):
        self.cur, self.network, self.best, self.batches, self.ranks = (
            cur,
            network,
            best,
            batches,
            ranks,
        )
        self.description, self.train, self.valid = best.description, train, valid
        self.last = min(params["epochs"], cur.max_t or params["epochs"])
        self.usual = tuple(read("keras")["metrics"][cur.task])
        lead = (
            cur.metric or self.usual[0]
        )  # if all objectives are costs, the first metric decides, and is minimized
        self.asked = tuple(dict.fromkeys([lead, *cur.asked]))
        self.generators = [
            variable for variable in network.variables if variable.name == "seed_generator_state"
        ]

    def begin(self, epoch: int, logs: Any = None) -> None:
        """Seed the order of the rows and the layers that draw random numbers.

        The seeds follow from the number of the epoch, so that a resumed trial repeats the draws.
        `epoch` starts with 0.
        """
        seeds = (
            np.random.SeedSequence((self.cur.seed, epoch, self.ranks.rank)).generate_state(
                1 + len(self.generators)
            )
            >> 1
        )
        self.batches.start_epoch(int(seeds[0]))
        for variable, seed in zip(self.generators, seeds[1:], strict=True):
            variable.assign(np.array([seed, 0]))

    def end(self, epoch: int, logs: dict[str, float]) -> None:
        """Measure and report the epoch.

        `logs` has the mean loss of the epoch and the metrics of the compiled model on train.
        """
        cur, step = self.cur, epoch + 1
        self._average_statistics()
        metrics = self._measure(logs)
        if self.best.compare(step, metrics, self.asked[0]):
            self.best.weights = self.network.get_weights()
        if step == self.last and (
            final := self._final(metrics)
        ):  # before `report`, which ends the trial at the scheduler's `max_t`
            cur.report_final(final)
        saves = self.ranks.rank == 0 and cur.checkpoint_due(step, last=step == self.last)
        report(metrics, functools.partial(self.best.save, self.network, step) if saves else None)

    def _average_statistics(self) -> None:
        """Average the numbers that layers such as BatchNormalization count in each rank."""
        for variable in self.network.non_trainable_weights if self.ranks.world > 1 else ():
            if "float" in variable.dtype:
                variable.assign(self.ranks.mean(variable.numpy()))

    def _measure(self, logs: dict[str, float]) -> dict[str, float]:
        """Return the metrics that the epoch reports.

        Raises:
            ValueError: Neither this trainer nor the compiled model has a metric that the space file
                names.
        """
        means = self.ranks.mean(np.array([float(value) for value in logs.values()]))
        known = {f"train-{name}": float(value) for name, value in zip(logs, means, strict=True)}
        computed = [name for name in self.asked if is_computed(name, self.cur.task)]
        if computed:
            known |= self._scores("valid", *self.valid, computed)
        if any(name.startswith("valid-") and name not in computed for name in self.asked):
            x, y = self.valid
            values = self.network.evaluate(
                x, self.description.target(y), batch_size=ROWS_AT_ONCE, verbose=0, return_dict=True
            )
            known |= {
                f"valid-{name}": float(value)
                for name, value in values.items()
                if f"valid-{name}" not in known
            }
        for name in self.asked:
            require_metric(name, known | dict.fromkeys(self.usual))
        return {name: known[name] for name in self.asked}

    def _scores(
        self, split: str, x: np.ndarray, y: np.ndarray, names: Collection[str] | None = None
    ) -> dict[str, float]:
        """Measure the network on the rows of a split."""
        return measure(
            self.description.task,
            split,
            y,
            self.description.predictions(predict(self.network, x)),
            names,
        )

    def _final(self, reported: Collection[str]) -> dict[str, float]:
        """Measure the model of the best epoch on train and valid.

        Return the metrics that are not in `reported`.
        """
        latest = self.network.get_weights()
        self.network.set_weights(self.best.weights or latest)
        parts = self.ranks.gather(
            (self.train[1], self.description.predictions(predict(self.network, self.train[0])))
        )
        labels, predictions = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        scores = measure(self.description.task, "train", labels, predictions) | self._scores(
            "valid", *self.valid
        )
        self.network.set_weights(latest)
        return {name: value for name, value in scores.items() if name not in reported}


def _build(
    keras: Any, cur: trial.Current, config: dict[str, Any], params: dict[str, Any], row: np.ndarray
) -> Any:
    """Call the user's function, and return its model, compiled and with weights.

    Args:
        keras: The module `keras`.
        cur: The trial.
        config: The trial's `params`.
        params: The trainer's parameters, with their defaults.
        row: Features of one row, shape (1, columns).

    Raises:
        ValueError: `params` does not fit the function, or the function does not return a Keras
            model.
    """
    ref = cur.options["model"]
    function = references.resolve(ref)
    given = {
        "input_shape": row.shape[1:],
        "outputs": len(cur.classes or ()) if cur.task == "multiclass" else 1,
        "task": cur.task,
    }
    arguments = SplitParams("keras", config, [function]).arguments(function, given)
    model = function(**arguments)
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"`{ref}` returned a {type(model).__name__}, but must return a keras.Model"
        )
    if not model.built:
        model(row)  # `model.build` would not make the weights of layers in a user's class
    if not model.compiled:
        _compile(keras, model, str(cur.task), params)
    elif useless := [
        name for name in COMPILED if config.get(name) is not None and name not in arguments
    ]:
        raise ValueError(
            f"params.{useless[0]} has no effect, because `{ref}` compiles its model; make "
            f"`{useless[0]}` an argument of the function, "
            "or return a model that is not compiled"
        )
    elif params["learning_rate"] is not None and "learning_rate" not in arguments:
        model.optimizer.learning_rate = params["learning_rate"]
    model.optimizer.build(model.trainable_variables)
    return model


def _compile(keras: Any, model: Any, task: str, params: dict[str, Any]) -> None:
    """Compile a model with the optimizer and the loss in `params`."""
    settings = {
        name: params[name]
        for name in ("learning_rate", "weight_decay", "clipnorm")
        if params[name] is not None
    }
    optimizer = keras.optimizers.get({"class_name": params["optimizer"], "config": settings})
    loss = params["loss"]
    if loss is None:
        last = model.layers[-1]
        ends = (keras.activations.sigmoid, keras.activations.softmax)
        probabilities = (
            isinstance(last, keras.layers.Softmax) or getattr(last, "activation", None) in ends
        )
        loss = getattr(keras.losses, LOSSES[task])(
            **({} if task == "regression" else {"from_logits": not probabilities})
        )
    model.compile(optimizer=optimizer, loss=loss)


def _has_logits(model: Any) -> bool:
    """Return whether the loss of a compiled model expects logits, not probabilities."""
    config = model.loss.get_config() if hasattr(model.loss, "get_config") else {}
    return bool(config.get("from_logits", False))


def _require_outputs(description: Description, outputs: np.ndarray, cur: trial.Current) -> None:
    """Raise an error if the outputs of the user's model do not fit the label.

    Raises:
        ValueError: The outputs have the wrong shape, or should be probabilities and are not.
    """
    sizes = {"binary": (1, 2), "multiclass": (len(cur.classes or ()),), "regression": (1,)}[
        description.task
    ]
    size = outputs.size // len(outputs)
    if size not in sizes:
        expected = " or ".join(map(str, sizes))
        raise ValueError(
            f"the model of `{description.model}` has {size} outputs, but this label needs "
            f"{expected}"
        )
    if (
        description.task != "regression"
        and not description.logits
        and (outputs.min() < 0 or outputs.max() > 1)
    ):
        raise ValueError(
            f"the outputs of the model of `{description.model}` are not probabilities; end the "
            "model with sigmoid or softmax, "
            "or compile it with a loss that has from_logits=True"
        )


def _table(
    split: str, cur: trial.Current
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the columns, features, labels and weights of this rank's rows of a split.

    The weights are None if the rows have none.
    """
    rows = read_rows(split, cur)
    weights = None if rows.weight is None else rows.weight.astype(np.float32)
    return tuple(map(str, rows.features.columns)), to_inputs(rows.features), rows.label, weights


def _moments(
    cur: trial.Current, y: np.ndarray, weights: np.ndarray | None, ranks: Ranks
) -> dict[str, float]:
    """Return the target's mean and standard deviation over the rows of all ranks.

    The ranks have equally many rows. Return {} if the target is not standardized.

    Args:
        cur: The trial.
        y: Labels of this rank's rows, shape (n,).
        weights: Weights of these rows, shape (n,), with a mean of 1 over all ranks. None if all
            rows count the same.
        ranks: The ranks of the trial.
    """
    if cur.task != "regression" or not cur.options["standardize_target"]:
        return {}
    part = np.ones(len(y)) if weights is None else weights.astype(np.float64)
    mean = float(ranks.mean((part * y).mean(keepdims=True))[0])
    variance = float(ranks.mean((part * (y - mean) ** 2).mean(keepdims=True))[0])
    return {"mean": mean, "std": variance**0.5 or 1.0}


def _seed(seed: int) -> int:
    """Return a seed below 2**31, which every framework accepts, for a trial's seed."""
    return int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
