"""Train a model of Hugging Face's Transformers with `transformers.Trainer`.

It trains on one worker or on several workers.

The option `model` names a function that returns the model. `tokenizer` names a function that
returns a tokenizer, and `dataset` a function that converts prepared rows to the inputs of the
model. Without `dataset`, the tokenizer encodes the text of one column, or of a pair of columns.
`params` has the arguments of `transformers.TrainingArguments`, such as `learning_rate`, and the
arguments that the signatures of these functions name. A signature may also name `num_labels` (the
number of classes, or 1 for a regression), `vocab_size`, `in_features` (the number of columns) and
`task`.

Each rank has other rows of train, and all rows of valid. One step is an evaluation: after each
epoch, or after `eval_steps` steps of the optimizer with `eval_strategy: steps`. A step reports
`train-loss` (since the step before), `valid-loss`, and the metrics that objectives and constraints
name.
"""

import contextlib
import dataclasses
import inspect
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import TrainingArguments
from transformers.trainer_callback import PrinterCallback

from sweeps import trial
from sweeps.core.plugins import references
from sweeps.core.plugins.trainer_file import read

from . import Params, read_rows, require_task
from ._arguments import SplitParams
from ._metrics import SPLITS, checked_names, measure
from ._torch_loop import moments, seed_of, set_seeds
from ._torch_parallel import Ranks
from ._torch_training import FrameworkSteps, TorchBatches, settings_of
from ._transformers_arguments import ARGUMENTS, RESERVED
from ._transformers_model import (
    TOKENIZER,
    Rows,
    TransformersDefinition,
    collator,
    encoded,
    load,
    outputs_of,
)

LATEST = "latest"


def train_func(config: Params) -> None:
    """Train one model. Report every evaluation, and keep the model of the best evaluation.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, or a parameter, an option or a requested metric is
            unknown or missing.
    """
    import ray.train
    import ray.train.huggingface.transformers as ray_transformers

    cur = trial.current()
    checkpoint = ray.train.get_checkpoint()
    transformers.utils.logging.disable_progress_bar()
    set_seeds(cur.seed)
    training = TransformersTraining(config, cur)
    training.restore()
    with (
        contextlib.nullcontext() if checkpoint is None else checkpoint.as_directory() as folder,
        tempfile.TemporaryDirectory() as scratch,
    ):
        arguments = training.arguments(scratch)
        torch.set_num_threads(cur.threads)  # Accelerate has changed the number
        trainer = _Trainer(training, arguments)
        latest = None
        if folder is not None:
            latest = str(Path(folder, LATEST))
            _require_batches(Path(latest), arguments, len(training.rows["train"]))
        ray_transformers.prepare_trainer(trainer).train(resume_from_checkpoint=latest)


