"""Check that the columns that are named in preprocessing steps exist.

The check runs before any step is fitted. Pure functions, no I/O.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import Problem, first_of
from sweeps.core.label_columns import Label, label_columns, shown
from sweeps.core.step_kinds import EXPANDING, SCALERS
from sweeps.data.label_checks import nearest_column
from sweeps.space import Dimension, Step
from sweeps.space.templates import Template, children, walk

if TYPE_CHECKING:
    from sweeps.data.preprocessing.fitted_chain import StepConfig
    from sweeps.space import Space
    from sweeps.space.trainer_definition import TrainerDefinition

SELECTOR_WORDS = ("numeric", "categorical", "all")
# Parameters that name new columns
_OUTPUT_PARAMETERS = ("output_columns", "output_column", "output_column_name")
_CONCATENATOR_OUTPUT = "concat_out"  # Ray's default for `output_column_name`
# Built-in steps that leave a column of texts as it is, unless their `columns` select it.
# `SimpleImputer` never makes numbers of texts.
_NO_ENCODERS = (
    *SCALERS,
    "Normalizer",
    "PowerTransformer",
    "SimpleImputer",
    "CustomKBinsDiscretizer",
    "UniformKBinsDiscretizer",
    "Concatenator",
    "LabelEncoder",
)
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


@dataclass(frozen=True)
class AvailableColumns:
    """A superset of the columns that can reach a preprocessing step.

    The exact columns are unknown before earlier steps are fitted.

    Attributes:
        names: names of the columns of the data, and of new columns that are named in the parameters
            of earlier steps.
        expanded: True if an earlier step creates columns that are named after one of `names`, such
            as `color_red` after `color`.
        anything: True if an earlier step is user code, which may create columns with any name.
    """

    names: frozenset[str]
    expanded: bool = False
    anything: bool = False

    def may_contain(self, want: str) -> bool:
        """Return whether a column may reach the step.

        Args:
            want: name of the column, or a pattern that the column matches, such as `x_*`. The
                result is True for the keywords "numeric", "categorical" and "all".
        """
        if (
            self.anything
            or want in SELECTOR_WORDS
            or want in self.names
            or fnmatch.filter(self.names, want)
        ):
            return True
        return self.expanded and (
            glob.has_magic(want)
            or any(want.startswith(n.translate(_SAFE_CHARACTERS) + "_") for n in self.names)
        )

    def union(self, other: AvailableColumns) -> AvailableColumns:
        """Return the columns that are in this object or in `other`."""
        return AvailableColumns(
            self.names | other.names,
            self.expanded or other.expanded,
            self.anything or other.anything,
        )

    def after(self, step: Step) -> AvailableColumns:
        """Return the columns that may reach the next step.

        This object has the columns that may reach `step`.
        """
        new = {name for key in _OUTPUT_PARAMETERS for name in _strings(step.params.get(key))}
        new |= {_CONCATENATOR_OUTPUT} if step.name == "Concatenator" else set()
        return AvailableColumns(
            self.names | new,
            self.expanded or step.name in EXPANDING,
            self.anything or ":" in step.name,
        )


def check_step_columns(
    chain: Template,
    features: Iterable[str],
    label: Label | None,
    source: str,
    removed: Iterable[str] = (),
    params: Any = None,
) -> list[Problem]:
    """Check that the columns named in preprocessing steps and constraints exist, in all chains that a space allows.

    A name is a problem only if, in every chain that can be sampled, no column of this name reaches
    the step.

    Args:
        chain: the `preprocessor` section of the space: the steps, and the dimensions if steps or
            their columns are tuned.
        features: columns that reach the first step.
        label: see `DataSpec.label`. No step gets the label; None if the data has no label.
        source: name of the data source, for messages.
        removed: columns of the data that do not reach any step: the label, columns of weights, the
            columns in `data.drop`, and the columns of splits `{column: ..., value: ...}`.
        params: the `params` section of the space, whose constraints of gradient boosting name
            columns.

    Returns:
        One problem for each wrong name. Its place is a path in the space file, such as
        `preprocessor.0.StandardScaler.columns.1`.
    """
    problems: list[Problem] = []
    removed, first = frozenset(removed), AvailableColumns(frozenset(features))

    def check(template: Template, available: AvailableColumns) -> AvailableColumns:
        if isinstance(template, Dimension):
            return functools.reduce(
                AvailableColumns.union,
                [check(option.value, available) for option in template.options],
            )
        if isinstance(template, Step):
            where = (
                f"`{source}`"
                if available == first
                else f"`{source}` or in the output of earlier steps"
            )
            problems.extend(_step_problems(template, available, label, where, removed))
            return available.after(template)
        for item in children(template):
            available = check(item, available)
        return available

    last = check(chain, first)
    for path, want in _constrained(params):
        if not last.may_contain(want):
            text = (
                f"no column `{want}` reaches the trainer; "
                f"{nearest_column(want, sorted(last.names))}"
            )
            problems.append(Problem(path, text))
    return problems


def _constrained(params: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each column that a constraint names.

    A constraint that is tuned is checked in its trials.
    """
    params = params if isinstance(params, dict) else {}
    for key in ("monotone_constraints", "interaction_constraints"):
        given = params.get(key)
        named = given if isinstance(given, dict) else _strings(given)
        if isinstance(given, (dict, tuple, list)):
            yield from ((f"params.{key}", name) for name in named)


