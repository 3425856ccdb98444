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

import dataclasses
import importlib
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sweeps import trial
from sweeps.core import references
from sweeps.core.trainer_file import read
from sweeps.trainers import fill_parameters, float_array, read_rows, require_metric, require_task
from sweeps.trainers._arguments import SplitParams
from sweeps.trainers._keras_best import KerasSteps
from sweeps.trainers._keras_model import (
    BLOCK,
    ROWS_AT_ONCE,
    Description,
    Model,
    import_keras,
    predict,
)
from sweeps.trainers._metrics import is_computed, measure

if TYPE_CHECKING:
    from sweeps.trainers._torch_parallel import Ranks

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
    import torch  # a bundle for TensorFlow predicts without torch

    from sweeps.trainers._torch_loop import moments
    from sweeps.trainers._torch_parallel import Ranks

    cur = trial.current()
    task = require_task(cur.task)
    framework = cur.options["framework"]
    params = fill_parameters("keras", config, cur.sweep_max_t)
    keras = _keras_with(framework)
    engine = importlib.import_module(f"sweeps.trainers._keras_{framework}")
    engine.set_threads(cur.threads)
    ranks = Ranks.of()
    train = cur.cached("keras.train", lambda: _table("train", cur))
    valid = cur.cached("keras.valid", lambda: _table("valid", cur))
    weights = train.weights
    if weights is not None:  # with a mean of 1, the weights do not change the learning rate
        weights = weights / ranks.average(weights.mean(keepdims=True))
    _reset(keras, engine, cur.seed)
    network = _build(keras, cur, config, params, train.x[:1])
    description = Description(
        framework, cur.options["model"], train.columns, task, _has_logits(network)
    )
    if task == "regression" and cur.options["standardize_target"]:
        y = torch.tensor(train.y, device=ranks.device)
        parts = None if weights is None else torch.tensor(weights, device=ranks.device)
        mean, std = moments(y, ranks, parts)
        description = dataclasses.replace(description, mean=mean, std=std)
    _require_outputs(description, predict(network, valid.x[:BLOCK]), cur)
    network.set_weights(ranks.first(network.get_weights()))
    batches = engine.Batches(train.x, description.target(train.y), weights, params["batch_size"])
    training = _Training(
        cur,
        params["epochs"],
        description,
        network=network,
        batches=batches,
        ranks=ranks,
        train=train,
        valid=valid,
    )
    training.restore()
    if ranks.world > 1:
        _average_gradients(keras, engine, network.optimizer, ranks)
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=training.begin, on_epoch_end=training.end
    )
    network.fit(
        **batches.arguments,
        initial_epoch=training.step,
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
    # A seed below 2**31, which every framework accepts
    small = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
    for set_seed in (random.seed, np.random.seed, engine.set_seed):
        set_seed(small)


def _average_gradients(keras: Any, engine: Any, optimizer: Any, ranks: Ranks) -> None:
    """Make an optimizer of Keras apply the mean of the gradients of all ranks."""
    apply, ops = optimizer.apply, keras.ops

    def apply_mean(gradients: Sequence[Any], variables: Any = None) -> Any:
        given = [ops.convert_to_tensor(each) for each in gradients if each is not None]
        # one message for all gradients
        mean = engine.average(ops.concatenate([ops.reshape(each, [-1]) for each in given]), ranks)
        ends = np.cumsum([math.prod(each.shape) for each in given])
        parts = zip(given, ops.split(mean, ends[:-1].tolist()), strict=True)
        averaged = iter([ops.reshape(part, each.shape) for each, part in parts])
        return apply([None if each is None else next(averaged) for each in gradients], variables)

    optimizer.apply = apply_mean


class _Table(NamedTuple):
    """The rows of a split that a rank has.

    Attributes:
        columns: Names of the features.
        x: Features, float32 of shape (n, columns).
        y: Labels, shape (n,).
        weights: Weights of the rows, float32 of shape (n,). None if the rows have no weights.
    """

    columns: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None


def _table(split: str, cur: trial.Current) -> _Table:
    """Read this rank's rows of a split."""
    rows = read_rows(split, cur)
    weights = None if rows.weight is None else rows.weight.astype(np.float32)
    columns = tuple(map(str, rows.features.columns))
    return _Table(columns, float_array(rows.features), rows.label, weights)


class _Training(KerasSteps):
    """The training of a network. Its methods prepare each epoch of `fit`, and report each epoch.

    Args:
        cur: The trial.
        epochs: Number of epochs.
        description: Description of the network.
        network: The compiled model.
        batches: The training rows of this rank.
        ranks: The ranks of the trial.
        train: This rank's rows of train.
        valid: All rows of valid.
    """

    def __init__(
        self,
        cur: trial.Current,
        epochs: int,
        description: Description,
        *,
        network: Any,
        batches: Any,
        ranks: Ranks,
        train: _Table,
        valid: _Table,
    ):
        self.usual = tuple(read("keras")["metrics"][cur.task])
        # If all objectives are costs, the first metric decides, and is minimized.
        lead = cur.metric or self.usual[0]
        super().__init__(cur, lead, description, network=network, x=valid.x[:BLOCK])
        self.batches = batches
        self.ranks = ranks
        self.train = train
        self.valid = valid
        self.last = min(epochs, cur.max_t or epochs)
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
        self._average_statistics()
        metrics = self._measure(logs)
        self.compare(epoch + 1, metrics)
        last = self.step == self.last
        self.report(metrics, last=last, due=self.cur.checkpoint_due(self.step, last=last))

    def _average_statistics(self) -> None:
        """Average the numbers that layers such as BatchNormalization count in each rank."""
        for variable in self.network.non_trainable_weights if self.ranks.world > 1 else ():
            if "float" in variable.dtype:
                variable.assign(self.ranks.average(variable.numpy()))

    def _measure(self, logs: dict[str, float]) -> dict[str, float]:
        """Return the metrics that the epoch reports.

        Raises:
            ValueError: Neither this trainer nor the compiled model has a metric that the space file
                names.
        """
        means = self.ranks.average(np.array([float(value) for value in logs.values()]))
        known = {f"train-{name}": float(value) for name, value in zip(logs, means, strict=True)}
        task = self.description.task
        computed = [name for name in self.asked if is_computed(name, task)]
        if computed:
            predictions = self._predict(self.valid)
            known |= measure(task, "valid", self.valid.y, y_pred=predictions, names=computed)
        if any(name.startswith("valid-") and name not in computed for name in self.asked):
            values = self.network.evaluate(
                self.valid.x,
                self.description.target(self.valid.y),
                batch_size=ROWS_AT_ONCE,
                verbose=0,
                return_dict=True,
            )
            known |= {
                f"valid-{name}": float(value)
                for name, value in values.items()
                if f"valid-{name}" not in known
            }
        for name in self.asked:
            require_metric(name, known | dict.fromkeys(self.usual))
        return {name: known[name] for name in self.asked}

    def _predict(self, table: _Table) -> np.ndarray:
        """Return the predictions of the network for some rows."""
        return self.description.predictions(predict(self.network, table.x))

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the model of the best epoch on train and valid."""
        latest, task = self.network.get_weights(), self.description.task
        self.network.set_weights(self.weights or latest)
        labels = self.ranks.gather_array(self.train.y)
        predictions = self.ranks.gather_array(self._predict(self.train))
        scores = measure(task, "train", labels, predictions) | measure(
            task, "valid", self.valid.y, self._predict(self.valid)
        )
        self.network.set_weights(latest)
        return scores


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