class TransformersTraining(FrameworkSteps, transformers.TrainerCallback):
    """The training of a model. As a callback of Transformers, it reports steps with checkpoints.

    Args:
        config: The trial's `params`.
        cur: The trial.

    Attributes:
        rows: The rows of "train" and "valid", with the targets that the model learns.
        labels: Labels of "train" and "valid": class codes, or values in the unit of the target.
        batches: The batches of this rank's rows of train.
        metrics: Metrics of the step whose checkpoint Transformers saves.
        train_loss: Mean loss on train since the step before.
        loss_sum: Sum of the losses of the rows that were predicted last.

    Raises:
        ValueError: A parameter is unknown or is one of `RESERVED`; or neither `tokenizer` nor
            `dataset` is set.
    """

    batches: TorchBatches
    metrics: dict[str, float]
    saved: Path

    def __init__(self, config: Params, cur: trial.Current):
        task = require_task(cur.task)
        self.names = checked_names(cur, read("transformers")["metrics"][task])
        super().__init__(cur, self.names[0], Ranks(), load)
        options = cur.options
        if options["tokenizer"] is None and options["dataset"] is None:
            raise ValueError(
                "the trainer `transformers` needs `trainer.tokenizer` for text, or "
                "`trainer.dataset` for other data"
            )
        dataset = options["dataset"] or f"{encoded.__module__}:{encoded.__name__}"
        make_model = references.resolve(options["model"])
        convert = references.resolve(dataset)
        functions = [make_model, convert]
        if options["tokenizer"] is not None:
            make_tokenizer = references.resolve(options["tokenizer"])
            functions.append(make_tokenizer)
        params = SplitParams("transformers", config, functions, ARGUMENTS, RESERVED)
        assert cur.check is not None  # there is a label, so there is data
        features = [str(name) for name in cur.check.columns]
        outputs = len(cur.classes or ()) or 1
        known: Params = {"in_features": len(features), "task": task, "num_labels": outputs}
        self.training_arguments = params.framework
        self.tokenizer: Any = None
        tokenizer_arguments: Params = {}
        if options["tokenizer"] is not None:
            tokenizer_arguments = params.arguments(make_tokenizer, known)
            self.tokenizer = make_tokenizer(**tokenizer_arguments)
            if hasattr(self.tokenizer, "__len__"):
                known["vocab_size"] = len(self.tokenizer)
        arguments = params.arguments(make_model, known)
        dataset_arguments = params.arguments(convert, known)
        self.network = make_model(**arguments)
        is_pretrained = isinstance(self.network, transformers.PreTrainedModel)
        self.description = TransformersDefinition(
            task=task,
            outputs=outputs,
            model=options["model"],
            arguments=arguments,
            network=_class_of(self.network) if is_pretrained else None,
            tokenizer=None if self.tokenizer is None else _class_of(self.tokenizer),
            dataset=dataset,
            dataset_arguments=dataset_arguments,
            inputs=list(inspect.signature(self.network.forward).parameters),
            features=features,
        )
        self._read_rows(json.dumps([tokenizer_arguments, dataset_arguments]))
        self.train_loss = float("nan")
        self.loss_sum = 0.0
        self.seeded = -1  # number of steps when the random numbers were seeded last

    def _read_rows(self, key: str) -> None:
        """Read this rank's rows of train, and all rows of valid.

        Inputs that an earlier trial encoded in the same way are used again.

        Args:
            key: Text that is the same for trials that encode the rows in the same way.
        """
        cur = self.cur
        description = self.description
        cache: Params = cur.cached("transformers.rows", dict)
        if cache.get("key") != key:  # the cache has only the latest encoding
            splits = {split: read_rows(split, cur) for split in SPLITS}
            cache["inputs"] = {
                split: description.convert(rows.features, self.tokenizer)
                for split, rows in splits.items()
            }
            cache["labels"] = {split: torch.tensor(rows.label) for split, rows in splits.items()}
            cache["key"] = key
        self.labels: dict[str, torch.Tensor] = cache["labels"]
        if cur.task == "regression" and cur.options["standardize_target"]:
            labels = self.labels["train"].to(self.ranks.device)
            mean, std = moments(labels, self.ranks)
            description = dataclasses.replace(description, mean=mean, std=std)
        self.definition = description
        self.rows = {
            split: Rows(inputs, description.targets(self.labels[split]), description.inputs)
            for split, inputs in cache["inputs"].items()
        }

    def arguments(self, folder: str) -> TrainingArguments:
        """Return the arguments of Transformers' trainer, which writes its files into a folder."""
        defaults = {
            "eval_strategy": "epoch",
            "num_train_epochs": self.cur.sweep_max_t or 3,
            # All ranks have the same number of rows, so the average over the ranks' batches is the
            # average over the rows.
            "average_tokens_across_devices": False,
        }
        return TrainingArguments(
            **defaults | self.training_arguments,
            output_dir=folder,
            save_strategy="no",  # `_Trainer.evaluate` decides
            logging_strategy="no",  # this callback decides
            report_to="none",
            disable_tqdm=True,
            seed=seed_of(self.cur.seed) % 2**32,
            use_cpu=self.ranks.device.type == "cpu",
        )

    def measure(self, batch_size: int) -> dict[str, float]:
        """Return the losses, and the requested metrics on valid."""
        self.eval_batch_size = batch_size
        labels, predicted = self.predict("valid")
        total = torch.tensor(self.loss_sum, dtype=torch.float64, device=self.ranks.device)
        rows = self.ranks.part_of(len(labels))
        metrics = {
            "valid-loss": self.ranks.mean(total, len(rows)),
            "train-loss": self.train_loss,
        }
        names = [name for name in self.names if name not in metrics]
        return metrics | measure(str(self.cur.task), "valid", labels, y_pred=predicted, names=names)

    def labels_of(self, split: str) -> np.ndarray:
        """Return the labels of this rank's rows of a split."""
        return self.labels[split].numpy()

    def outputs(self, split: str, rows: range) -> torch.Tensor:
        """Compute the model's logits for some rows, and the sum of their losses."""
        subset: Any = torch.utils.data.Subset(self.rows[split], rows)
        logits, self.loss_sum = outputs_of(
            self.network, subset, self.tokenizer, self.eval_batch_size
        )
        return logits

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a resume: apply changed settings."""
        self.apply_changes([_unwrapped(kwargs["optimizer"])], [kwargs["lr_scheduler"]])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch, from which the order of the rows follows."""
        self.batches.set_epoch(int(state.epoch))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seed the first step after a report, so that a resumed trial repeats its draws."""
        if self.seeded != self.step:  # not each step, because a seed takes a millisecond
            self.seeded = self.step
            set_seeds(self.cur.seed, state.global_step, self.ranks.rank)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the loss before each evaluation."""
        control.should_log = control.should_evaluate

    on_epoch_end = on_step_end

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the loss since the step before."""
        self.train_loss = (kwargs.get("logs") or {}).get("loss", self.train_loss)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report a step with a checkpoint.

        Transformers has just saved its own checkpoint into `output_dir`.
        """
        self.saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        self.report(self.metrics, last=False, due=True)
        shutil.rmtree(self.saved, ignore_errors=True)

    def save(self, folder: Path) -> np.ndarray | None:
        """Write the model of the best step, and move Transformers' own checkpoint."""
        shutil.move(self.saved, folder / LATEST)
        if isinstance(self.network, transformers.PreTrainedModel):
            self.network.config.save_pretrained(folder)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder / TOKENIZER)
        return super().save(folder)


