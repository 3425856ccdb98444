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

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.trainer_callback import PrinterCallback

from sweeps import trial
from sweeps.core import references
from sweeps.core.trainer_file import read
from sweeps.trainers import read_rows, report, require_task
from sweeps.trainers._arguments import SplitParams
from sweeps.trainers._metrics import measure, requested
from sweeps.trainers._torch_loop import moments, seed_of, set_seeds
from sweeps.trainers._torch_parallel import Ranks
from sweeps.trainers._torch_training import Batches, Steps, apply_changes, settings_of
from sweeps.trainers._transformers_model import (
    TOKENIZER,
    Description,
    Rows,
    collator,
    encoded,
    load,
    outputs_of,
)

# Arguments of `TrainingArguments` that the trainer sets itself, and arguments that would break its
# reports and checkpoints.
RESERVED = (
    *(
        "auto_find_batch_size",
        "batch_eval_metrics",
        "data_seed",
        "dataloader_drop_last",
        "deepspeed",
        "disable_tqdm",
        "do_eval",
    ),
    *(
        "do_predict",
        "do_train",
        "enable_jit_checkpoint",
        "eval_on_start",
        "fsdp",
        "fsdp_config",
        "ignore_data_skip",
    ),
    *(
        "load_best_model_at_end",
        "local_rank",
        "logging_first_step",
        "logging_steps",
        "logging_strategy",
        "output_dir",
    ),
    *(
        "parallelism_config",
        "prediction_loss_only",
        "push_to_hub",
        "remove_unused_columns",
        "report_to",
    ),
    *(
        "restore_callback_states_from_checkpoint",
        "resume_from_checkpoint",
        "save_on_each_node",
        "save_only_model",
        "save_steps",
    ),
    *("save_strategy", "save_total_limit", "seed", "train_sampling_strategy", "use_cpu"),
)
LATEST = "latest"


def train_func(config: dict[str, Any]) -> None:
    """Train one model. Report every evaluation, and keep the model of the best evaluation.

    Args:
        config: The trial's `params`.

    Raises:
        ValueError: The data has no label, or a parameter, an option or a requested metric is
            unknown or missing.
    """
    import ray.train
    import ray.train.huggingface.transformers as ray_transformers

    cur, checkpoint, ranks = trial.current(), ray.train.get_checkpoint(), Ranks.of()
    usual = read("transformers")["metrics"][require_task(cur.task)]
    steps = Steps(cur, requested(cur, usual), ranks)
    transformers.utils.logging.disable_progress_bar()
    set_seeds(cur.seed)
    parts = _parts(config, cur, ranks)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arguments = _training_arguments(parts, cur, ranks, folder)
        torch.set_num_threads(cur.threads)  # Accelerate has changed the number
        trainer = _Trainer(steps, parts, arguments)
        latest = None
        if checkpoint is not None:
            restored = Path(stack.enter_context(checkpoint.as_directory()))
            steps.restore(restored)
            _require_batches(restored / LATEST, arguments, len(parts.rows["train"]))
            latest = str(restored / LATEST)
        ray_transformers.prepare_trainer(trainer).train(resume_from_checkpoint=latest)


@dataclass(frozen=True)
class _Parts:
    """The parts of a training that `params` and the options of the space file describe.

    Attributes:
        description: What predicts with the model.
        network: The new model.
        tokenizer: The tokenizer; None if there is none.
        rows: The rows of "train" and "valid", with the labels that the model learns.
        labels: Labels of "train" and "valid": class codes, or values in the unit of the target.
        training: Arguments of `TrainingArguments`.
    """

    description: Description
    network: torch.nn.Module
    tokenizer: Any
    rows: dict[str, Rows]
    labels: dict[str, np.ndarray]
    training: dict[str, Any]


