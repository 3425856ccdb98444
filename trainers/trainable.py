"""Train a class for Ray Tune, a subclass of `ray.tune.Trainable`.

    trainer: {trainable: "my_mod:MyTrainable"}

Each call of `step` is one report. The trial ends when `step` returns `done: True`, at the
scheduler's `max_t`, or when the scheduler stops the trial. A report has a checkpoint, which
`save_checkpoint` writes, if its step is the best one so far, if a checkpoint is due, or if `step`
returned `should_checkpoint: True`. As in Ray Tune, the working directory is the trial's folder,
unless the environment variable `RAY_CHDIR_TO_TRIAL_DIR` is 0.
"""

import contextlib
import copy
import functools
import inspect
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray.train
from ray.air.constants import TRAINING_ITERATION
from ray.train._internal.session import _TrainingResult
from ray.tune import Trainable
from ray.tune.result import (
    AUTO_RESULT_KEYS,
    DONE,
    EPISODES_TOTAL,
    SHOULD_CHECKPOINT,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
    TRIAL_ID,
    TRIAL_INFO,
)
from ray.tune.utils import flatten_dict

from sweeps import trial
from sweeps.core.files import trust
from sweeps.core.plugins import references

from . import report, without

# Files of a checkpoint: the state of this loop, and the dict that `save_checkpoint` returned, which
# Ray pickles.
STATE = "sweeps_trainable.json"
DICT = "_dict_checkpoint.pkl"
# Counters of `Trainable`, which continue in a resumed trial.
COUNTERS = (TRAINING_ITERATION, TIME_TOTAL_S, TIMESTEPS_TOTAL, EPISODES_TOTAL)
# Values that `Trainable.train` adds to the dict of `step`, and that describe the process or control
# the loop.
NOT_REPORTED = {*AUTO_RESULT_KEYS, TRIAL_ID, DONE, SHOULD_CHECKPOINT} - {
    TIMESTEPS_TOTAL,
    EPISODES_TOTAL,
}


@dataclass
class Progress:
    """Progress of a trial.

    Attributes:
        step: Number of the last step.
        done: True if the last step was done.
        best: Metrics of the best step so far. None if there is no best step.
    """

    step: int = 0
    done: bool = False
    best: dict[Any, float] | None = None


def train_func(config: dict[str, Any]) -> None:
    """Train an instance of the class, and report each step.

    Args:
        config: The trial's `params`, which the class gets as its `config`.

    Raises:
        TypeError: The object is not a subclass of `ray.tune.Trainable`.
    """
    cur = trial.current()
    # A `Trainable` changes the working directory to the trial's folder.
    with contextlib.chdir(os.getcwd()):
        instance = make(class_of(cur.options["trainable"]), config, cur)
        try:
            train(instance, cur)
        finally:
            instance.stop()


def class_of(reference: str) -> type[Trainable]:
    """Import the class.

    Raises:
        TypeError: The object is not a subclass of `ray.tune.Trainable`.
    """
    attribute = references.resolve(reference)
    if inspect.isclass(attribute) and issubclass(attribute, Trainable):
        return attribute
    message = f"trainer.trainable: `{reference}` is not a subclass of ray.tune.Trainable"
    if inspect.isfunction(attribute):
        message += f'; a function is a training loop, so write trainer: {{loop: "{reference}"}}'
    raise TypeError(message)


def make(cls: Any, config: dict[str, Any], cur: trial.Current) -> Any:
    """Return an instance of the class for a trial.

    Args:
        cls: The class.
        config: The trial's `params`.
        cur: The trial.
    """
    info = SimpleNamespace(
        trial_id=cur.trial,
        trial_name=ray.train.get_context().get_experiment_name(),
        trial_resources=None,
    )
    folder = str(cur.folder)
    storage = SimpleNamespace(trial_working_directory=folder, trial_fs_path=folder)
    instance = cls(config=copy.deepcopy(config) | {TRIAL_INFO: info}, storage=storage)
    # Otherwise `Trainable.save` would copy each checkpoint to Ray's own storage.
    instance._storage = None
    return instance


def train(instance: Any, cur: trial.Current) -> None:
    """Call `step` until the trial ends, and report each step.

    Args:
        instance: The instance. If there is a checkpoint, the instance continues from the
            checkpoint.
        cur: The trial.
    """
    progress = restore(instance)
    while not progress.done:
        result = instance.train()
        progress.step += 1
        progress.done = bool(result.get(DONE))
        metrics = without(result, NOT_REPORTED)
        measured = {name: number(metrics, name) for name in (cur.metric, *cur.asked)}
        improved = not cur.keep_last and cur.better(measured, progress.best)
        if improved:
            progress.best = measured
        due = (
            cur.checkpoint_due(progress.step, last=progress.done)
            or improved
            or result.get(SHOULD_CHECKPOINT)
        )
        report(metrics, functools.partial(save, instance, progress) if due else None)


def number(metrics: Mapping[str, Any], name: str | None) -> float:
    """Return a metric, whose name has dots if the metric is in a nested dict.

    Return NaN if the metric is missing or not a number.
    """
    try:
        return float(flatten_dict(dict(metrics), delimiter=".")[name])
    except (KeyError, TypeError, ValueError, RuntimeError):
        # A tensor with several elements raises a RuntimeError.
        return math.nan


def save(instance: Any, progress: Progress, folder: Path) -> None:
    """Write a checkpoint of an instance into a folder."""
    saved = instance.save(str(folder))
    if (folder / DICT).exists():
        trust.sign(folder / DICT)
    counters = {name: saved.metrics[name] for name in COUNTERS if name in saved.metrics}
    state = asdict(progress) | {"counters": counters}
    (folder / STATE).write_text(json.dumps(state, default=float))


def restore(instance: Any) -> Progress:
    """Let an instance continue from the trial's checkpoint, if there is one.

    Return the trial's progress until then.
    """
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return Progress()
    with checkpoint.as_directory() as folder:
        state = json.loads(Path(folder, STATE).read_text())
        instance.restore(_TrainingResult(checkpoint, state.pop("counters")))
    return Progress(**state)
