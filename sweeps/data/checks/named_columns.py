"""Check that the columns that a `data` section names exist, without Ray and pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sweeps.core.errors import Problem, differences_text
from sweeps.core.text.suggestions import did_you_mean

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Split


def split_rules(spec: DataSpec) -> dict[str, Split]:
    """Return the rules of a `data` section for "valid" and "test", by split.

    A split without a rule is left out.
    """
    return {
        key: rule for key, rule in (("valid", spec.valid), ("test", spec.test)) if rule is not None
    }


def split_columns(spec: DataSpec) -> set[str]:
    """Return the column of groups, and the columns of splits `{column: ..., value: ...}`.

    They assign rows to splits.
    """
    columns = {rule.column for rule in split_rules(spec).values() if rule.kind == "column"}
    return {str(name) for name in (*columns, spec.group) if name is not None}


def column_suggestion(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about a missing column.

    The end suggests the most similar name, or lists the existing names. Of more than 12 names, it
    lists the first ten.
    """
    names = list(names)
    if same := [n for n in names if n.lower() == name.lower()]:
        return f"did you mean `{same[0]}`?"
    listed = None
    if len(names) > 12:
        listed = f"it has {', '.join(names[:10])}, ... ({len(names)} in all)"
    return did_you_mean(name, names, listed)


def check_columns(spec: DataSpec, columns: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Check that the columns of a `data` section exist, and that all sources have the same columns.

    Args:
        spec: The `data` section.
        columns: Column names by split: "train", and "valid" and "test" if these splits have
            separate sources.

    Returns:
        The problems.
    """
    present = columns["train"]
    problems = check_dropped(spec, present)
    # The keys of the `data` section, with the columns that they name
    named: list[tuple[str, str | None]] = [("label", name) for name in spec.labels]
    named += [(f"parse.{name}", name) for name in spec.parse]
    named += [(f"missing.{name}", name) for name in spec.missing if name != "*"]
    named += [("weight", name) for name in spec.weight_columns]
    named += [("group", spec.group)]
    splits = split_rules(spec).items()
    named += [(key, rule.column) for key, rule in splits if rule.column != spec.group]
    problems += _missing_columns(named, spec, present)
    for key, names in columns.items():
        differences = {"missing": set(present) - set(names), "extra": set(names) - set(present)}
        if text := differences_text(differences, "; "):
            problems.append(
                Problem(f"data.{key}", f"the columns differ from the columns of data.train: {text}")
            )
    return problems


def _missing_columns(
    named: Iterable[tuple[str, str | None]], spec: DataSpec, present: Sequence[str]
) -> list[Problem]:
    """Return a problem for each name that is no column.

    Args:
        named: Pairs of a key of the `data` section and the name, which may be None.
        spec: The `data` section.
        present: The columns of the data.
    """
    return [
        Problem(
            f"data.{key}",
            f"`{spec.train}` has no column `{name}`; {column_suggestion(name, present)}",
        )
        for key, name in named
        if name is not None and name not in present
    ]


def check_dropped(spec: DataSpec, present: Sequence[str]) -> list[Problem]:
    """Check that the columns in `data.drop` exist; `present` has all column names."""
    return _missing_columns([("drop", name) for name in spec.drop], spec, present)
