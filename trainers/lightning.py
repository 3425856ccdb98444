"""Train a LightningModule of the user with Lightning, on one worker or on several workers.

The option `module` names the LightningModule. `params` has the arguments that its signature names,
and the arguments of `lightning.Trainer` such as `max_epochs` and `precision`. A signature may also
name `in_features` (the number of values in a row), `out_features` (the number of classes, or 1 for
two classes and for a regression), `max_epochs` and `task`.

Without the option `datamodule`, batches come from the prepared data: `(x, y)`. `x` has the inputs
that a network of the trainer `torch` gets: usually float32 of shape (n, columns). `y` has the shape
(n,): class codes as int64, or the values of a regression as float32. Without a label, a batch is
`x`. Each rank has other rows of train. Every rank has all rows of valid, so a module need not pass
`sync_dist` to `self.log` in `validation_step`.

One step is an epoch at whose end Lightning validates. If a module has no `validation_step`, every
epoch is a step. A step reports what the module has logged. Other metrics that objectives and
constraints name, such as `valid-balanced_accuracy`, are computed on valid from `predict_step`,
which calls `forward` by default.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities.warnings import PossibleUserWarning

from sweeps import trial
from sweeps.core import references
from sweeps.trainers import read_rows, report, require_metric
from sweeps.trainers._arguments import SplitParams
from sweeps.trainers._metrics import REPORTED, is_computed, measure
from sweeps.trainers._torch_data import Columns, few_threads
from sweeps.trainers._torch_loop import seed_of, set_seeds
from sweeps.trainers._torch_parallel import Ranks
from sweeps.trainers._torch_training import (
    DESCRIPTION,
    Batches,
    Steps,
    apply_changes,
    evaluating,
    load_weights,
    predictions,
    settings_of,
)

if TYPE_CHECKING:
    import pandas as pd

# Arguments of `lightning.Trainer` that the trainer sets itself. Lightning validates after whole
# epochs, because a trial that is resumed in the middle of an epoch would see other batches.
RESERVED = (
    *(
        "accelerator",
        "barebones",
        "callbacks",
        "default_root_dir",
        "devices",
        "enable_checkpointing",
        "fast_dev_run",
        "logger",
    ),
    *(
        "max_steps",
        "max_time",
        "min_steps",
        "num_nodes",
        "num_sanity_val_steps",
        "plugins",
        "strategy",
        "use_distributed_sampler",
    ),
    "val_check_interval",
)
LATEST = "latest.ckpt"
PREDICTED_AT_ONCE = 1024  # rows


class Table(torch.utils.data.Dataset[Any]):
    """Rows in memory. An item is a batch: the rows with the given numbers.

    Args:
        inputs: The module's inputs by name; see `Columns.tensors`.
        labels: Class codes as int64 or values as float32, shape (n,). None for rows without labels.
    """

    def __init__(self, inputs: dict[str, torch.Tensor], labels: torch.Tensor | None = None):
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, rows: torch.Tensor) -> Any:
        x = self.features(rows)
        return x if self.labels is None else (x, self.labels[rows])

    def features(self, rows: torch.Tensor | slice) -> Any:
        """Return the inputs of some rows: a tensor, or a mapping of tensors for several inputs."""
        chosen = {name: tensor[rows] for name, tensor in self.inputs.items()}
        return chosen if len(chosen) > 1 else next(iter(chosen.values()))


@dataclass(frozen=True)
class Description:
    """Everything that is needed to build a module, except its weights.

    Attributes:
        module: Reference to the class or function.
        arguments: Arguments of the class or function.
        columns: The columns that the module reads. None if the space file names no data.
        task: "binary", "multiclass" or "regression"; None without a label.
        output: "logits" or "probabilities".
    """

    module: str
    arguments: dict[str, Any]
    columns: Columns | None
    task: str | None
    output: str

    def build(self) -> pl.LightningModule:
        """Return a new module."""
        module: pl.LightningModule = references.resolve(self.module)(**self.arguments)
        return module

    def predict(
        self, module: pl.LightningModule, table: Table, rows: range, precision: Precision
    ) -> np.ndarray:
        """Predict rows with a module.

        Args:
            module: A module that `build` returned.
            table: The table that has the rows.
            rows: Numbers of the rows.
            precision: Lightning's plugin for the precision of the computation.
        """
        with evaluating(module), precision.predict_step_context():
            parts = []
            for number, start in enumerate(
                range(rows.start, max(rows.stop, rows.start + 1), PREDICTED_AT_ONCE)
            ):
                x = table.features(slice(start, min(start + PREDICTED_AT_ONCE, rows.stop)))
                parts.append(
                    module.predict_step(
                        precision.convert_input(move_data_to_device(x, module.device)), number
                    )
                )
        return predictions(torch.cat(parts), self.task, self.output == "logits")


class Model:
    """A trained module on a CPU."""

    def __init__(self, description: Description, weights: dict[str, torch.Tensor]):
        self.description = description
        self.module = description.build()
        self.module.configure_model()
        self.module.load_state_dict(weights)

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        See `predictions` in `sweeps.trainers._torch_training` for the result.
        """
        columns = self.description.columns or Columns.of(features)
        with few_threads(len(features)):
            return self.description.predict(
                self.module, Table(columns.tensors(features)), range(len(features)), Precision()
            )


