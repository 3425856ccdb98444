"""Check the columns that preprocessing steps name, before anything is fitted. Pure; no I/O."""

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
# These steps make columns named `COLUMN_VALUE`. Names from FeatureHasher begin with its `output_column`
_EXPANDING = ("OneHotEncoder", "MultiHotEncoder", "CountVectorizer", "HashingVectorizer", "FeatureHasher")
# Parameters that name new columns
_OUTPUT_PARAMETERS = ("output_columns", "output_column", "output_column_name")
_CONCATENATOR_OUTPUT = "concat_out"  # Ray's default for `output_column_name`
# No step makes a name with `[`, `]` or `<`, because XGBoost does not accept them
_SAFE_CHARACTERS = str.maketrans("[]<", "()_")


@dataclass(frozen=True)
class AvailableColumns:
    """The columns that may available a step. They may include columns that never arrive, but they miss none that could.

    Attributes:
        names: columns of the data, and columns that an earlier step makes.
        expanded: an earlier step makes columns whose names begin with one of `names` and `_`.
        anything: an earlier step is the user's and may make columns of any name.
    """

    names: frozenset[str]
    expanded: bool = False
    anything: bool = False

    def may_contain(self, want: str) -> bool:
        """Return whether a column with this name, or one that this pattern matches, may available the step."""
        if self.anything or want in SELECTOR_WORDS or want in self.names or fnmatch.filter(self.names, want):
            return True
        magic = any(c in want for c in "*?[")
        return self.expanded and (magic or any(want.startswith(name.translate(_SAFE_CHARACTERS) + "_") for name in self.names))

    def union(self, other: AvailableColumns) -> AvailableColumns:
        """Return the columns that may be in either of the two."""
        return AvailableColumns(self.names | other.names, self.expanded or other.expanded, self.anything or other.anything)


def check_step_columns(
    chain: Template, features: Iterable[str], label: str | None, source: str, removed: Iterable[str] = ()
) -> list[Problem]:
    """Check the columns that the steps of all chains in a space name.

    A name is refused only if no column of that name can available its step, whatever is sampled.

    Args:
        chain: the template of `space.preprocessor`.
        features: columns that available the first step.
        label: the label column, which no step sees.
        source: name of the data source, for messages.
        removed: columns of the data that `data.drop` or a split removes.

    Returns:
        Problems. Their place is a path in the space file, such as `preprocessor.0.StandardScaler.columns.1`.
    """
    problems: list[Problem] = []
    removed_names = frozenset(removed)

    def walk(template: Template, available: AvailableColumns) -> AvailableColumns:
        if isinstance(template, Dimension):
            branches = [walk(option.value, available) for option in template.options]
            return branches[0] if len(branches) == 1 else _union(branches)
        if isinstance(template, Step):
            check(template, available)
            return _columns_after(template, available)
        for item in children(template):
            available = walk(item, available)
        return available

    def check(step: Step, available: AvailableColumns) -> None:
        if step.name == "LabelEncoder":  # this step does nothing; it must name the label
            key = "label_column" if "label_column" in step.params else "columns"
            named = step.params.get("label_column", step.columns if isinstance(step.columns, str) else None)
            if isinstance(named, str) and named != label:
                text = f"LabelEncoder: `{named}` is not the label (`{label}`); use OrdinalEncoder for a feature"
                problems.append(Problem(f"{step.path}.{key}", text))
            return
        for path, want in selectors(step.columns, f"{step.path}.columns"):
            if available.may_contain(want):
                continue
            if want == label:
                text = f"`{want}` is the label, which no step may change"
            elif want in removed_names:
                text = f"`{want}` is not a feature: data.drop or a split removes it"
            elif any(c in want for c in "*?["):
                text = f"no column of `{source}` matches `{want}`; {nearest_column(want, sorted(available.names))}"
            else:
                text = f"`{source}` has no column `{want}`; {nearest_column(want, sorted(available.names))}"
            problems.append(Problem(path, text))

    walk(chain, AvailableColumns(frozenset(features)))
    return problems


def _union(branches: list[AvailableColumns]) -> AvailableColumns:
    result = branches[0]
    for branch in branches[1:]:
        result = result.union(branch)
    return result


def selectors(columns: Template, path: str) -> Iterator[tuple[str, str]]:
    """Yield every name, keyword and pattern of a selector with its path. Options of a dimension are included."""
    if isinstance(columns, Dimension):
        for i, option in enumerate(columns.options):
            yield from selectors(option.value, f"{columns.name}.{columns.kind}.{i}")
    elif isinstance(columns, tuple):
        for i, column in enumerate(columns):
            yield from selectors(column, f"{path}.{i}")
    elif isinstance(columns, str):
        yield path, columns


def _columns_after(step: Step, available: AvailableColumns) -> AvailableColumns:
    """Return the columns that may available the step after this one."""
    new = {name for key in _OUTPUT_PARAMETERS for name in _strings(step.params.get(key))}
    if step.name == "Concatenator":
        new.add(_CONCATENATOR_OUTPUT)
    names = available.names | new
    return AvailableColumns(names, available.expanded or step.name in _EXPANDING, available.anything or ":" in step.name)


def _strings(template: Any) -> Iterator[str]:
    """Yield every string in a template."""
    if isinstance(template, Dimension):
        for option in template.options:
            yield from _strings(option.value)
    elif isinstance(template, (list, tuple)):
        for item in template:
            yield from _strings(item)
    elif isinstance(template, str):
        yield template
