"""The trainer of a trial, as the section `trainer` describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .trainer_definition import UNKNOWN, TrainerDefinition


@dataclass(frozen=True)
class TrainerSpec:
    """A trainer of a sweep: a built-in trainer, or a user's training loop.

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
        path: Dotted path of the trainer in the space file, such as `trainer.choice.0`.
        definition: Definition of the trainer, from the trainer's module.
    """

    name: str | None
    loop: str
    backend: str
    load: str | None
    reuse: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    label: str = ""
    path: str = field(default="trainer", compare=False)
    definition: TrainerDefinition = field(default=UNKNOWN, compare=False, repr=False)

    def is_same(self, other: "TrainerSpec") -> bool:
        """Return whether two trainers train with the same loop and options."""
        return (self.loop, self.options) == (other.loop, other.options)

    @property
    def title(self) -> str:
        """The trainer's name for messages: its label, its name or its loop."""
        return self.label or self.name or self.loop

    @property
    def params_key(self) -> str:
        """Path of the trainer's parameters below `space`, with which their names begin."""
        return f"params.{self.label}" if self.label else "params"


def backends_of(trainers: Mapping[str, TrainerSpec]) -> dict[str, str]:
    """Return the backend of each trainer, by label."""
    return {label: trainer.backend for label, trainer in trainers.items()}