def _parts(config: Mapping[str, Any], cur: trial.Current, ranks: Ranks) -> _Parts:
    """Call the user's functions, and split a trial's `params` among them and `TrainingArguments`.

    Raises:
        ValueError: A parameter is unknown or is one of `RESERVED`; or neither `tokenizer` nor
            `dataset` is set.
    """
    options = _options(cur)
    functions = {
        name: references.resolve(options[name])
        for name in ("model", "tokenizer", "dataset")
        if options[name] is not None
    }
    fields = [each.name for each in dataclasses.fields(transformers.TrainingArguments) if each.init]
    params = SplitParams("transformers", config, functions.values(), fields, RESERVED)
    known = _known(cur)
    tokenizer: Any = None
    tokenizer_arguments: dict[str, Any] = {}
    if "tokenizer" in functions:
        tokenizer_arguments = params.arguments(functions["tokenizer"], known)
        tokenizer = functions["tokenizer"](**tokenizer_arguments)
        known |= {"vocab_size": len(tokenizer)} if hasattr(tokenizer, "__len__") else {}
    arguments, dataset_arguments = (
        params.arguments(functions[name], known) for name in ("model", "dataset")
    )
    network = functions["model"](**arguments)
    description = _description(
        cur, network, tokenizer, arguments=arguments, dataset_arguments=dataset_arguments
    )
    key = json.dumps([tokenizer_arguments, dataset_arguments])
    splits = {
        split: _split(split, cur, description, tokenizer, key) for split in ("train", "valid")
    }
    if cur.task == "regression" and options["standardize_target"]:
        mean, std = moments(torch.tensor(splits["train"][1], device=ranks.device), ranks)
        description = dataclasses.replace(description, mean=mean, std=std)
    rows = {
        name: Rows(inputs, description.targets(labels), description.inputs)
        for name, (inputs, labels) in splits.items()
    }
    return _Parts(
        description,
        network,
        tokenizer,
        rows,
        {name: labels for name, (_, labels) in splits.items()},
        params.framework,
    )


def _options(cur: trial.Current) -> dict[str, Any]:
    """Return the options of the trainer; without `dataset`, the tokenizer encodes the text.

    Raises:
        ValueError: Neither `tokenizer` nor `dataset` is set.
    """
    if cur.options["tokenizer"] is None and cur.options["dataset"] is None:
        raise ValueError(
            "the trainer `transformers` needs `trainer.tokenizer` for text, or `trainer.dataset` "
            "for other data"
        )
    return cur.options | {
        "dataset": cur.options["dataset"] or f"{encoded.__module__}:{encoded.__name__}"
    }


def _known(cur: trial.Current) -> dict[str, Any]:
    """Return what the user's functions may name, but for the size of the vocabulary."""
    assert cur.check is not None  # there is a label, so there is data
    return {
        "in_features": len(cur.check.columns),
        "task": cur.task,
        "num_labels": len(cur.classes or ()) or 1,
    }


def _description(
    cur: trial.Current,
    network: torch.nn.Module,
    tokenizer: Any,
    arguments: dict[str, Any],
    dataset_arguments: dict[str, Any],
) -> Description:
    """Return what predicts with a new network.

    Args:
        cur: The trial.
        network: The network.
        tokenizer: The tokenizer; None if there is none.
        arguments: Arguments with which the user's function made the network.
        dataset_arguments: Arguments of the function that converts rows.
    """
    assert cur.check is not None  # there is a label, so there is data
    options = _options(cur)
    return Description(
        model=options["model"],
        arguments=arguments,
        network=_class_of(network) if isinstance(network, transformers.PreTrainedModel) else None,
        tokenizer=_class_of(tokenizer) if tokenizer is not None else None,
        dataset=options["dataset"],
        dataset_arguments=dataset_arguments,
        inputs=tuple(inspect.signature(network.forward).parameters),
        columns=tuple(map(str, cur.check.columns)),
        task=str(cur.task),
        classes=len(cur.classes or ()),
    )


