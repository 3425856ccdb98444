"""The training loop of a trial, and what the workers must know to run it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LoopSpec:
    """A training loop, as a worker receives it.

    Attributes:
        name: Name of a built-in trainer, which is a file in `trainers/`. None for a user's trainer.
        loop: The training loop, as `module:attr`.
        backend: The process group that the ranks of the loop need: one of `value_types.BACKENDS`,
            or `module:attr` of a `BackendConfig`.
        load: The function that loads a checkpoint's model, as `module:attr`. If None, the sweep
            writes no bundle.
        reuse: "auto" keeps a gang of workers for the next trial. "never" closes the gang after each
            trial.
        options: Value of each option of the trainer, by the option's name; see
            `TrainerDefinition.options`.
        references: The options that name the user's code, as `module:attr`. Their modules belong to
            the code of the loop.
        packages: The options that name a package. The loop and the bundle need these packages.
        environment: Environment variables that the workers have before they import the user's code.
        label: Name of the trainer among several trainers. "" if the sweep has only one trainer.
    """

    name: str | None
    loop: str
    backend: str
    load: str | None
    reuse: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def params_key(self) -> str:
        """Path of the trainer's parameters below `space`, with which their names begin."""
        return params_key(self.label)


def params_key(label: str) -> str:
    """Return the path of a trainer's parameters below `space`.

    >>> params_key("xgboost"), params_key("")
    ('params.xgboost', 'params')
    """
    return f"params.{label}" if label else "params"
