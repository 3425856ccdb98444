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

import importlib
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from sweeps import trial
from sweeps.core.plugins.trainer_file import read

from . import Params, fill_parameters, float_array, read_rows, require_metric, require_task
from ._best import Steps
from ._keras_model import (
    BLOCK,
    ROWS_AT_ONCE,
    KerasDefinition,
    Model,
    build,
    has_logits,
    import_keras,
    loaded_copy,
    predict,
    require_outputs,
)
from ._metrics import is_computed, measure, requested_names

LATEST = "latest.npz"


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    description = KerasDefinition.read(Path(folder))
    return Model(description, description.load(Path(folder)))


def train_func(config: Params) -> None:
    """Train one model. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`; see the description of this module.

    Raises:
        ValueError: The data has no label, a column is not numeric, a parameter or a requested
            metric is unknown, or the model does not fit the label.
    """
    training = KerasTraining(trial.current(), config)
    training.restore()
    training.run()


def _keras_with(framework: str) -> ModuleType:
    """Return the module `keras` with a framework as its backend.

    Raises:
        ValueError: This process has imported Keras with another backend.
    """
    keras = import_keras(framework)
    if keras.config.backend() != framework:
        raise ValueError(
            f"trainer.framework is {framework}, but this process has imported Keras with "
            f"{keras.config.backend()}; set KERAS_BACKEND={framework} before the first import of "
            "Keras"
        )
    return keras


def _reset(keras: ModuleType, engine: ModuleType, seed: int) -> None:
    """Forget the layers of an earlier trial, and seed all random numbers."""
    # Otherwise the layers of the second trial have other names than those of the first.
    keras.utils.clear_session(free_memory=False)
    # A seed below 2**31, which every framework accepts
    small_seed = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)
    for set_seed in (random.seed, np.random.seed, engine.set_seed):
        set_seed(small_seed)


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