def _class_of(value: Any) -> str:
    """Return a reference to the class of a value."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _require_batches(latest: Path, arguments: TrainingArguments, rows: int) -> None:
    """Raise an error if a checkpoint of Transformers is of a training with other batches.

    Transformers computes the epoch from the count of steps.

    Args:
        latest: Folder of the checkpoint.
        arguments: Arguments of this training.
        rows: Number of rows of train on this rank.
    """
    state = json.loads((latest / "trainer_state.json").read_text())
    batches = math.ceil(rows / arguments.train_batch_size)
    done = round(state["epoch"] * math.ceil(batches / arguments.gradient_accumulation_steps))
    if done != state["global_step"] and arguments.max_steps <= 0:
        raise ValueError(
            "the checkpoint is of a training with other batches; their size and the number of "
            "workers cannot change during a trial"
        )


class _Trainer(transformers.Trainer):
    """Trainer whose ranks have their own rows of train, and whose evaluation ends a step."""

    def __init__(self, training: TransformersTraining, arguments: TrainingArguments):
        self.training = training
        super().__init__(
            model=training.network,
            args=arguments,
            data_collator=collator(training.tokenizer),
            train_dataset=training.rows["train"],
            eval_dataset=training.rows["valid"],
            processing_class=training.tokenizer,
            callbacks=[training],
        )
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Return the batches of this rank.

        `Accelerator.prepare` is not called, because it would share the rows among the ranks again.
        """
        training = self.training
        args = self.args
        rows = training.rows["train"]
        ranks = training.ranks
        training.batches = TorchBatches(
            len(rows), self._train_batch_size, seed_of(args.seed, ranks.rank)
        )
        return torch.utils.data.DataLoader(
            rows,
            batch_sampler=training.batches,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            persistent_workers=args.dataloader_persistent_workers,
            pin_memory=args.dataloader_pin_memory and ranks.device.type == "cuda",
        )

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """Create the scheduler, and note the settings of the new optimizer and scheduler.

        They are noted before a checkpoint is restored.
        """
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        self.training.settings = settings_of([_unwrapped(self.optimizer)], [scheduler])
        return scheduler

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """End a step, and report it.

        If a checkpoint is due, Transformers saves first, and `on_save` of the training reports the
        step.
        """
        training = self.training
        state = self.state
        metrics = training.measure(self.args.per_device_eval_batch_size)
        due = training.end(metrics, last=state.global_step >= state.max_steps)
        if due:
            training.metrics = metrics
        else:
            training.report(metrics, last=False, due=False)
        named = {
            f"eval_{name.removeprefix('valid-')}": value
            for name, value in metrics.items()
            if name.startswith("valid-")
        }
        # Otherwise, the end of the epoch would evaluate the same step again.
        self.control: Any = self.callback_handler.on_evaluate(self.args, state, self.control, named)
        self.control.should_save = due
        return named


def _unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer that Accelerate has wrapped."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner
