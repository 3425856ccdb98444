"""Find parts of a valid space that are seldom what the user wants. Pure functions, no I/O."""

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from sweeps.core.metrics import usual_goal
from sweeps.space.model.templates import Template, walk
from sweeps.space.sections.search_models import Objective
from sweeps.space.yaml.scalars import scalar


def goal_notes(objectives: Sequence[Objective]) -> tuple[str, ...]:
    """Return a note for each objective that searches for the worst value of a well-known metric."""
    notes = []
    for i, objective in enumerate(objectives):
        usual = usual_goal(objective.metric)
        if usual is not None and usual != objective.goal:
            key = f"objective.{i}.goal" if len(objectives) > 1 else "objective.goal"
            better = "lower" if usual == "minimize" else "higher"
            text = (
                f"a {better} `{objective.metric}` is usually better, but the goal is "
                f"`{objective.goal}`"
            )
            notes.append(f"{key}: {text}; write `goal: {usual}`")
    return tuple(notes)


def brace_notes(key: str, params: Template, names: Iterable[str]) -> Iterator[str]:
    """Yield a note for each text in `params` that names a dimension.

    An example is "{params.layers} * 16".

    Args:
        key: Path of the parameters below `space`.
        params: The parameters of a trainer.
        names: Names of the dimensions.
    """
    tuned = {name.rpartition(".")[2] for name in names}
    parameters: dict[str, str] = {}  # the parameter that has a text, by the text
    for name, template in params.items() if isinstance(params, dict) else ():
        for part in walk(template):
            if isinstance(part, str):
                parameters[part] = name
    for text, name in parameters.items():
        # a pair for each dimension that the text names, in braces or after `params.`
        pairs = re.findall(r"\{(?:[\w.]*\.)?(\w+)\}|\bparams\.(\w+)", text)
        if tuned & set(itertools.chain.from_iterable(pairs)):
            yield (
                f"space.{key}.{name}: the loop gets the text {text}, because sweeps computes no "
                "values; compute the value in the loop, from the values of the other parameters"
            )


def list_notes(params: Template) -> tuple[str, ...]:
    """Return a note for each parameter that is a list of several numbers or texts.

    Use this only for a space without a dimension. A text such as "32,64,128" is treated as a list,
    because Hydra tries each part of such a text.

    Args:
        params: The section `space.params`.
    """
    lists = {}
    for name, value in params.items() if isinstance(params, dict) else ():
        if isinstance(value, str) and re.fullmatch(r"[^\s,]+(,[^\s,]+)+", value):
            value = [scalar(part) for part in value.split(",")]
        if isinstance(value, (list, tuple)):
            lists[name] = value
    return tuple(
        f"space.params.{name}: this list is one value, and nothing is tuned; to try each element, "
        f"write `{{choice: {json.dumps(value)}}}`"
        for name, value in lists.items()
        if len(value) > 1 and all(isinstance(item, (int, float, str)) for item in value)
    )
