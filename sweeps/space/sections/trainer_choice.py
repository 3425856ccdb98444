"""Parse the key `trainer`: one trainer, or a grid or choice of several trainers."""

import re
from dataclasses import replace

from sweeps.core.text.suggestions import did_you_mean
from sweeps.space.model.domains import BRANCHING, DOMAINS
from sweeps.space.model.templates import Template
from sweeps.space.parse.dimension_parser import DimensionParser
from sweeps.space.parse.nodes import INVALID, Node

from .trainer_section import TrainerSection
from .trainer_spec import TrainerSpec

# Key of an option that gives the trainer's label.
LABEL = "as"
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,40}\Z")


def read_trainers(
    node: Node, section: TrainerSection, parser: DimensionParser
) -> tuple[dict[str, TrainerSpec], Template]:
    """Parse the key `trainer`.

    Args:
        node: The value of the key.
        section: Parser of one trainer.
        parser: Parser of dimensions, which adds the dimension `trainer` to the known dimensions.

    Returns:
        The trainers by their labels, without those that have a problem. The label of a single
        trainer is "". The second result is the dimension whose options are the labels; None if
        there is a single trainer, and INVALID after a problem.
    """
    kinds = [key for key in DOMAINS if node.is_map and key in node.value]
    if not kinds:
        trainer = section.read(node)
        return ({} if trainer is None else {"": trainer}), None
    trainers: dict[str, TrainerSpec] = {}

    def read_option(option: Node) -> Template:
        trainer = _read_labeled(option, section)
        if trainer is None:
            return INVALID
        if trainer.label in trainers:
            text = f"two trainers are called `{trainer.label}`; give one of them another name"
            return option.wrong(f"{text} with the key `{LABEL}`")
        trainers[trainer.label] = trainer
        return trainer.label

    parser.when_parser.started.add("trainer")  # also if it is invalid
    if kinds[0] not in BRANCHING:
        text = f"must be one trainer, or a grid or choice of several trainers, not {kinds[0]}"
        return trainers, node.wrong(text)
    if len(node.value) > 1:
        others = ", ".join(str(key) for key in node.value if key != kinds[0])
        text = f"`{kinds[0]}` must be the only key of `trainer`; remove: {others}"
        return trainers, node.wrong(text, node.value[kinds[0]].at)
    return trainers, parser.branches(node, kinds[0], read_option)


def _read_labeled(option: Node, section: TrainerSection) -> TrainerSpec | None:
    """Return one of several trainers, with its label. Return None after adding a problem."""
    label = option
    if option.is_map:
        label = option.get(LABEL)
        keys = {key: child for key, child in option.value.items() if key != LABEL}
        option = replace(option, value=keys)
    trainer = section.read(option)
    if trainer is None:
        return None
    name = trainer.name
    if option.is_map and label.value is not None:
        name = label.value
    if name is None:
        text = "is your own loop, so it needs a label among several trainers; add"
        option.wrong(f"`{trainer.loop}` {text} `{LABEL}: NAME`")
        return None
    if not isinstance(name, str) or not _LABEL.match(name):
        label.wrong(f"must have 1 to 40 letters, digits, `_` and `-`, got {label.show()}")
        return None
    return replace(trainer, label=name)


def misplaced(name: str, trainers: dict[str, TrainerSpec]) -> str:
    """Return the end of a message about a key of `params` that is in the wrong place.

    Args:
        name: The key.
        trainers: All trainers of the space, by their labels.
    """
    owners = [each for each in trainers.values() if name in each.definition.parameters]
    if not owners:
        return did_you_mean(name, list(trainers))
    places = " or ".join(f"`space.{owner.params_key}`" for owner in owners)
    return f"it is a parameter of {owners[0].title}; move it to {places}"
