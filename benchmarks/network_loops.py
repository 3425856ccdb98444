"""Bare loops of Lightning and Transformers, which run beside the trainers by name in one trial."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import ray.train
import ray.train.lightning
import torch
import transformers
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.loops import in_turn
from sweeps import trial
from sweeps.trainers._metrics import measure
from sweeps.trainers._torch_loop import seed_of, set_seeds

ROWS_AT_ONCE = 1024
TOKENS = 8  # tokens for the values of each column


class Network(pl.LightningModule):
    """A network with three hidden layers for two classes."""

    def __init__(self, in_features: int, width: int = 128):
        super().__init__()
        sizes = [in_features, width, width, width]
        hidden = [
            layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())
        ]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[:, 0]

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return binary_cross_entropy_with_logits(self(batch[0]), batch[1].float())

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("valid-loss", binary_cross_entropy_with_logits(self(batch[0]), batch[1].float()))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def bert(num_labels: int) -> Any:
    """Return a small BERT without dropout."""
    config = transformers.BertConfig(
        vocab_size=14 * TOKENS,
        num_labels=num_labels,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)


def tokens(features: Any) -> dict[str, np.ndarray]:
    """Convert each standardized number of a row to a token."""
    values = np.clip(np.floor(features.to_numpy(float) * 2 + TOKENS / 2), 0, TOKENS - 1).astype(
        np.int64
    )
    ids = values + TOKENS * np.arange(features.shape[1])
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


class Order(torch.utils.data.Sampler[Any]):
    """Batches of row numbers, in the order in which the trainers by name shuffle."""

    def __init__(self, rows: int, size: int, seed: int):
        self.rows, self.size, self.seed, self.epoch = rows, size, seed, 0

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(
            self.rows, generator=torch.Generator().manual_seed(seed_of(self.seed, self.epoch))
        )
        self.epoch += 1
        return iter(torch.split(order, self.size))


def gather(values: np.ndarray, world: int) -> np.ndarray:
    """Return the values of all ranks."""
    if world == 1:
        return values
    parts: list[Any] = [None] * world
    torch.distributed.all_gather_object(parts, values)
    return np.concatenate(parts)


def final(
    world: int, predict: Callable[[str], np.ndarray], labels: dict[str, np.ndarray]
) -> dict[str, float]:
    """Measure a model on train, of which each rank has a part, and on valid."""
    train = measure(
        "binary", "train", gather(labels["train"], world), gather(predict("train"), world)
    )
    return train | measure("binary", "valid", labels["valid"], predict("valid"))


def bare_lightning(
    seed: int, epochs: int, batch_size: int, train: Any, valid: Any, rank: int, world: int
) -> dict[str, float]:
    """Train with `lightning.Trainer`, validate after each epoch, and measure the model of the best
    epoch.

    Args:
        seed: The trial's seed. Both sides train the same model.
        epochs: Number of epochs.
        batch_size: Number of rows in a batch of a worker.
        train: Features and labels of train on this rank.
        valid: Features and labels of valid.
        rank: Rank of this process.
        world: Number of ranks.
    """

    class Best(pl.Callback):
        value, weights = np.inf, None

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            value = float(trainer.callback_metrics["valid-loss"])
            if value < self.value:
                self.value, self.weights = value, copy.deepcopy(module.state_dict())

    set_seeds(seed)
    module, best = Network(train[0].shape[1]), Best()
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    more = (
        {"strategy": ray.train.lightning.RayDDPStrategy(), "devices": "auto"}
        if world > 1
        else {"devices": 1}
    )
    trainer = pl.Trainer(
        **quiet | more,
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[best],
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    data = [torch.utils.data.TensorDataset(*split) for split in (train, valid)]
    order = Order(len(train[0]), batch_size, seed_of(seed, rank))
    plain = torch.utils.data.BatchSampler(
        torch.utils.data.SequentialSampler(data[1]), batch_size, drop_last=False
    )
    loaders = [
        torch.utils.data.DataLoader(d, sampler=s, batch_size=None)
        for d, s in zip(data, (order, plain), strict=True)
    ]
    trainer.fit(module, *loaders)
    module.load_state_dict(best.weights)
    module.eval()

    def predict(split: str) -> np.ndarray:
        x = {"train": train, "valid": valid}[split][0]
        with torch.inference_mode():
            return torch.sigmoid(
                torch.cat([module(part) for part in x.split(ROWS_AT_ONCE)]).double()
            ).numpy()

    return final(world, predict, {"train": train[1].numpy(), "valid": valid[1].numpy()})


class Rows(torch.utils.data.Dataset[Any]):
    """Rows with tokens and a label."""

    def __init__(self, inputs: dict[str, np.ndarray], labels: np.ndarray):
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self.inputs.items()} | {
            "labels": self.labels[row].item()
        }


def bare_transformers(
    seed: int,
    epochs: int,
    batch_size: int,
    train: Rows,
    valid: Rows,
    rank: int,
    world: int,
    folder: Path,
) -> dict[str, float]:
    """Train with `transformers.Trainer`, evaluate after each epoch, and measure the model of the
    best epoch; see `bare_lightning`.
    """

    class Best(transformers.TrainerCallback):
        value, weights = np.inf, None

        def on_evaluate(
            self, args: Any, state: Any, control: Any, metrics: Any, **more: Any
        ) -> None:
            if metrics["eval_logloss"] < self.value:
                self.value, self.weights = (
                    metrics["eval_logloss"],
                    copy.deepcopy(network.state_dict()),
                )

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            order: Any = Order(len(train), batch_size, seed_of(arguments.seed, rank))
            return torch.utils.data.DataLoader(
                train, batch_sampler=order, collate_fn=self.data_collator
            )

    def metrics(output: Any) -> dict[str, float]:
        scores = measure(
            "binary",
            "valid",
            output.label_ids,
            probabilities(output.predictions),
            ["valid-logloss"],
        )
        return {"logloss": scores["valid-logloss"]}

    set_seeds(seed)
    transformers.utils.logging.disable_progress_bar()
    network, best = bert(2), Best()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=256,
        learning_rate=1e-3,
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed_of(seed) % 2**32,
        average_tokens_across_devices=False,
    )
    torch.set_num_threads(trial.current().threads)  # Accelerate has changed the number
    trainer = Trainer(
        network,
        arguments,
        train_dataset=train,
        eval_dataset=valid,
        compute_metrics=metrics,
        callbacks=[best],
        data_collator=transformers.default_data_collator,
    )
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train()
    network.load_state_dict(best.weights)
    network.eval()
    rows = {"train": train, "valid": valid}

    def predict(split: str) -> np.ndarray:
        with torch.inference_mode():
            batches = torch.utils.data.DataLoader(
                rows[split], batch_size=256, collate_fn=transformers.default_data_collator
            )
            return probabilities(torch.cat([network(**batch).logits for batch in batches]).numpy())

    return final(world, predict, {name: split.labels for name, split in rows.items()})


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the probability of the second class."""
    return torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=1)[:, 1].numpy()


