"""Find the parts of a space that rule out streamed data, or a scheduler that counts rows.

Pure functions, no I/O.
"""

from collections.abc import Collection, Container, Iterator, Mapping

from sweeps.core.resources import ELASTIC
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import Sections, tuned_data, walk

from .data_models import DataSpec
from .key_types import ROWS
from .search_models import SchedulerSpec
from .trainer_spec import TrainerSpec

# Built-in preprocessors that cannot be fitted in one pass over a stream, and what to use instead.
UNFITTABLE = {"RobustScaler": "StandardScaler or MinMaxScaler"}
MEMORY = "write `ingest: memory`"


def stream_obstacles(
    data: DataSpec,
    sections: Sections,
    trainers: Collection[TrainerSpec],
    scheduler: SchedulerSpec,
) -> Iterator[tuple[str, str]]:
    """Yield each key that rules out `data.ingest: stream`, with the reason and the next step.

    Args:
        data: The section `data`.
        sections: Templates of the sections of the space; see `Space.sections`.
        trainers: The trainers.
        scheduler: The scheduler.
    """
    # The key of each obstacle, whether the space has the obstacle, and the message.
    obstacles = [
        (
            "scheduler.resource",
            scheduler.counts_rows,
            f"a stream cannot be cut into nested parts; {MEMORY}, or leave this key out to count "
            "reports",
        ),
        *(
            (
                trainer.path,
                trainer.name is not None and not trainer.definition.streams,
                f"`{trainer.name}` needs the whole table in memory; {MEMORY}, or bring your own "
                "loop (docs/how-to/streaming.md)",
            )
            for trainer in trainers
        ),
        (
            "data.label",
            len(data.labels) > 1,
            f"a stream has a label of one column; {MEMORY}, or name one column",
        ),
        *_split_obstacles(data),
        *_key_obstacles(data, tuned_data(sections)),
    ]
    yield from ((key, text) for key, is_present, text in obstacles if is_present)
    steps = {part.name for part in walk(sections.get("preprocessor")) if isinstance(part, Step)}
    for name in sorted(steps & UNFITTABLE.keys()):
        text = f"{name} cannot be fitted on a stream; use {UNFITTABLE[name]}, or {MEMORY}"
        yield "space.preprocessor", text


def _split_obstacles(data: DataSpec) -> Iterator[tuple[str, bool, str]]:
    """Yield each split that a stream may not have, whether the data has it, and the message."""
    kind = data.valid.kind if data.valid is not None else ""
    yield (
        "data.valid",
        data.folds > 0,
        f"a cross-validation needs all rows in memory; {MEMORY}, or give another split",
    )
    yield (
        "data.valid",
        kind == "time",
        "a stream has no latest rows before it ends; write these rows to a file of their own, and "
        "give its path",
    )
    yield (
        "data.test",
        data.test is not None,
        "a stream has no test split; leave this key out, and score the bundle with `sweeps "
        "predict`",
    )


def _key_obstacles(data: DataSpec, tuned: Container[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield each further key that a stream may not have, whether it is set, and the message.

    Args:
        data: The section `data`.
        tuned: The keys of `data` that are tuned.
    """
    text = (
        f"streamed rows have no weights; {MEMORY}, or leave this key out and compute weights in "
        "the loop"
    )
    yield "data.weight", bool(data.weight_columns) or "weight" in tuned, text
    yield "data.class_weight", bool(data.class_weight) or "class_weight" in tuned, text
    yield (
        "data.parse",
        bool(set(data.parse) & set(data.labels)),
        f"a stream cannot parse its label; {MEMORY}, or store the label as numbers",
    )
    yield (
        "data.drop_duplicates",
        data.drop_duplicates,
        f"a stream does not compare its rows; {MEMORY}, or leave this key out",
    )


def row_obstacles(
    data: DataSpec | None, sections: Sections, scheduler: SchedulerSpec
) -> Iterator[tuple[str, str]]:
    """Yield each key that rules out a scheduler that counts rows.

    The reason and the next step are yielded with the key.

    Args:
        data: The section `data`; None if it has a problem.
        sections: Templates of the sections of the space; see `Space.sections`.
        scheduler: The scheduler, which counts rows.
    """
    key = "scheduler.resource"
    next_step = "leave this key out to count reports"
    if data is not None and not data.is_named:
        yield key, f"{ROWS} needs the section `data`, but this loop reads its own data; {next_step}"
    elif data is not None and data.folds:
        text = f"{ROWS} does not go with a cross-validation, whose steps are folds; {next_step}"
        yield key, f"{text}, or give another split in data.valid"
    if data is not None and data.queries:
        yield key, f"{ROWS} does not keep the groups of data.group together; {next_step}"
    if "rows" in tuned_data(sections):
        text = f"must not be tuned, because the scheduler chooses the rows (`resource: {ROWS}`)"
        yield "data.rows", f"{text}; write one number"
    if any(isinstance(part, Mapping) and ELASTIC in part for part in walk(sections.get("scaling"))):
        text = (
            "must not be elastic, because each run on more rows starts from scratch (`resource: "
            f"{ROWS}`); write one number, or a choice"
        )
        yield "space.scaling.num_workers", text
    # The first run would then train on all rows.
    max_t = scheduler.max_t
    if max_t is not None and max_t in (1, scheduler.options.get("grace_period")):
        text = (
            f"must be greater than grace_period, because `resource: {ROWS}` trains on "
            "grace_period / max_t of the rows first"
        )
        yield "scheduler.max_t", f"{text}; got {max_t}; write 9 to begin with a ninth"