class KerasTraining(Steps):
    """The training of a network. Its methods prepare each epoch of `fit`, and report each epoch.

    Args:
        cur: The trial.
        config: The trial's `params`.

    Attributes:
        network: The compiled model.
        copy: A copy of the network, with which checkpoints are written.
        weights: The network's weights at the best epoch. [] if there is none yet.
        batches: The training rows of this rank.
    """

    def __init__(self, cur: trial.Current, config: Params):
        from ._torch_parallel import Ranks  # a bundle may predict without torch

        self.usual = tuple(read("keras")["metrics"][require_task(cur.task)])
        self.asked = requested_names(cur, self.usual)
        super().__init__(cur, self.asked[0])
        framework = cur.options["framework"]
        self.params = fill_parameters("keras", config, cur.sweep_max_t)
        self.last = min(self.params["epochs"], cur.max_t or self.params["epochs"])
        self.keras = _keras_with(framework)
        self.engine = importlib.import_module(f"sweeps.trainers._keras_{framework}")
        self.engine.set_threads(cur.threads)
        self.ranks = Ranks()
        self.train = cur.cached("keras.train", lambda: _table("train", cur))
        self.valid = cur.cached("keras.valid", lambda: _table("valid", cur))
        _reset(self.keras, self.engine, cur.seed)
        self.network = build(self.keras, cur, config, params=self.params, row=self.train.x[:1])
        self._prepare_rows()
        rows = self.valid.x[:BLOCK]
        require_outputs(self.description, predict(self.network, rows), cur)
        self.network.set_weights(self.ranks.from_rank_0(self.network.get_weights()))
        self.copy = loaded_copy(self.description, self.network, rows)
        self.weights: list[np.ndarray] = []
        # The states of the random numbers of layers such as Dropout
        self.generators = [
            variable
            for variable in self.network.variables
            if variable.name == "seed_generator_state"
        ]

    def _prepare_rows(self) -> None:
        """Set the description, with the moments of the target, and the batches of train."""
        import torch

        from ._torch_loop import moments

        cur = self.cur
        y = self.train.y
        weights = self.train.weights
        if weights is not None:  # with a mean of 1, the weights do not change the learning rate
            weights = weights / self.ranks.average(weights.mean(keepdims=True))
        mean = 0.0
        std = 1.0
        if cur.task == "regression" and cur.options["standardize_target"]:
            device = self.ranks.device
            tensor = None if weights is None else torch.tensor(weights, device=device)
            mean, std = moments(torch.tensor(y, device=device), self.ranks, tensor)
        self.description = KerasDefinition(
            framework=cur.options["framework"],
            model=cur.options["model"],
            columns=self.train.columns,
            task=str(cur.task),
            logits=has_logits(self.network),
            mean=mean,
            std=std,
        )
        targets = self.description.target(y)
        self.batches = self.engine.BATCHES(
            self.train.x, targets, weights, size=self.params["batch_size"]
        )

    def run(self) -> None:
        """Train the epochs that are left."""
        if self.ranks.world > 1:
            self._average_gradients()
        callback = self.keras.callbacks.LambdaCallback(
            on_epoch_begin=self.begin, on_epoch_end=self.end
        )
        self.network.fit(
            **self.batches.arguments,
            initial_epoch=self.step,
            epochs=self.params["epochs"],
            verbose=0,
            callbacks=[callback],
        )

    def _average_gradients(self) -> None:
        """Make the optimizer apply the mean of the gradients of all ranks."""
        optimizer = self.network.optimizer
        ops = self.keras.ops
        apply = optimizer.apply

        def apply_mean(gradients: Sequence[Any], variables: Any = None) -> Any:
            # A variable without influence on the loss has the gradient None.
            present = [ops.convert_to_tensor(grad) for grad in gradients if grad is not None]
            flat = ops.concatenate([ops.reshape(grad, [-1]) for grad in present])
            flat_mean = self.engine.average(flat, self.ranks)  # one message for all gradients
            ends = np.cumsum([math.prod(grad.shape) for grad in present])
            parts = zip(ops.split(flat_mean, ends[:-1].tolist()), present, strict=True)
            means = iter([ops.reshape(part, grad.shape) for part, grad in parts])
            return apply([None if grad is None else next(means) for grad in gradients], variables)

        optimizer.apply = apply_mean

    def begin(self, epoch: int, logs: Any = None) -> None:
        """Seed the order of the rows and the layers that draw random numbers.

        The seeds follow from the number of the epoch, so that a resumed trial repeats the draws.
        `epoch` starts with 0.
        """
        sequence = np.random.SeedSequence((self.cur.seed, epoch, self.ranks.rank))
        order_seed, *seeds = sequence.generate_state(1 + len(self.generators)) >> 1
        self.batches.start_epoch(int(order_seed))
        for variable, seed in zip(self.generators, seeds, strict=True):
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
        for variable in self.network.non_trainable_weights:
            if self.ranks.world > 1 and "float" in variable.dtype:
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
        # The other metrics of valid are those of the compiled model.
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
        latest = self.network.get_weights()
        task = self.description.task
        self.network.set_weights(self.weights or latest)
        labels = self.ranks.gather_array(self.train.y)
        predictions = self.ranks.gather_array(self._predict(self.train))
        scores = measure(task, "train", labels, predictions) | measure(
            task, "valid", self.valid.y, self._predict(self.valid)
        )
        self.network.set_weights(latest)
        return scores

    def keep(self) -> None:
        """Keep the weights of the latest epoch."""
        self.weights = self.network.get_weights()

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best epoch, and the state of the training.

        A copy of the model predicts the check rows, because a GPU rounds differently from the CPU,
        on which a bundle predicts.
        """
        latest = self.network.get_weights()
        optimizer = self.network.optimizer
        self.copy.network.set_weights(self.weights or latest)
        self.description.save(self.copy.network, folder)
        weights = {f"weight-{number}": value for number, value in enumerate(latest)}
        variables = {
            f"optimizer-{number}": variable.numpy()
            for number, variable in enumerate(optimizer.variables)
        }
        np.savez(folder / LATEST, kind=np.array(type(optimizer).__name__), **weights, **variables)
        return None if self.cur.check is None else self.copy.predict(self.cur.check)

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote.

        Under PBT, the checkpoint may come from another trial. The optimizer keeps its own learning
        rate. If the checkpoint was written with another optimizer, the optimizer starts without a
        state.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes.
        """
        network = self.network
        optimizer = self.network.optimizer
        if self.best is not None:
            self.weights = self.description.load(folder).get_weights()
        with np.load(folder / LATEST) as latest:
            stored = {name: latest[name] for name in latest.files}
        weights = [stored[name] for name in stored if name.startswith("weight-")]
        if [value.shape for value in weights] != [value.shape for value in network.get_weights()]:
            raise ValueError(
                "the checkpoint has a model with weights of other shapes than the model that "
                f"`{self.description.model}` returns; under pbt, arguments that change the shapes "
                "must be constants"
            )
        network.set_weights(weights)
        if str(stored["kind"]) == type(optimizer).__name__:
            rate = optimizer.learning_rate
            values = [stored[name] for name in stored if name.startswith("optimizer-")]
            for variable, value in zip(optimizer.variables, values, strict=True):
                if variable is not rate:
                    variable.assign(value)