def _paired(
    config: dict[str, Any],
    train_func: Any,
    options: dict[str, Any],
    convert: Any,
    bare: Callable[..., dict[str, float]],
) -> None:
    """Run a built-in trainer and a bare loop in one trial; see `in_turn`.

    Args:
        config: The trial's `params`.
        train_func: The loop of the trainer.
        options: Options of the trainer.
        convert: Function of features and labels, which returns a split for the bare loop.
        bare: The bare loop as a function of train, valid, rank and number of ranks.
    """
    current, context = (
        dataclasses.replace(trial.current(), options=options),
        ray.train.get_context(),
    )
    trial.set_current(current)
    config = dict(config)
    times, _ = config.pop("times"), config.pop("seed")

    def split(name: str) -> Any:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        return convert(frame.drop(columns=current.label), frame[current.label].to_numpy())

    def run_bare() -> dict[str, float]:
        torch.set_num_threads(current.threads)
        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: split(name))
            for name in ("train", "valid")
        )
        return bare(train, valid, context.get_world_rank(), context.get_world_size())

    in_turn(times, lambda: train_func(config), run_bare)


def paired_lightning(config: dict[str, Any]) -> None:
    """Run the trainer `lightning` and the bare loop in one trial."""
    from sweeps.trainers import lightning

    def convert(features: Any, labels: np.ndarray) -> Any:
        return torch.tensor(features.to_numpy(np.float32)), torch.tensor(labels)

    options = {
        "module": f"{__name__}:Network",
        "datamodule": None,
        "output": "logits",
        "strategy": "ddp",
    }
    loop = functools.partial(
        bare_lightning, trial.current().seed, config["max_epochs"], config["batch_size"]
    )
    _paired(config, lightning.train_func, options, convert, loop)


def paired_transformers(config: dict[str, Any]) -> None:
    """Run the trainer `transformers` and the bare loop in one trial."""
    from sweeps.trainers import transformers as trainer

    options = {
        "model": f"{__name__}:bert",
        "tokenizer": None,
        "dataset": f"{__name__}:tokens",
        "standardize_target": True,
    }
    sizes = config["num_train_epochs"], config["per_device_train_batch_size"]
    with tempfile.TemporaryDirectory() as folder:
        loop = functools.partial(
            bare_transformers, trial.current().seed, *sizes, folder=Path(folder)
        )
        _paired(
            config,
            trainer.train_func,
            options,
            lambda features, labels: Rows(tokens(features), labels),
            loop,
        )
