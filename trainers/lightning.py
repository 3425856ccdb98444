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

import contextlib
import inspect
import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.warnings import PossibleUserWarning

from sweeps import trial
from sweeps.core.metrics import USUAL
from sweeps.core.plugins import references

from . import Params, read_rows, require_metric, shard
from ._arguments import SplitParams
from ._lightning_model import CPU, LightningDefinition, Table, load, outputs_of
from ._metrics import is_computed, measure, requested_names
from ._torch_data import TensorColumns, TensorRows
from ._torch_loop import seed_of, set_seeds
from ._torch_parallel import Ranks
from ._torch_training import FrameworkSteps, TorchBatches, settings_of

# Arguments of `lightning.Trainer` that the trainer sets itself. Lightning validates after whole
# epochs, because a trial that is resumed in the middle of an epoch would see other batches.
RESERVED = (
    "accelerator",
    "barebones",
    "callbacks",
    "default_root_dir",
    "devices",
    "enable_checkpointing",
    "fast_dev_run",
    "logger",
    "max_steps",
    "max_time",
    "min_steps",
    "num_nodes",
    "num_sanity_val_steps",
    "plugins",
    "strategy",
    "use_distributed_sampler",
    "val_check_interval",
)
LATEST = "latest.ckpt"
# Number of steps if neither the scheduler nor `params` set a number.
DEFAULT_STEPS = 20


def train_func(config: Params) -> None:
    """Train one module.

    Report every epoch that Lightning validates, and keep the model of the best of them.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: A parameter or a requested metric is unknown, or a column is neither of numbers
            nor of arrays.
    """
    import ray.train

    cur = trial.current()
    checkpoint = ray.train.get_checkpoint()
    # Lightning advises to use more processes for the batches, and describes the hardware.
    warnings.simplefilter("ignore", PossibleUserWarning)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    torch.set_num_threads(cur.threads)
    set_seeds(cur.seed)
    training = LightningTraining(config, cur)
    training.restore()
    with (
        contextlib.nullcontext() if checkpoint is None else checkpoint.as_directory() as folder,
        tempfile.TemporaryDirectory() as scratch,
    ):
        latest = None if folder is None else str(Path(folder, LATEST))
        trainer = training.new_trainer(scratch)
        trainer.fit(training.network, **training.loaders(), ckpt_path=latest)