def _step_problems(
    step: Step,
    available: AvailableColumns,
    label: Label | None,
    where: str,
    removed: frozenset[str],
) -> Iterator[Problem]:
    if step.name == "LabelEncoder":  # sweeps ignores this step, but the step must name the label
        if (text := label_encoder_error(step, label)) is not None:
            yield Problem(
                f"{step.path}.{'label_column' if 'label_column' in step.params else 'columns'}",
                text,
            )
        return
    for path, want in selectors(step.columns, f"{step.path}.columns"):
        if available.may_contain(want):
            continue
        if want in label_columns(label):
            text = f"`{want}` is the label, which no step may change"
        elif want in removed:
            text = (
                f"`{want}` is not a feature, because data.drop, data.weight or a split removes it"
            )
        else:
            problem = (
                f"no column in {where} matches `{want}`"
                if glob.has_magic(want)
                else f"no column `{want}` in {where}"
            )
            text = f"{problem}; {nearest_column(want, sorted(available.names))}"
        yield Problem(path, text)


def label_encoder_error(step: Step | StepConfig, label: Label | None) -> str | None:
    """Return an error message if the column of a `LabelEncoder` step is not the label; otherwise None.

    A `LabelEncoder` step has no effect, because the label of a classification is always encoded.
    """
    named = step.params.get("label_column", step.columns if isinstance(step.columns, str) else None)
    if not isinstance(named, str) or named in label_columns(label):
        return None
    return (
        f"LabelEncoder: `{named}` is not the label ({shown(label)}); use OrdinalEncoder for a "
        "feature"
    )


def check_types(space: Space, types: Sequence[Mapping[str, str]]) -> list[Problem]:
    """Return problems if, in every variant of the data, a column that the trainer cannot read reaches the trainer in every chain.

    If only some variants have such a column, their trials fail, but the sweep does not. Nothing is
    returned then.

    Args:
        space: the search space.
        types: for each variant, the features that are no numbers and have no rule of `data.parse`,
            with their types. See `tables.type_name`.
    """
    chain = space.sections.get("preprocessor", ())
    steps = [part for part in walk(chain) if isinstance(part, Step)]
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
    if ":" in step.name or any(
        column in _strings(step.params.get(key)) for key in _OUTPUT_PARAMETERS
    ):
        return True
    categorical = not kind.startswith(_NOT_CATEGORICAL)
    if step.columns is None:
        return categorical and step.name not in _NO_ENCODERS
    return selects(step, column, categorical)


def selects(step: Step, column: str, categorical: bool = True) -> bool:
    """Return whether a step may get a column that is no number.

    A step without `columns` gets all columns.

    Args:
        step: the step.
        column: name of the column.
        categorical: True if the keyword "categorical" includes the column.
    """
    words = ("all", "categorical") if categorical else ("all",)
    chosen = [text for _, text in selectors(step.columns, "")]
    return step.columns is None or any(
        text in (*words, column) or fnmatch.fnmatchcase(column, text) for text in chosen
    )


def selectors(columns: Template, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each column name, keyword and pattern in the `columns` of a step.

    A keyword is "numeric", "categorical" or "all". If `columns` is tuned, the texts of all options
    are included.

    Args:
        columns: the `columns` of the step.
        path: path of `columns` in the space file, such as `preprocessor.0.StandardScaler.columns`.
    """
    if isinstance(columns, Dimension):
        for i, option in enumerate(columns.options):
            yield from selectors(option.value, f"{columns.name}.{columns.kind}.{i}")
    elif isinstance(columns, tuple):
        for i, column in enumerate(columns):
            yield from selectors(column, f"{path}.{i}")
    elif isinstance(columns, str):
        yield path, columns


def _strings(template: Any) -> Iterator[str]:
    return (part for part in walk(template) if isinstance(part, str))
