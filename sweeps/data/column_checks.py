"""Columns that the steps of a space name, held against those that can reach them: pure, before anything is fitted."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.core.errors import Problem
from sweeps.data.label_checks import nearest_column
from sweeps.space import Dimension, Step
from sweeps.space.templates import Template, children

SELECTOR_WORDS = ("numeric", "categorical", "all")
# These make columns of a column's values, named `COLUMN_VALUE`; FeatureHasher's begin with its `output_column`
_EXPANDING = ("OneHotEncoder", "MultiHotEncoder", "CountVectorizer", "HashingVectorizer", "FeatureHasher")
# Parameters that name columns to be made
_OUTPUT_PARAMETERS = ("output_columns", "output_column", "output_column_name")
_CONCATENATOR_OUTPUT = "concat_out"  # Ray's own default for `output_column_name`
# XGBoost accepts no `[`, `]`, `<` in a name, so no step makes one
_SAFE_CHARACTERS = str.maketrans("[]<", "()_")


@dataclass(frozen=True)
class AvailableColumns:
    """Which columns may reach a step: more than there will be, never fewer.

    Attributes:
        names: those that are there, or that an earlier step made.
        expanded: a step before made columns whose names begin with one of `names` and `_`.
        anything: a step before is the user's, and may make columns of any name.
    """

    names: frozenset[str]
    expanded: bool = False
    anything: bool = False

    def may_contain(self, want: str) -> bool:
        """Whether a column of this name, or one that this pattern matches, may be there."""
        if self.anything or want in SELECTOR_WORDS or want in self.names or fnmatch.filter(self.names, want):
            return True
        magic = any(c in want for c in "*?[")
        return self.expanded and (magic or any(want.startswith(name.translate(_SAFE_CHARACTERS) + "_") for name in self.names))

    def union(self, other: AvailableColumns) -> AvailableColumns:
        return AvailableColumns(self.names | other.names, self.expanded or other.expanded, self.anything or other.anything)


def check_step_columns(chain: Template, features: Iterable[str], label: str | None, source: str, gone: Iterable[str] = ()) -> list[Problem]:
    """What the steps of all chains of a space name that is not there.

    A name is refused only if no column of that name can reach its step, whatever is sampled.

    Args:
        chain: the template of `space.preprocessor`.
        features: the columns that reach the first step.
        label: never prepared.
        source: of the columns, for messages.
        gone: columns of the data that `data.drop` or a split takes.

    Returns:
        Problems whose place is a dotted path of the file, such as `preprocessor.0.StandardScaler.columns.1`.
    """
    problems: list[Problem] = []
    taken = frozenset(gone)

    def walk(template: Template, reach: AvailableColumns) -> AvailableColumns:
        if isinstance(template, Dimension):
            ends = [walk(option.value, reach) for option in template.options]
            return ends[0] if len(ends) == 1 else _union(ends)
        if isinstance(template, Step):
            check(template, reach)
            return _columns_after(template, reach)
        for item in children(template):
            reach = walk(item, reach)
        return reach

    def check(step: Step, reach: AvailableColumns) -> None:
        if step.name == "LabelEncoder":  # does nothing, and so must be meant for the label
            key = "label_column" if "label_column" in step.params else "columns"
            named = step.params.get("label_column", step.columns if isinstance(step.columns, str) else None)
            if isinstance(named, str) and named != label:
                text = f"LabelEncoder: `{named}` is not the label (`{label}`); use OrdinalEncoder for a feature"
                problems.append(Problem(f"{step.path}.{key}", text))
            return
        for path, want in selectors(step.columns, f"{step.path}.columns"):
            if reach.may_contain(want):
                continue
            if want == label:
                text = f"`{want}` is the label, which is never prepared"
            elif want in taken:
                text = f"`{want}` is no feature: data.drop or a split takes it"
            elif any(c in want for c in "*?["):
                text = f"no column of `{source}` matches `{want}`; {nearest_column(want, sorted(reach.names))}"
            else:
                text = f"`{source}` has no column `{want}`; {nearest_column(want, sorted(reach.names))}"
            problems.append(Problem(path, text))

    walk(chain, AvailableColumns(frozenset(features)))
    return problems


def _union(ends: list[AvailableColumns]) -> AvailableColumns:
    whole = ends[0]
    for end in ends[1:]:
        whole = whole.union(end)
    return whole


def selectors(columns: Template, path: str) -> Iterator[tuple[str, str]]:
    """Every name, word and pattern of a selector, those in options too, each with its path."""
    if isinstance(columns, Dimension):
        for i, option in enumerate(columns.options):
            yield from selectors(option.value, f"{columns.name}.{columns.kind}.{i}")
    elif isinstance(columns, tuple):
        for i, column in enumerate(columns):
            yield from selectors(column, f"{path}.{i}")
    elif isinstance(columns, str):
        yield path, columns


def _columns_after(step: Step, reach: AvailableColumns) -> AvailableColumns:
    """What may reach the step that comes next."""
    made = {name for key in _OUTPUT_PARAMETERS for name in _strings(step.params.get(key))}
    if step.name == "Concatenator":
        made.add(_CONCATENATOR_OUTPUT)
    names = reach.names | made
    return AvailableColumns(names, reach.expanded or step.name in _EXPANDING, reach.anything or ":" in step.name)


def _strings(template: Any) -> Iterator[str]:
    """Every text in a template."""
    if isinstance(template, Dimension):
        for option in template.options:
            yield from _strings(option.value)
    elif isinstance(template, (list, tuple)):
        for item in template:
            yield from _strings(item)
    elif isinstance(template, str):
        yield template
