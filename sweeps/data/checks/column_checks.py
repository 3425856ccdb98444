"""Check that the columns that are named in preprocessing steps exist.

The check runs before any step is fitted. Pure functions, no I/O.
"""

import fnmatch
import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sweeps.core.errors import Problem, first_of
from sweeps.core.label_columns import Label, label_columns
from sweeps.data.preprocessing.step_kinds import ENCODERS, EXPANDING
from sweeps.space import Dimension, Space, Step
from sweeps.space.model.templates import Template, walk
from sweeps.space.sections.trainer_definition import TrainerDefinition

from .named_columns import nearest_column

SELECTOR_WORDS = ("numeric", "categorical", "all")
# Beginnings of the names of types that the keyword "categorical" leaves out
_NOT_CATEGORICAL = (
    "timestamp",
    "date",
    "duration",
    "list",
    "large_list",
    "fixed_size_list",
    "struct",
    "map",
    "extension",
    "ray.",
    "arrow.",
    "pandas.",
)
# Types of pandas that Arrow stores as other values. A bundle gets the values of pandas, and refuses
# them
_PANDAS = "pandas."
# Beginnings of the names of types, with the advice. A frame that is prepared has names of pandas,
# such as `datetime64[us]`
_ENCODER = "add an encoder, such as `preprocessor: [OneHotEncoder]`"
_DAYS = 'write `data.parse: {{{name}: "%Y-%m-%d"}}`'
_REMEDIES = {
    "text": _ENCODER,
    "category": "add an encoder that makes numbers, such as `preprocessor: [OneHotEncoder]`",
    "timestamp": _DAYS,
    "date": _DAYS,
    _PANDAS: "convert {them} to dates (`to_timestamp()`), numbers or texts",
    "duration": "convert {them} to numbers, for example with `dt.total_seconds()`",
    "": "name {them} in `columns` of a step that makes numbers of {them}",
}
# No step makes a name with `[`, `]` or `<`, because XGBoost does not accept them
_SAFE_CHARACTERS = str.maketrans("[]<", "()_")


def check_step_columns(
    chain: Template,
    features: Iterable[str],
    label: Label | None,
    source: str,
    removed: Iterable[str] = (),
    params: Template = None,
) -> list[Problem]:
    """Check that the columns named in preprocessing steps and constraints exist.

    A name is a problem only if no column of this name can reach the step in any chain. The exact
    columns are unknown before the earlier steps are fitted.

    Args:
        chain: The `preprocessor` section of the space: the steps, and the dimensions if steps or
            their columns are tuned.
        features: Columns that reach the first step.
        label: See `DataSpec.label`. No step gets the label; None if the data has no label.
        source: Name of the data source, for messages.
        removed: Columns of the data that do not reach any step: the label, columns of weights, the
            columns in `data.drop`, and the columns of splits `{column: ..., value: ...}`.
        params: The `params` section of the space, whose constraints of gradient boosting name
            columns.

    Returns:
        One problem for each wrong name. Its place is a path in the space file, such as
        `preprocessor.0.StandardScaler.columns.1`.
    """
    names = sorted(features)
    left_out = frozenset(removed)
    expanded = False  # whether a step so far makes columns such as `color_red` of `color`
    problems = []
    for step in steps_of(chain):
        for path, want in selectors(step.columns, f"{step.path}.columns"):
            if not _may_exist(want, names, expanded):
                where = f"`{source}`" + " or in the output of earlier steps" * expanded
                text = _not_found(want, names, where=where, label=label, removed=left_out)
                problems.append(Problem(path, text))
        if ":" in step.name:  # user code may make columns with any name
            return problems
        expanded = expanded or step.name in EXPANDING
    for path, want in _constrained(params):
        if not _may_exist(want, names, expanded):
            text = f"no column `{want}` reaches the trainer; {nearest_column(want, names)}"
            problems.append(Problem(path, text))
    return problems


def _may_exist(want: str, names: Sequence[str], expanded: bool) -> bool:
    """Return whether a name or a pattern can select a column, perhaps one that a step makes."""
    if want in (*SELECTOR_WORDS, *names) or fnmatch.filter(names, want):
        return True
    starts = (name.translate(_SAFE_CHARACTERS) + "_" for name in names)
    return expanded and (glob.has_magic(want) or want.startswith(tuple(starts)))


