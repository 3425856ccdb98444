"""The trainer of a trial, as the section `trainer` describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sweeps.core.loop_spec import LoopSpec

from .trainer_definition import UNKNOWN, TrainerDefinition


@dataclass(frozen=True)
class TrainerSpec(LoopSpec):
    """A trainer of a sweep: a built-in trainer, or a user's training loop.

    Attributes:
        path: Dotted path of the trainer in the space file, such as `trainer.choice.0`.
        definition: Definition of the trainer, from the trainer's module.
    """

    path: str = field(default="trainer", compare=False)
    definition: TrainerDefinition = field(default=UNKNOWN, compare=False, repr=False)

    @property
    def loop_spec(self) -> LoopSpec:
        """The part of the trainer that a worker receives."""
        return LoopSpec(**{each.name: getattr(self, each.name) for each in fields(LoopSpec)})

    def is_same(self, other: "TrainerSpec") -> bool:
        """Return whether two trainers train with the same loop and options."""
        return (self.loop, self.options) == (other.loop, other.options)

    @property
    def title(self) -> str:
        """The trainer's name for messages: its label, its name or its loop."""
        return self.label or self.name or self.loop


def backends_of(trainers: Mapping[str, TrainerSpec]) -> dict[str, str]:
    """Return the backend of each trainer, by label."""
    return {label: trainer.backend for label, trainer in trainers.items()}