def load(folder: str) -> Model:
    """Load the best model of a checkpoint that `train_func` wrote."""
    stored = json.loads(Path(folder, DESCRIPTION).read_text())
    columns = stored["columns"] and Columns(
        *(tuple(stored["columns"][field.name]) for field in fields(Columns))
    )
    return Model(Description(**stored | {"columns": columns}), load_weights(Path(folder)))


def train_func(config: dict[str, Any]) -> None:
    """Train one module.

    Report every epoch that Lightning validates, and keep the model of the best of them.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: A parameter or a requested metric is unknown, or a column is neither of numbers
            nor of arrays.
    """
    import ray.train

    cur, checkpoint, ranks = trial.current(), ray.train.get_checkpoint(), Ranks.of()
    # Lightning advises to use more processes for the batches, and describes the hardware.
    warnings.simplefilter("ignore", PossibleUserWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(cur.threads)
    set_seeds(cur.seed)
    parts = _parts(config, cur)
    steps = Steps(cur, _names(cur), ranks)
    with contextlib.ExitStack() as stack:
        latest = None
        if checkpoint is not None:
            folder = Path(stack.enter_context(checkpoint.as_directory()))
            steps.restore(folder)
            latest = str(folder / LATEST)
        trainer = _trainer(
            parts, _Reports(steps, parts), ranks, stack.enter_context(tempfile.TemporaryDirectory())
        )
        trainer.fit(parts.description.build(), **parts.loaders(cur, ranks.rank), ckpt_path=latest)


@dataclass(frozen=True)
class _Parts:
    """The parts of a training that `params` and the options of the space file describe.

    Attributes:
        description: The module.
        datamodule: Reference to the data module; None if the batches come from the prepared data.
        data_arguments: Arguments of the data module.
        batch_size: Number of rows in a batch.
        trainer: Arguments of `lightning.Trainer`.
    """

    description: Description
    datamodule: str | None
    data_arguments: dict[str, Any]
    batch_size: int
    trainer: dict[str, Any]

    def loaders(self, cur: trial.Current, rank: int) -> dict[str, Any]:
        """Return the arguments of `Trainer.fit` that give the batches."""
        if self.datamodule is not None:
            made = references.resolve(self.datamodule)(**self.data_arguments)
            if isinstance(made, pl.LightningDataModule):
                return {"datamodule": made}
            return dict(zip(("train_dataloaders", "val_dataloaders"), made, strict=True))
        loaders = {}
        for name, split, seed in (
            ("train_dataloaders", "train", seed_of(cur.seed, rank)),
            ("val_dataloaders", "valid", None),
        ):
            table = _table(split, cur)
            batches = Batches(len(table), self.batch_size, seed)
            loaders[name] = torch.utils.data.DataLoader(table, sampler=batches, batch_size=None)
        return loaders


def _parts(config: Mapping[str, Any], cur: trial.Current) -> _Parts:
    """Split a trial's `params` among the module, the data module and `lightning.Trainer`.

    Raises:
        ValueError: A parameter is unknown, or is one of `RESERVED`.
    """
    functions = [
        references.resolve(cur.options[name])
        for name in ("module", "datamodule")
        if cur.options[name] is not None
    ]
    params = SplitParams(
        "lightning", config, functions, inspect.signature(pl.Trainer).parameters, RESERVED
    )
    trainer = {
        "max_epochs": (cur.sweep_max_t or 20) * params.values.get("check_val_every_n_epoch", 1)
    } | params.framework
    known: dict[str, Any] = {
        "out_features": len(cur.classes or ()) if cur.task == "multiclass" else 1,
        "task": cur.task,
    }
    known |= {"max_epochs": trainer["max_epochs"]}
    columns = None
    if cur.check is not None:
        columns = Columns.of(cur.check)
        known |= {
            "in_features": sum(
                tensor[0].numel() for tensor in columns.tensors(cur.check.iloc[:1]).values()
            )
        }
    arguments = [params.arguments(function, known) for function in functions]
    return _Parts(
        Description(cur.options["module"], arguments[0], columns, cur.task, cur.options["output"]),
        cur.options["datamodule"],
        arguments[-1],
        params.values.get("batch_size", 32),
        trainer,
    )


def _names(cur: trial.Current) -> list[str]:
    """Return the metrics that a step must report. The first of them decides the best step."""
    usual = [f"valid-{metric}" for metric in REPORTED[cur.task]] if cur.task is not None else []
    asked = [cur.metric, *cur.asked] if cur.metric is not None else [*cur.asked] or usual[:1]
    return list(dict.fromkeys(asked))


def _trainer(parts: _Parts, reports: _Reports, ranks: Ranks, folder: str) -> pl.Trainer:
    """Return Lightning's trainer. A single worker needs no process group.

    Args:
        parts: The parts of the training.
        reports: The callback that reports.
        ranks: The ranks of the trial.
        folder: Folder for files that Lightning writes.
    """
    import ray.train.lightning

    cpu = ranks.device.type == "cpu"
    if ranks.world == 1:
        placement: dict[str, Any] = {
            "strategy": "auto",
            "devices": 1 if cpu else [ranks.device.index or 0],
        }
    else:
        unused = reports.cur.options["strategy"] == "ddp_find_unused_parameters_true"
        placement = {
            "strategy": ray.train.lightning.RayDDPStrategy(find_unused_parameters=unused),
            "devices": "auto",
        }
    trainer = pl.Trainer(
        **{"enable_progress_bar": False, "enable_model_summary": False} | parts.trainer,
        **placement,
        accelerator="cpu" if cpu else "gpu",
        plugins=[ray.train.lightning.RayLightningEnvironment()],
        callbacks=[reports],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        # Each rank has other rows of the prepared data already.
        use_distributed_sampler=parts.datamodule is not None,
    )
    return trainer if ranks.world == 1 else ray.train.lightning.prepare_trainer(trainer)


class _Reports(pl.Callback):
    """Report each step to Ray Train, and save checkpoints.

    A step is reported when the next epoch starts, not when its own epoch ends. Until then,
    Lightning updates schedulers and counters, which a checkpoint must contain.
    """

    def __init__(self, steps: Steps, parts: _Parts):
        self.steps, self.parts, self.cur, self.ranks = steps, parts, steps.cur, steps.ranks
        self.validated = False

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the settings of the new optimizers, before a checkpoint is restored."""
        self.steps.settings = settings_of(
            trainer.optimizers, [each.scheduler for each in trainer.lr_scheduler_configs]
        )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After a resume: apply changed settings, and begin a whole epoch."""
        if self.steps.settings_before is None:
            return
        schedulers = [each.scheduler for each in trainer.lr_scheduler_configs]
        apply_changes(
            trainer.optimizers, schedulers, self.steps.settings_before, self.steps.settings
        )
        # The checkpoint was written between two epochs. Lightning otherwise takes the last batch of
        # the epoch before for the latest one.
        trainer.fit_loop.restarting = False
        trainer.fit_loop.on_iteration_done()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the ended step, and seed the epoch, so that a resumed trial repeats its draws."""
        every = trainer.check_val_every_n_epoch or 1
        self._report(
            trainer, pl_module, last=trainer.current_epoch + every > (trainer.max_epochs or 0)
        )
        set_seeds(self.cur.seed, trainer.current_epoch, self.ranks.rank)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validate the same model on every rank.

        In training, each rank has its own statistics of BatchNorm.
        """
        self.ranks.share_buffers(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that the epoch is a step."""
        self.validated = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that the epoch is a step, if there is no validation."""
        if (
            not trainer.enable_validation
            and (trainer.current_epoch + 1) % (trainer.check_val_every_n_epoch or 1) == 0
        ):
            self.validated = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the last step."""
        self._report(trainer, pl_module, last=True)

    def _report(self, trainer: pl.Trainer, module: pl.LightningModule, last: bool) -> None:
        """Report a step, unless the latest epoch was no step."""
        if not self.validated:
            return
        self.validated = False
        metrics = self._metrics(trainer, module)
        due = self.steps.end(metrics, module, last)
        if self.steps.ends and self.cur.task is not None and self.parts.datamodule is None:
            self.steps.report_final(
                module, functools.partial(self._predict, trainer, module), metrics
            )
        if due and self.ranks.rank != 0:
            trainer.save_checkpoint(
                Path(trainer.default_root_dir, LATEST)
            )  # writes nothing, but waits for rank 0
        report(
            metrics,
            functools.partial(self._save, trainer, module)
            if due and self.ranks.rank == 0
            else None,
        )

    def _metrics(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, float]:
        """Return what the module has logged, and the requested metrics that it has not logged.

        Raises:
            ValueError: The module has not logged a requested metric, and the metric cannot be
                computed from predictions.
        """
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        computed = [
            name
            for name in self.steps.names
            if name not in metrics and is_computed(name, self.cur.task)
        ]
        if computed:
            metrics |= measure(
                str(self.cur.task), "valid", *self._predict(trainer, module, "valid"), computed
            )
        for name in self.steps.names:
            require_metric(name, metrics)
        return metrics

    def _predict(
        self, trainer: pl.Trainer, module: pl.LightningModule, split: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels and the predictions for the rows of all ranks."""
        self.ranks.share_buffers(module)
        table = _table(split, self.cur)
        assert table.labels is not None
        labels, rows = table.labels.numpy(), range(len(table))
        if split == "valid":  # every rank has all rows
            rows = self.ranks.part_of(len(table))
        else:
            labels = self.ranks.gather_array(labels)
        predicted = self.parts.description.predict(module, table, rows, trainer.precision_plugin)
        return labels, self.ranks.gather_array(predicted)

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule, folder: Path) -> None:
        """Write a checkpoint."""
        trainer.save_checkpoint(folder / LATEST)
        self.steps.save(folder, module, self.parts.description, load)


def _table(split: str, cur: trial.Current) -> Table:
    """Return the rows of `train` or `valid` on this rank."""
    import ray.train

    def build() -> Table:
        if cur.label is None:
            frame = ray.train.get_dataset_shard(split).materialize().to_pandas()
            return Table(Columns.of(frame).tensors(frame))
        rows = read_rows(split, cur)
        label = rows.label.astype(np.float32) if cur.task == "regression" else rows.label
        return Table(Columns.of(rows.features).tensors(rows.features), torch.tensor(label))

    table: Table = cur.cached(f"lightning.{split}", build)
    return table