def _not_found(
    want: str, names: Sequence[str], where: str, label: Label | None, removed: frozenset[str]
) -> str:
    """Return the reason why no column that reaches a step has a name, or matches a pattern."""
    if want in label_columns(label):
        return f"`{want}` is the label, which no step may change"
    if want in removed:
        return f"`{want}` is not a feature, because data.drop, data.weight or a split removes it"
    if glob.has_magic(want):
        return f"no column in {where} matches `{want}`; {nearest_column(want, names)}"
    return f"no column `{want}` in {where}; {nearest_column(want, names)}"


def _constrained(params: Template) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each column that a constraint names.

    A constraint that is tuned is checked in its trials.
    """
    params = params if isinstance(params, dict) else {}
    for key in ("monotone_constraints", "interaction_constraints"):
        given = params.get(key)
        if isinstance(given, (dict, tuple, list)):
            named = given if isinstance(given, dict) else walk(given)
            yield from ((f"params.{key}", name) for name in named if isinstance(name, str))


def check_types(space: Space, types: Sequence[Mapping[str, str]]) -> list[Problem]:
    """Return problems if each variant and each chain gives the trainer a column it cannot read.

    If only some variants have such a column, their trials fail, but the sweep does not. Nothing is
    returned then.

    Args:
        space: The search space.
        types: For each variant, the features that are no numbers and have no rule of `data.parse`,
            with their types. See `column_types.type_name`.
    """
    steps = [*steps_of(space.sections.get("preprocessor"))]
    unread = [
        {
            name: refused
            for name, kind in columns.items()
            if (refused := _unread_kind(name, kind, steps, space.trainer_definition))
        }
        for columns in types
    ]
    if not all(unread):
        return []
    return unread_problems(unread[0], space.trainer.name or "the trainer")


def _unread_kind(column: str, kind: str, steps: Sequence[Step], trainer: TrainerDefinition) -> str:
    """Return the type of a column that the trainer cannot read; "" if it may be able to."""
    if kind.startswith(_PANDAS):
        return kind
    changing = {step.name for step in steps if _may_change(step, column, kind)}
    if not trainer.reads_numbers or (changing and trainer.reads_categories):
        return ""
    if changing == {"Categorizer"}:
        return "category"
    return "" if changing else kind


def unread_problems(columns: Mapping[str, str], trainer: str) -> list[Problem]:
    """Return one problem for each type of the columns that a trainer cannot read."""
    problems = []
    for kind in dict.fromkeys(columns.values()):
        names = [name for name in columns if columns[name] == kind]
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        remedy = next(_REMEDIES[start] for start in _REMEDIES if kind.startswith(start))
        what = kind if kind == "text" else f"of the type {kind}"
        text = (
            f"{first_of([f'`{name}`' for name in names])} {verb} {what}, which {trainer} cannot "
            f"read, and no step encodes {them}"
        )
        remedy = remedy.format(them=them, name=names[0])
        problems.append(
            Problem("space.preprocessor", f"{text}; {remedy}, or add {them} to data.drop")
        )
    return problems


def _may_change(step: Step, column: str, kind: str) -> bool:
    """Return whether a step may encode, remove or replace a column of a type that is no number."""
    if ":" in step.name:
        return True
    encodes = step.name in ENCODERS and not kind.startswith(_NOT_CATEGORICAL)
    return encodes and selects(step, column)


def selects(step: Step, column: str, categorical: bool = True) -> bool:
    """Return whether a step may get a column that is no number.

    A step without `columns` gets all columns.

    Args:
        step: The step.
        column: Name of the column.
        categorical: True if the keyword "categorical" includes the column.
    """
    words = ("all", "categorical") if categorical else ("all",)
    chosen = [text for _, text in selectors(step.columns, "")]
    return step.columns is None or any(
        text in (*words, column) or fnmatch.fnmatchcase(column, text) for text in chosen
    )


def selectors(columns: Template, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of each column name, keyword and pattern in the `columns` of a step.

    A keyword is "numeric", "categorical" or "all". If `columns` is tuned, the texts of all options
    are included.

    Args:
        columns: The `columns` of the step.
        path: Path of `columns` in the space file, such as `preprocessor.0.StandardScaler.columns`.
    """
    if isinstance(columns, Dimension):
        for i, option in enumerate(columns.options):
            yield from selectors(option.value, f"{columns.name}.{columns.kind}.{i}")
    elif isinstance(columns, tuple):
        for i, column in enumerate(columns):
            yield from selectors(column, f"{path}.{i}")
    elif isinstance(columns, str):
        yield path, columns


def steps_of(chain: Template) -> Iterator[Step]:
    """Yield every step in a template of a chain."""
    return (part for part in walk(chain) if isinstance(part, Step))
