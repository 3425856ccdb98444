"""Find the parts of a space that cannot read their data as a stream. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweeps.space.section_models import DataSpec, TrainerSpec
from sweeps.space.step_names import Step
from sweeps.space.templates import Template, walk
from sweeps.space.trainer_definition import TrainerDefinition

# Built-in preprocessors that cannot be fitted in one pass over a stream, and what to use instead.
UNFITTABLE = {"RobustScaler": "StandardScaler or MinMaxScaler"}
MEMORY = "write `ingest: memory`"


def stream_obstacles(
    data: DataSpec, sections: Mapping[str, Template], trainer: TrainerSpec, definition: TrainerDefinition
) -> Iterator[tuple[str, str]]:
    """Yield each key of the space file that rules out `data.ingest: stream`, with the reason and the next step.

    Args:
        data: The section `data`.
        sections: Templates of the sections of the space; see `Space.sections`.
        trainer: The trainer.
        definition: The definition of the trainer.
    """
    if trainer.name is not None and not definition.streams:
        yield "trainer", f"`{trainer.name}` needs the whole table in memory; {MEMORY}, or bring your own loop (docs/how-to/streaming.md)"
    if len(data.labels) > 1:
        yield "data.label", f"a stream has a label of one column; {MEMORY}, or name one column"
    tuned = sections.get("data", {})
    kind = data.valid.kind if data.valid is not None else ""
    if data.folds:
        yield "data.valid", f"a cross-validation needs all rows in memory; {MEMORY}, or give another split"
    elif kind == "time":
        yield "data.valid", "a stream has no latest rows before it ends; write these rows to a file of their own, and give its path"
    if data.test is not None:
        yield "data.test", "a stream has no test split; leave this key out, and score the bundle with `sweeps predict`"
    for key, given in (("weight", data.weight_columns), ("class_weight", data.class_weight)):
        if given or key in tuned:
            yield f"data.{key}", f"streamed rows have no weights; {MEMORY}, or leave this key out and compute weights in the loop"
    if set(data.parse) & set(data.labels):
        yield "data.parse", f"a stream cannot parse its label; {MEMORY}, or store the label as numbers"
    if data.drop_duplicates:
        yield "data.drop_duplicates", f"a stream does not compare its rows; {MEMORY}, or leave this key out"
    steps = {part.name for part in walk(sections.get("preprocessor")) if isinstance(part, Step)}
    for name in sorted(steps & UNFITTABLE.keys()):
        yield "space.preprocessor", f"{name} cannot be fitted on a stream; use {UNFITTABLE[name]}, or {MEMORY}"
