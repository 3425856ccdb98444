"""Check that the columns that are named in preprocessing steps exist.

The check runs before any step is fitted. Pure functions, no I/O.
"""

import fnmatch
import glob
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from sweeps.core.errors import Problem, join_first
from sweeps.core.label_columns import Label, label_columns
from sweeps.data.preprocessing.step_kinds import ENCODERS, EXPANDING
from sweeps.space import Dimension, Space, Step
from sweeps.space.model.templates import Template, walk, walk_with
from sweeps.space.sections.trainer_definition import TrainerDefinition

from .named_columns import column_suggestion

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
# Beginning of the names of extension types of pandas, such as `pandas.period`. Arrow stores a
# column of such a type as other values. No step can change it: a bundle gets pandas' own values
# and refuses them.
_PANDAS_TYPES = "pandas."
_PARSE_DATES = 'write `data.parse: {{{name}: "%Y-%m-%d"}}`'
# The advice about a column that the trainer cannot read, by the beginning of the name of its type.
# A prepared column has a name of pandas, such as `datetime64[us]`. The first match counts.
_REMEDIES = {
    "text": "add an encoder, such as `preprocessor: [OneHotEncoder]`",
    "category": "add an encoder that makes numbers, such as `preprocessor: [OneHotEncoder]`",
    "timestamp": _PARSE_DATES,
    "date": _PARSE_DATES,
    _PANDAS_TYPES: "convert {them} to dates (`to_timestamp()`), numbers or texts",
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
    removed: Collection[str] = (),
    params: Mapping[str, Template] = MappingProxyType({}),
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
        params: Parameters of each trainer, whose constraints of gradient boosting name columns, by
            their path in the space file.

    Returns:
        One problem for each wrong name. Its place is a path in the space file, such as
        `preprocessor.0.StandardScaler.columns.1`.
    """
    names = sorted(features)
    expanded = False  # True after a step that makes columns such as `color_red` of `color`
    where = f"`{source}`"
    problems = []
    for step in steps_of(chain):
        for path, selector in selectors(step.columns, f"{step.path}.columns"):
            if not _may_exist(selector, names, expanded):
                text = _not_found(selector, names, where=where, label=label, removed=removed)
                problems.append(Problem(path, text))
        if ":" in step.name:  # user code may make columns with any name
            return problems
        if step.name in EXPANDING:
            expanded = True
            where = f"`{source}` or in the output of earlier steps"
    for path, name in (pair for key in params for pair in _constraint_columns(key, params[key])):
        if not _may_exist(name, names, expanded):
            text = f"no column `{name}` reaches the trainer; {column_suggestion(name, names)}"
            problems.append(Problem(path, text))
    return problems


def _may_exist(selector: str, names: Sequence[str], expanded: bool) -> bool:
    """Return whether a name, a keyword or a pattern can select a column.

    Args:
        selector: The name, keyword or pattern.
        names: Columns of the data.
        expanded: True if an earlier step makes further columns such as `color_red` of `color`.
    """
    if selector in (*SELECTOR_WORDS, *names) or fnmatch.filter(names, selector):
        return True
    starts = (name.translate(_SAFE_CHARACTERS) + "_" for name in names)
    return expanded and (glob.has_magic(selector) or selector.startswith(tuple(starts)))


def _not_found(
    selector: str, names: Sequence[str], where: str, label: Label | None, removed: Collection[str]
) -> str:
    """Return the reason why no column that reaches a step has a name, or matches a pattern."""
    if selector in label_columns(label):
        return f"`{selector}` is the label, which no step may change"
    if selector in removed:
        return (
            f"`{selector}` is not a feature, because data.drop, data.weight or a split removes it"
        )
    suggestion = column_suggestion(selector, names)
    if glob.has_magic(selector):
        return f"no column in {where} matches `{selector}`; {suggestion}"
    return f"no column `{selector}` in {where}; {suggestion}"


def _constraint_columns(place: str, params: Template) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each column that a constraint names.

    A constraint that is tuned is checked in its trials.
    """
    params = params if isinstance(params, dict) else {}
    for key in ("monotone_constraints", "interaction_constraints"):
        constraint = params.get(key)
        if isinstance(constraint, (dict, tuple, list)):
            # A dict has the names as keys. Lists have the names, or numbers of columns.
            values = constraint if isinstance(constraint, dict) else walk(constraint)
            yield from ((f"{place}.{key}", name) for name in values if isinstance(name, str))


def check_types(space: Space, types: Sequence[Mapping[str, str]]) -> list[Problem]:
    """Return problems if a trainer cannot read a column, whatever the tuned keys are.

    If only some data variants have such a column, their trials fail, but the sweep does not.
    Nothing is returned then.

    Args:
        space: The search space.
        types: For each variant, the features that are no numbers and have no rule of `data.parse`,
            with their types. See `column_types.type_name`.
    """
    problems: list[Problem] = []
    for trainer in space.trainers.values():
        parts = walk_with(trainer.label, space.sections.get("preprocessor"))
        steps = [part for part in parts if isinstance(part, Step)]
        variants = []
        for columns in types:
            unread = {}
            for name, kind in columns.items():
                if unread_kind := _unread_kind(name, kind, steps, trainer.definition):
                    unread[name] = unread_kind
            variants.append(unread)
        if all(variants):
            problems += unread_problems(variants[0], trainer.label or trainer.name or "the trainer")
    return problems


def _unread_kind(column: str, kind: str, steps: Sequence[Step], trainer: TrainerDefinition) -> str:
    """Return the type that a column has after the steps, if the trainer cannot read this type.

    Return "" if the trainer may be able to read it. Only the output of `Categorizer` is known to
    be categories. Another step that may change the column may also make numbers of it.
    """
    if kind.startswith(_PANDAS_TYPES):
        return kind
    if not trainer.reads_numbers:
        return ""
    changing = {step.name for step in steps if _may_change(step, column, kind)}
    if not changing:
        return kind
    if changing == {"Categorizer"} and not trainer.reads_categories:
        return "category"
    return ""


def unread_problems(columns: Mapping[str, str], trainer: str) -> list[Problem]:
    """Return one problem for each type of the columns that a trainer cannot read.

    Args:
        columns: Type of each column that the trainer cannot read, by name.
        trainer: Name of the trainer, for messages.
    """
    problems = []
    for kind in dict.fromkeys(columns.values()):
        names = [name for name in columns if columns[name] == kind]
        verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
        remedy = next(_REMEDIES[start] for start in _REMEDIES if kind.startswith(start))
        remedy = remedy.format(them=them, name=names[0])
        type_text = kind if kind == "text" else f"of the type {kind}"
        text = (
            f"{join_first([f'`{name}`' for name in names])} {verb} {type_text}, which {trainer} "
            f"cannot read, and no step encodes {them}"
        )
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
