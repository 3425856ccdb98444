"""Train a multi-layer perceptron for tables with PyTorch, on one worker or on several workers (DistributedDataParallel).

`TRAINER["parameters"]` describes `params`.

Each epoch sends one report, with the metrics that objectives and constraints name. `valid-rmse` and `valid-mae` have the unit of the
target. If the trial is not stopped, the other metrics of train and valid are measured after the last epoch, for the model of the best epoch
(`Current.report_final`). With `params.report: all`, every epoch reports all metrics of `TRAINER["metrics"]`.

A missing value becomes 0. Scale the columns (`StandardScaler`), so that 0 is the mean.
"""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sweeps import trial
from sweeps.core.parameter_schema import allows, rule_of
from sweeps.core.suggestions import did_you_mean
from sweeps.trainers import report, reports_all, require_numbers, require_task
from sweeps.trainers._metrics import measure, requested

if TYPE_CHECKING:
    import pandas as pd

# Description of this trainer, which is read from the source without an import. `sweeps/space/trainer_definition.py` explains the keys.
TRAINER: dict[str, Any] = {
    "loop": "train_func",
    "backend": "torch",
    "load": "load",
    "resume_files": ["latest.pt"],
    "reads_numbers": True,
    "needs_label": True,
    # At most the best weights, the latest weights, and two moments of each latest weight.
    "checkpoint_bytes": (
        "20_000 + 30 * features + 16 * ((features + 1) * (width or 64)"
        " + (depth or 2) * ((width or 64) + 1) ** 2 + ((width or 64) + features + 1) * outputs)"
    ),
    "metrics": {
        "binary": ["valid-logloss", "valid-error", "valid-accuracy", "valid-auc", "train-loss"],
        "multiclass": ["valid-mlogloss", "valid-merror", "valid-accuracy", "train-loss"],
        "regression": ["valid-rmse", "valid-mae", "train-loss"],
    },
    "all_metrics": True,
    "parameters": {
        "depth": {"type": "integer", "minimum": 0, "default": 2, "description": "Number of hidden layers."},
        "width": {"type": "integer", "minimum": 1, "default": 64, "description": "Number of units in each hidden layer."},
        "dropout": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": 0.0, "description": "Dropout rate of hidden units."},
        "optimizer": {"enum": ["adam", "adamw", "sgd"], "default": "adam", "description": "Optimizer; sgd has a momentum of 0.9."},
        "lr": {"type": "number", "exclusiveMinimum": 0, "default": 0.001, "description": "Learning rate."},
        "weight_decay": {"type": "number", "minimum": 0, "default": 0.0, "description": "L2 penalty on the weights."},
        "batch_size": {"type": "integer", "minimum": 1, "default": 64, "description": "Number of rows in each training step of a worker."},
        "epochs": {
            "type": "integer",
            "minimum": 1,
            "description": "Number of passes over the rows. Each pass sends one report. Default: `max_t`, or 20.",
        },
        "report": {
            "enum": ["asked", "all"],
            "default": "asked",
            "description": "Metrics in each report: `asked` for the metrics that the space file names, or `all`.",
        },
    },
}
BLOCK = 64  # number of rows that a loaded model predicts at once
WIDTH = 16  # smallest number of units of each layer of a loaded model
ROWS_AT_ONCE = 65_536  # rows predicted at once in training, so that a wide layer over a large table does not fill the memory


def parameters(config: dict[str, Any], max_t: int | None) -> dict[str, Any]:
    """Validate a trial's `params`, and fill in the defaults.

    Args:
        config: The trial's `params`.
        max_t: The step at which the scheduler ends the trial, or None. The default of `epochs` is this step, or 20 if there is none.

    Raises:
        ValueError: A name is unknown, or a value breaks its rule.
    """
    rules = TRAINER["parameters"]
    filled = {name: rule.get("default") for name, rule in rules.items()} | {"epochs": max_t or 20}
    for name, value in config.items():
        if name not in rules:
            raise ValueError(f"params.{name} is not a parameter of torch_tabular; {did_you_mean(name, rules)}")
        if not allows(rules[name], value):
            raise ValueError(f"params.{name} is {value!r}, but must be {rule_of(rules[name])}")
        if value is not None:
            filled[name] = int(value) if rules[name].get("type") == "integer" else value
    return filled