class LightningTraining(FrameworkSteps, pl.Callback):
    """The training of a module. As a callback of Lightning, it reports each step.

    A step is reported when the next epoch starts, not when its own epoch ends. Until then,
    Lightning updates schedulers and counters, which a checkpoint must contain.

    Args:
        config: The trial's `params`.
        cur: The trial.

    Raises:
        ValueError: A parameter is unknown, or is one of `RESERVED`.
    """

    network: pl.LightningModule
    trainer: pl.Trainer

    def __init__(self, config: Params, cur: trial.Current):
        usual = [] if cur.task is None else [f"valid-{metric}" for metric in USUAL[cur.task]]
        self.names = requested_names(cur, usual) if cur.metric or usual else ()
        super().__init__(cur, self.names[0] if self.names else "", Ranks(), load)
        functions = [references.resolve(cur.options["module"])]
        if not self.has_table:
            functions.append(references.resolve(cur.options["datamodule"]))
        params = SplitParams(
            "lightning", config, functions, inspect.signature(pl.Trainer).parameters, RESERVED
        )
        self.batch_size = params.values.get("batch_size", 32)
        epochs_per_step = params.values.get("check_val_every_n_epoch", 1)
        epochs = (cur.sweep_max_t or DEFAULT_STEPS) * epochs_per_step
        self.trainer_arguments = {
            "max_epochs": epochs,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        } | params.framework
        known = self._known_arguments()
        arguments = [params.arguments(function, known) for function in functions]
        self.data_arguments = arguments[-1]  # those of the data module, if there is one
        self.definition = LightningDefinition(
            task=cur.task,
            outputs=known["out_features"],
            probabilities=cur.options["output"] == "probabilities",
            columns=None if cur.check is None else TensorColumns.of(cur.check),
            module=cur.options["module"],
            arguments=arguments[0],
        )
        self.network = self.definition.build()
        self.is_step = False  # True if the latest epoch is a step that is not reported yet

    def _known_arguments(self) -> Params:
        """Return the values that a signature may name; see the head of this module."""
        cur = self.cur
        known: Params = {
            "out_features": len(cur.classes or ()) if cur.task == "multiclass" else 1,
            "task": cur.task,
            "max_epochs": self.trainer_arguments["max_epochs"],
        }
        if cur.check is not None:
            first = TensorColumns.of(cur.check).tensors(cur.check.iloc[:1])
            known["in_features"] = sum(tensor[0].numel() for tensor in first.values())
        return known

    @property
    def has_table(self) -> bool:
        """True if the batches come from the prepared data, False if from a data module."""
        return self.cur.options["datamodule"] is None

    def loaders(self) -> Params:
        """Return the arguments of `Trainer.fit` that give the batches."""
        if not self.has_table:
            data = references.resolve(self.cur.options["datamodule"])(**self.data_arguments)
            if isinstance(data, pl.LightningDataModule):
                return {"datamodule": data}
            return dict(zip(("train_dataloaders", "val_dataloaders"), data, strict=True))
        loaders = {}
        order_seed = seed_of(self.cur.seed, self.ranks.rank)
        for name, split, seed in (
            ("train_dataloaders", "train", order_seed),
            ("val_dataloaders", "valid", None),
        ):
            table = _table(split, self.cur)
            batches = TorchBatches(len(table), self.batch_size, seed)
            loaders[name] = torch.utils.data.DataLoader(table, sampler=batches, batch_size=None)
        return loaders

    def new_trainer(self, folder: str) -> pl.Trainer:
        """Return Lightning's trainer, which writes its files into a folder.

        A single worker needs no process group.
        """
        import ray.train.lightning

        device = self.ranks.device
        is_single = self.ranks.world == 1
        is_cpu = device.type == "cpu"
        strategy: Any = "auto"
        devices: Any = "auto"
        if not is_single:
            unused = self.cur.options["strategy"] == "ddp_find_unused_parameters_true"
            strategy = ray.train.lightning.RayDDPStrategy(find_unused_parameters=unused)
        elif is_cpu:
            devices = 1
        else:
            devices = [device.index or 0]
        trainer = pl.Trainer(
            **self.trainer_arguments,
            strategy=strategy,
            devices=devices,
            accelerator="cpu" if is_cpu else "gpu",
            plugins=[ray.train.lightning.RayLightningEnvironment()],
            callbacks=[self],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            num_sanity_val_steps=0,
            # Each rank has other rows of the prepared data already.
            use_distributed_sampler=not self.has_table,
        )
        return trainer if is_single else ray.train.lightning.prepare_trainer(trainer)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note the settings of the new optimizers, before a checkpoint is restored."""
        self.trainer = trainer
        self.settings = settings_of(trainer.optimizers, self._schedulers())

    def _schedulers(self) -> list[Any]:
        return [config.scheduler for config in self.trainer.lr_scheduler_configs]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """After a resume: apply changed settings, and begin a whole epoch."""
        if self.settings_before is None:
            return
        self.apply_changes(trainer.optimizers, self._schedulers())
        # The checkpoint was written between two epochs. Without these lines, Lightning would
        # continue at the last batch of the epoch before.
        trainer.fit_loop.restarting = False
        trainer.fit_loop.on_iteration_done()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the ended step, and seed the epoch, so that a resumed trial repeats its draws."""
        # The ended step is the last one if the epochs of another step exceed `max_epochs`.
        last = trainer.current_epoch + trainer.check_val_every_n_epoch > trainer.max_epochs
        self._report_step(last)
        set_seeds(self.cur.seed, trainer.current_epoch, self.ranks.rank)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validate the same model on every rank.

        In training, each rank has its own statistics of BatchNorm.
        """
        self.ranks.share_buffers(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that the epoch is a step."""
        self.is_step = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note that the epoch is a step, if there is no validation."""
        ended = (trainer.current_epoch + 1) % trainer.check_val_every_n_epoch == 0
        if ended and not trainer.enable_validation:
            self.is_step = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the last step."""
        self._report_step(last=True)

    def _report_step(self, last: bool) -> None:
        """Report a step, unless the latest epoch was no step."""
        if not self.is_step:
            return
        self.is_step = False
        metrics = self._metrics()
        due = self.end(metrics, last)
        if due and self.ranks.rank != 0:
            # This call writes nothing, but waits for rank 0.
            self.trainer.save_checkpoint(Path(self.trainer.default_root_dir, LATEST))
        # With `last=True`, `report` would repeat the final metrics, which `end` has reported.
        self.report(metrics, last=False, due=due)

    def _metrics(self) -> dict[str, float]:
        """Return what the module has logged, and the requested metrics that it has not logged.

        Raises:
            ValueError: The module has not logged a requested metric, and the metric cannot be
                computed from predictions.
        """
        metrics = {name: float(value) for name, value in self.trainer.callback_metrics.items()}
        computed = [
            name for name in self.names if name not in metrics and is_computed(name, self.cur.task)
        ]
        if computed:
            metrics |= measure(str(self.cur.task), "valid", *self.predict("valid"), computed)
        for name in self.names:
            require_metric(name, metrics)
        return metrics

    def labels_of(self, split: str) -> np.ndarray:
        """Return the labels of this rank's rows of a split."""
        labels = _table(split, self.cur).labels
        assert labels is not None
        return labels.numpy()

    def outputs(self, split: str, rows: range) -> torch.Tensor:
        """Return what the module predicts for some rows."""
        order = torch.arange(rows.start, rows.stop)
        table = _table(split, self.cur)
        return outputs_of(self.network, table.rows, order, self.trainer.precision_plugin)

    def final(self, reported: Mapping[str, float]) -> dict[str, float]:
        """Measure the module of the best step, if the prepared data has labels."""
        is_measured = self.cur.task is not None and self.has_table
        return super().final(reported) if is_measured else {}

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best step, and Lightning's own checkpoint."""
        self.trainer.save_checkpoint(folder / LATEST)
        return super().save(folder)


def _table(split: str, cur: trial.Current) -> Table:
    """Return the rows of `train` or `valid` on this rank."""

    def build() -> Table:
        if cur.label is None:
            frame = shard(split)
            return Table(TensorRows(TensorColumns.of(frame).tensors(frame), CPU), None)
        rows = read_rows(split, cur)
        label = rows.label.astype(np.float32) if cur.task == "regression" else rows.label
        tensors = TensorColumns.of(rows.features).tensors(rows.features)
        return Table(TensorRows(tensors, CPU), torch.tensor(label))

    table: Table = cur.cached(f"lightning.{split}", build)
    return table