def _class_of(value: Any) -> str:
    """Return a reference to the class of a value."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _split(
    split: str, cur: trial.Current, description: Description, tokenizer: Any, key: str
) -> tuple[Any, np.ndarray]:
    """Return the inputs and the labels of this rank's rows.

    Inputs that an earlier trial encoded in the same way are used again.

    Args:
        split: "train" or "valid".
        cur: The trial.
        description: The conversion of rows.
        tokenizer: The tokenizer; None if there is none.
        key: Text that is the same for trials that encode the rows in the same way.
    """
    kept: dict[str, Any] = cur.cached(
        f"transformers.{split}", dict
    )  # only the latest encoding is kept
    if kept.get("key") != key:
        rows = read_rows(split, cur)
        kept.update(
            key=key, inputs=description.convert(rows.features, tokenizer), labels=rows.label
        )
    return kept["inputs"], kept["labels"]


def _training_arguments(
    parts: _Parts, cur: trial.Current, ranks: Ranks, folder: Path
) -> transformers.TrainingArguments:
    """Return the arguments of Transformers' trainer.

    Args:
        parts: The parts of the training.
        cur: The trial.
        ranks: The ranks of the trial.
        folder: Folder for the files that Transformers writes.
    """
    defaults = {
        "eval_strategy": "epoch",
        "num_train_epochs": cur.sweep_max_t or 3,
        # All ranks have the same number of rows, so the average over the ranks' batches is the
        # average over the rows.
        "average_tokens_across_devices": False,
    }
    return transformers.TrainingArguments(
        **defaults | parts.training,
        output_dir=str(folder),
        save_strategy="no",  # `_Trainer.evaluate` decides
        logging_strategy="no",  # `_Reports` decides
        report_to="none",
        disable_tqdm=True,
        seed=seed_of(cur.seed) % 2**32,
        use_cpu=ranks.device.type == "cpu",
    )


def _require_batches(latest: Path, arguments: transformers.TrainingArguments, rows: int) -> None:
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
    """Trainer whose ranks have their own rows of train, and whose evaluation reports a step."""

    def __init__(self, steps: Steps, parts: _Parts, arguments: transformers.TrainingArguments):
        self.steps, self.parts = steps, parts
        self.reports = _Reports(self)
        super().__init__(
            model=parts.network,
            args=arguments,
            data_collator=collator(parts.tokenizer),
            train_dataset=parts.rows["train"],
            eval_dataset=parts.rows["valid"],
            processing_class=parts.tokenizer,
            callbacks=[self.reports],
        )
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Return the batches of this rank.

        `Accelerator.prepare` is not called, because it would share the rows among the ranks again.
        """
        rows = self.parts.rows["train"]
        self.batches = Batches(
            len(rows), self._train_batch_size, seed_of(self.args.seed, self.steps.ranks.rank)
        )
        return torch.utils.data.DataLoader(
            rows,
            batch_sampler=self.batches,
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            persistent_workers=self.args.dataloader_persistent_workers,
            pin_memory=self.args.dataloader_pin_memory and self.steps.ranks.device.type == "cuda",
        )

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> Any:
        """Create the scheduler, and note the settings of the new optimizer and scheduler.

        They are noted before a checkpoint is restored.
        """
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        self.steps.settings = settings_of([_unwrapped(self.optimizer)], [scheduler])
        return scheduler

    def evaluate(self, *arguments: Any, **more: Any) -> dict[str, float]:
        """End a step, and report it.

        If a checkpoint is due, Transformers saves first, and `_Reports.on_save` reports the step.
        """
        metrics = self.measure()
        due = self.steps.end(
            metrics, self.parts.network, last=self.state.global_step >= self.state.max_steps
        )
        if self.steps.ends:
            self.steps.report_final(
                self.parts.network, lambda split: self.predict_split(split)[:2], metrics
            )
        if due:
            self.reports.metrics = metrics
        else:
            report(metrics, None)
        named = {
            f"eval_{name.removeprefix('valid-')}": value
            for name, value in metrics.items()
            if name.startswith("valid-")
        }
        self.control: Any = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, named
        )
        self.control.should_save = due
        return named

    def measure(self) -> dict[str, float]:
        """Return the losses, and the requested metrics on valid."""
        labels, predicted, loss = self.predict_split("valid")
        metrics = {"valid-loss": loss, "train-loss": self.reports.train_loss}
        names = [name for name in self.steps.names if name not in metrics]
        return metrics | measure(self.parts.description.task, "valid", labels, predicted, names)

    def predict_split(self, split: str) -> tuple[np.ndarray, np.ndarray, float]:
        """Return the labels and the predictions for the rows of all ranks, and the mean loss."""
        ranks, parts = self.steps.ranks, self.parts
        rows, labels = parts.rows[split], parts.labels[split]
        ranks.share_buffers(parts.network)
        own: Any = (
            torch.utils.data.Subset(rows, ranks.part_of(len(rows))) if split == "valid" else rows
        )
        logits, total = outputs_of(
            parts.network, own, parts.tokenizer, self.args.per_device_eval_batch_size
        )
        labels = labels if split == "valid" else ranks.gather_array(labels)
        predicted = parts.description.predictions(
            torch.from_numpy(ranks.gather_array(logits.numpy()))
        )
        return (
            labels,
            predicted,
            ranks.mean(torch.tensor(total, dtype=torch.float64, device=ranks.device), len(own)),
        )