@dataclass(frozen=True)
class Architecture:
    """Everything that is needed to build the network, except its weights.

    For a regression, `mean` and `std` are the mean and the standard deviation of the target.
    """

    columns: tuple[str, ...]
    task: str
    outputs: int
    depth: int
    width: int
    dropout: float
    mean: float = 0.0
    std: float = 1.0

    def build(self) -> nn.Module:
        """Return a newly initialized network.

        The network does not use BatchNorm. BatchNorm fails if the last batch has one row, and its state differs between the ranks of DDP.
        """
        layers: list[nn.Module] = []
        size = len(self.columns)
        for _ in range(self.depth):
            layers += [nn.Linear(size, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
            size = self.width
        return nn.Sequential(*layers, nn.Linear(size, self.outputs))

    def predict(self, network: nn.Module, inputs: torch.Tensor) -> np.ndarray:
        """Predict with a network in evaluation mode.

        Args:
            network: A network that `build` returned.
            inputs: Prepared features, float32 of shape (n, columns).

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities of k classes, shape (n, k); or the
            values of a regression, shape (n,).
        """
        with torch.inference_mode():
            parts = [network(part)[:, : self.outputs].to("cpu", torch.float64) for part in torch.split(inputs, ROWS_AT_ONCE)]
            out = torch.cat(parts) if parts else torch.zeros((0, self.outputs), dtype=torch.float64)
            if self.task == "binary":
                return torch.sigmoid(out[:, 0]).numpy()
            if self.task == "multiclass":
                return torch.softmax(out, dim=1).numpy()
            return (out[:, 0] * self.std + self.mean).numpy()

    def target(self, y: torch.Tensor) -> torch.Tensor:
        """Convert labels to the values and the dtype that the loss function expects."""
        if self.task == "multiclass":
            return y
        if self.task == "binary":
            return y.to(torch.float32)
        return ((y - self.mean) / self.std).to(torch.float32)


class Model:
    """A trained network on a CPU."""

    def __init__(self, architecture: Architecture, weights: dict[str, torch.Tensor]):
        self.architecture = architecture
        network = architecture.build()
        network.load_state_dict(weights)
        self.network = _widened(network).eval()

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `Architecture.predict`.

        The prediction for a row does not depend on other rows. The rounding of a matrix product depends on its number of rows, so rows are
        predicted in blocks of `BLOCK` rows.
        """
        inputs = _inputs(features[list(self.architecture.columns)])
        rows = len(inputs)
        padded = nn.functional.pad(inputs, (0, 0, 0, -rows % BLOCK))
        predictions = [self.architecture.predict(self.network, block) for block in torch.split(padded, BLOCK)] if rows else []
        return np.concatenate(predictions)[:rows] if predictions else self.architecture.predict(self.network, inputs)


def _widened(network: nn.Module) -> nn.Module:
    """Return the same network with at least `WIDTH` units in each layer. The weights of the new units are 0.

    In a narrower layer, the last bits of a prediction depend on the position of the row.
    """
    layers: list[nn.Module] = []
    inputs: int | None = None
    for layer in network.children():
        if isinstance(layer, nn.Linear):
            rows, columns = layer.weight.shape
            wide = nn.Linear(columns if inputs is None else inputs, max(rows, WIDTH))
            with torch.no_grad():
                wide.weight.zero_()[:rows, :columns] = layer.weight
                wide.bias.zero_()[:rows] = layer.bias
            layer, inputs = wide, wide.out_features
        layers.append(layer)
    return nn.Sequential(*layers)


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    stored = json.loads(Path(folder, "architecture.json").read_text())
    architecture = Architecture(**stored | {"columns": tuple(stored["columns"])})
    return Model(architecture, load_file(Path(folder, "model.safetensors")))


def train_func(config: dict[str, Any]) -> None:
    """Train one network. Report every epoch, and keep the model of the best epoch.

    Args:
        config: The trial's `params`; see `TRAINER`.

    Raises:
        ValueError: The data has no label, a column is not numeric, or a parameter or a requested metric is unknown.
    """
    import ray.train
    import ray.train.torch

    cur = trial.current()
    params, task = parameters(config, cur.max_t), require_task(cur.task)
    every: tuple[str, ...] = tuple(TRAINER["metrics"][task])
    asked = requested(cur, every)
    reported = tuple(dict.fromkeys([*asked, *every])) if reports_all(config) else asked
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    rank, world = context.get_world_rank(), context.get_world_size()
    torch.set_num_threads(cur.threads)
    columns, x, y = cur.cached(f"torch_tabular.train.{device}", lambda: _tensors("train", cur, device))
    _, x_valid, y_valid = cur.cached(f"torch_tabular.valid.{device}", lambda: _tensors("valid", cur, device))
    outputs = len(cur.classes or ()) if task == "multiclass" else 1
    moments = _moments(y, world) if task == "regression" else {}
    architecture = Architecture(columns, task, outputs, params["depth"], params["width"], params["dropout"], **moments)

    torch.manual_seed(_seed(cur.seed))
    network, best = architecture.build(), _Best(cur, architecture)
    latest = best.restore(network)
    model = ray.train.torch.prepare_model(network)
    optimizer = _optimizer(model, params, latest)
    last = min(params["epochs"], cur.max_t or params["epochs"])
    for epoch in range(latest.get("epoch", 0) + 1, params["epochs"] + 1):
        torch.manual_seed(_seed(cur.seed, epoch, rank))  # the seed follows from the epoch, so a resumed trial repeats its draws
        loss = _train_epoch(model, optimizer, architecture, x, y, params["batch_size"])
        network.eval()
        metrics = {"train-loss": _mean(loss, len(x), world)} if "train-loss" in reported else {}
        if any(name.startswith("valid-") for name in reported):
            metrics |= measure(task, "valid", y_valid, architecture.predict(network, x_valid), reported)
        if rank == 0:
            best.see(network, epoch, metrics[asked[0]])
        if epoch == last and not set(every) <= set(reported):  # before `report`, which ends the trial at the scheduler's `max_t`
            final = _final(best, network, (x, y), (x_valid, y_valid), rank, world)
            cur.report_final({name: value for name, value in final.items() if name not in metrics})
        saves = rank == 0 and cur.checkpoint_due(epoch, last=epoch == last)
        report(metrics, functools.partial(best.save, network, optimizer, epoch) if saves else None)


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, architecture: Architecture, x: torch.Tensor, y: torch.Tensor, batch_size: int
) -> torch.Tensor:
    """Train on all rows of this rank once, in random order. Return the sum of the losses of all rows."""
    loss_of = {"binary": nn.BCEWithLogitsLoss(), "multiclass": nn.CrossEntropyLoss(), "regression": nn.MSELoss()}[architecture.task]
    order = torch.randperm(len(x), device="cpu").to(x.device)
    inputs, targets = x[order], architecture.target(y)[order]
    model.train()
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for batch, wanted in zip(torch.split(inputs, batch_size), torch.split(targets, batch_size), strict=True):
        out = model(batch)
        loss = loss_of(out if architecture.task == "multiclass" else out[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(batch)
    return total


class _Best:
    """Best epoch so far, and the weights of its network on a CPU."""

    def __init__(self, cur: trial.Current, architecture: Architecture):
        self.cur, self.architecture = cur, architecture
        self.epoch: int | None = None
        self.value: float | None = None
        self.weights: dict[str, torch.Tensor] = {}

    def see(self, network: nn.Module, epoch: int, value: float) -> None:
        """Compare an epoch's value with the best value so far.

        If the value is better, keep the value and a copy of the network's weights.
        """
        if self.cur.better(value, self.value):
            self.epoch, self.value, self.weights = epoch, value, _weights(network)

    def save(self, network: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, folder: Path) -> None:
        """Write a checkpoint: the model of the best epoch, and the state from which a resumed trial continues after `epoch`."""
        weights = self.weights or _weights(network)
        save_file(weights, folder / "model.safetensors")
        (folder / "architecture.json").write_text(json.dumps(asdict(self.architecture)))
        latest = {"epoch": epoch, "network": _weights(network), "optimizer": optimizer.state_dict(), "kind": type(optimizer).__name__}
        torch.save(latest | {"best_epoch": self.epoch, "best_value": self.value}, folder / "latest.pt")
        # The check rows are predicted by a copy on the CPU, as in a bundle, because a GPU rounds differently.
        check = None if self.cur.check is None else Model(self.architecture, weights).predict(self.cur.check)
        self.cur.note_checkpoint(folder, self.epoch or epoch, check)

    def restore(self, network: nn.Module) -> dict[str, Any]:
        """Load the checkpoint from which the trial continues, and return its latest state. Return {} if there is no checkpoint.

        Raises:
            ValueError: The weights in the checkpoint do not have the network's shapes. This happens under PBT if `depth` or `width` is
                tuned.
        """
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return {}
        with checkpoint.as_directory() as folder:
            latest: dict[str, Any] = torch.load(Path(folder, "latest.pt"), map_location="cpu", weights_only=True)
            self.epoch, self.value = latest["best_epoch"], latest["best_value"]
            if self.epoch is not None:
                self.weights = load_file(Path(folder, "model.safetensors"))
        weights = latest["network"]
        if {name: value.shape for name, value in network.state_dict().items()} != {name: value.shape for name, value in weights.items()}:
            raise ValueError("the checkpoint has a network of another `depth` or `width`; under pbt, `depth` and `width` must be constants")
        network.load_state_dict(weights)
        return latest


def _tensors(name: str, cur: trial.Current, device: torch.device) -> tuple[tuple[str, ...], torch.Tensor, Any]:
    """Return the columns, inputs and labels of a shard. The labels are a tensor on the device for `train`, and an array for `valid`."""
    import ray.train

    frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
    features = frame.drop(columns=[cur.label])
    label = frame[cur.label].to_numpy(np.float64 if cur.task == "regression" else np.int64)
    return (
        tuple(map(str, features.columns)),
        _inputs(features).to(device),
        torch.tensor(label, device=device) if name == "train" else label,
    )


def _inputs(features: pd.DataFrame) -> torch.Tensor:
    """Return prepared features as float32 of shape (n, columns). Missing values become 0."""
    require_numbers(features)
    values = features.to_numpy(np.float32, na_value=np.nan)
    return torch.from_numpy(np.nan_to_num(values, nan=0.0, posinf=None, neginf=None))


def _final(
    best: _Best,
    network: nn.Module,
    train: tuple[torch.Tensor, torch.Tensor],
    valid: tuple[torch.Tensor, np.ndarray],
    rank: int,
    world: int,
) -> dict[str, float]:
    """Measure the best epoch's model on train and valid.

    Args:
        best: The best epoch. Only rank 0 knows the best epoch; the other ranks receive the weights of this epoch from rank 0.
        network: The network after the last epoch. Its weights are used if there is no best epoch.
        train: Inputs and labels of this rank's rows of train.
        valid: Inputs and labels of all rows of valid.
        rank: Rank of this process.
        world: Number of ranks.

    Returns:
        The metrics on rank 0; {} on the other ranks.
    """
    architecture = best.architecture
    weights = [best.weights or _weights(network)]
    if world > 1:
        torch.distributed.broadcast_object_list(weights, src=0)
    model = architecture.build().to(train[0].device)
    model.load_state_dict(weights[0])
    model.eval()
    parts = [(train[1].cpu().numpy(), architecture.predict(model, train[0]))]
    if world > 1:
        gathered: list[Any] = [None] * world
        torch.distributed.all_gather_object(gathered, parts[0])
        parts = gathered
    if rank != 0:
        return {}
    wanted, predicted = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    scores = measure(architecture.task, "train", wanted, predicted)
    return scores | measure(architecture.task, "valid", valid[1], architecture.predict(model, valid[0]))


def _moments(y: torch.Tensor, world: int) -> dict[str, float]:
    """Return the target's mean and standard deviation over the rows of all ranks. All ranks get the same numbers."""
    mean = _mean(y.sum(), len(y), world)
    variance = _mean(((y - mean) ** 2).sum(), len(y), world)
    return {"mean": mean, "std": variance**0.5 or 1.0}


def _mean(total: torch.Tensor, count: int, world: int) -> float:
    """Return the mean over the rows of all ranks: the sum of the ranks' totals divided by the sum of their counts.

    Args:
        total: Sum over this rank's rows.
        count: Number of this rank's rows.
        world: Number of ranks.
    """
    total_and_count = torch.stack([total, torch.full_like(total, count)])
    if world > 1:
        torch.distributed.all_reduce(total_and_count)
    return float(total_and_count[0] / total_and_count[1])


def _optimizer(model: nn.Module, params: dict[str, Any], latest: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer that is named in `params`. Its state is restored from `latest`.

    `latest` is the content of the checkpoint from which the trial continues; {} if there is no checkpoint. Under PBT, the checkpoint may
    come from another trial. The optimizer's settings in `latest`, such as the learning rate, are ignored. If `latest` was written with
    another kind of optimizer, the optimizer starts without a state.
    """
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[params["optimizer"]]
    momentum = {"momentum": 0.9} if params["optimizer"] == "sgd" else {}
    optimizer: torch.optim.Optimizer = kind(model.parameters(), lr=params["lr"], weight_decay=params["weight_decay"], **momentum)
    if latest and latest.get("kind", kind.__name__) == kind.__name__:
        own = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        optimizer.load_state_dict(latest["optimizer"])
        for group, mine in zip(optimizer.param_groups, own, strict=True):
            group.update(mine)
    return optimizer


def _seed(*parts: int) -> int:
    """Combine several numbers into one seed.

    Different numbers, or another order of the numbers, give independent seeds.
    """
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _weights(network: nn.Module) -> dict[str, torch.Tensor]:
    """Return a copy of the network's weights on a CPU."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in network.state_dict().items()}