def _unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer that Accelerate has wrapped."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner


class _Reports(transformers.TrainerCallback):
    """Callback that reports the steps with checkpoints.

    Args:
        trainer: The trainer.

    Attributes:
        train_loss: Mean loss on train since the step before.
        metrics: Metrics of the step whose checkpoint Transformers saves.
        seeded: Number of reported steps when the random numbers were seeded last.
    """

    def __init__(self, trainer: _Trainer):
        self.trainer, self.steps = trainer, trainer.steps
        self.train_loss = float("nan")
        self.metrics: dict[str, float] = {}
        self.seeded = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a resume: apply changed settings."""
        if self.steps.settings_before is not None:
            optimizers, schedulers = [_unwrapped(kwargs["optimizer"])], [kwargs["lr_scheduler"]]
            apply_changes(optimizers, schedulers, self.steps.settings_before, self.steps.settings)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the epoch, from which the order of the rows follows."""
        self.trainer.batches.set_epoch(int(state.epoch))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seed the first step after a report, so that a resumed trial repeats its draws."""
        if self.seeded != self.steps.done:  # not each step, because a seed takes a millisecond
            self.seeded = self.steps.done
            set_seeds(self.steps.cur.seed, state.global_step, self.steps.ranks.rank)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the loss before each evaluation."""
        control.should_log = control.should_evaluate

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Log the loss before each evaluation."""
        control.should_log = control.should_evaluate

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the loss since the step before."""
        self.train_loss = (logs or {}).get("loss", self.train_loss)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report a step with a checkpoint.

        Transformers has just saved its own checkpoint into `output_dir`.
        """
        saved = Path(args.output_dir, f"checkpoint-{state.global_step}")
        report(
            self.metrics,
            functools.partial(self._save, saved) if self.steps.ranks.rank == 0 else None,
        )
        shutil.rmtree(saved, ignore_errors=True)

    def _save(self, saved: Path, folder: Path) -> None:
        """Write a checkpoint.

        Args:
            saved: Folder of Transformers' own checkpoint, which is moved.
            folder: Folder of the checkpoint.
        """
        shutil.move(saved, folder / LATEST)
        parts = self.trainer.parts
        if isinstance(parts.network, transformers.PreTrainedModel):
            parts.network.config.save_pretrained(folder)
        if parts.tokenizer is not None:
            parts.tokenizer.save_pretrained(folder / TOKENIZER)
        self.steps.save(folder, parts.network, parts.description, load)
