"""Decide which findings in the data matter for a space, and say how to mend each of them. Pure functions.

A finding is a fact about the data. Whether it harms depends on the space: a column of texts harms a trainer that reads numbers, but not a
loop that tokenizes the column.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.core.errors import first_of
from sweeps.data.column_checks import SELECTOR_WORDS, selectors, unread_texts, unread_texts_error
from sweeps.data.summary import DataSummary, Finding, percent
from sweeps.space.step_names import Step
from sweeps.space.templates import walk

if TYPE_CHECKING:
    from sweeps.space import Space

# Steps that read texts as texts, so that a column with many different texts is right for them.
TEXT_STEPS = ("Tokenizer", "CountVectorizer", "HashingVectorizer", "FeatureHasher")
ENCODERS = ("OneHotEncoder", "OrdinalEncoder", "MultiHotEncoder", "Categorizer")
# A column of texts with fewer words on average is no prose.
PROSE_WORDS = 3.0
# Metrics and parameters that depend on which class is the positive one, and labels whose positive class needs no warning.
POSITIVE = frozenset(
    [
        "f1",
        "aucpr",
        "precision",
        "recall",
        "average_precision",
        "jaccard",
        "F1",
        "Precision",
        "Recall",
        "PRAUC",
        "scale_pos_weight",
        "monotone_constraints",
        "class_weights",
        "pos_bagging_fraction",
        "neg_bagging_fraction",
    ]
)
NUMBERED = {"0", "1", "0.0", "1.0", "False", "True"}
# Trainers that compute with 64-bit floats, or whose numbers sweeps does not know.
WIDE = (None, "lightgbm", "command")
# Number of columns that one warning names.
NAMED = 5


@dataclass(frozen=True)
class DataWarning:
    """A warning about the data.

    Attributes:
        key: the key of the space file that mends it.
        text: the warning in one line. It says what was found, and what to write.
    """

    key: str
    text: str


def warnings(summary: DataSummary, space: Space) -> tuple[DataWarning, ...]:
    """Return the warnings about the data of a space, the most harmful first."""
    dropped = {name for spec in space.variants for name in spec.drop}
    ordered = (
        "leak",
        "overlap",
        "identifier",
        "row_number",
        "number_text",
        "date_text",
        "rounded",
        "infinite",
        "unseen",
        "duplicates",
        "empty",
        "constant",
    )
    found = [
        f
        for kind in ordered
        for f in summary.findings
        if f.kind == kind and f.column not in dropped and _matters(f, space)
    ]
    grouped = [f for f in found if f.kind in ("empty", "constant")]
    texts = [_warning(f, summary) for f in found if f not in grouped]
    return (*_unread(summary, space), *_positive(summary, space), *texts, *_useless(grouped))


def _positive(summary: DataSummary, space: Space) -> Iterator[DataWarning]:
    """Yield a warning if a setting depends on the positive class, and the space file does not name this class."""
    classes, params = list(summary.label), space.sections.get("params")
    named = {each.metric.partition("-")[2] for each in (*space.objectives, *space.constraints)}
    used = sorted(POSITIVE & named.union(params if isinstance(params, dict) else ()))
    unnamed = len(classes) == 2 and space.data.positive is None
    if used and unnamed and not NUMBERED.issuperset(classes):
        text = f"the positive class is {classes[1]}, the last in sorted order, and `{', '.join(used)}` depends on it; "
        remedy = f"write data.positive: {classes[1]}, or data.positive: {classes[0]}"
        yield DataWarning("data.positive", text + remedy)


def _unread(summary: DataSummary, space: Space) -> list[DataWarning]:
    """Return a warning about columns of texts that reach a trainer that reads only numbers. The trials would fail."""
    if not space.trainer_definition.reads_numbers:
        return []
    removed = {name for spec in space.variants for name in (*spec.drop, *spec.parse)}
    texts = [
        c.name
        for c in summary.columns
        if c.kind == "text" and c.role == "feature" and c.name not in removed
    ]
    unread = unread_texts(space.sections.get("preprocessor", ()), texts)
    return (
        [
            DataWarning(
                "space.preprocessor",
                unread_texts_error(unread, space.trainer.name or "the trainer"),
            )
        ]
        if unread
        else []
    )


def _matters(finding: Finding, space: Space) -> bool:
    """Return whether a finding can harm the trials of a space."""
    data = space.data
    if finding.kind == "row_number":
        return finding.column not in _ordering_columns(space)
    if finding.kind == "duplicates":
        return not data.drop_duplicates and data.group is None
    if finding.kind == "overlap":
        return not data.drop_duplicates
    if finding.kind == "rounded":
        scaled = any(step.name.endswith("Scaler") for step in _steps(space))
        return not scaled and space.trainer.name not in WIDE
    if finding.kind not in ("identifier", "number_text", "date_text", "unseen"):
        return True
    if _is_handled(finding.column, space):
        return False
    if (
        finding.kind == "identifier"
        and finding.words >= PROSE_WORDS
        and "transformers" in space.trainer_definition.packages
    ):
        return False
    return _reads_texts(finding.column, space)


def _ordering_columns(space: Space) -> set[str]:
    """Return the columns that put rows in an order or into groups for a split."""
    return {
        rule.column
        for rule in (space.data.valid, space.data.test)
        if rule is not None and rule.column is not None
    }


def _steps(space: Space) -> Iterator[Step]:
    return (part for part in walk(space.sections.get("preprocessor")) if isinstance(part, Step))


def _names(step: Step, column: str, words: Collection[str]) -> bool:
    """Return whether a step selects a column of texts, by its name, a pattern, or one of the keywords `words`."""
    chosen = [text for _, text in selectors(step.columns, "")]
    return any(
        text in words
        if text in SELECTOR_WORDS
        else text == column or fnmatch.fnmatchcase(column, text)
        for text in chosen
    )


def _is_handled(column: str, space: Space) -> bool:
    """Return whether a step reads the texts of a column as texts, or may read them because it is the user's code."""
    for step in _steps(space):
        own = ":" in step.name and not step.name.startswith("sklearn.")
        if own and (step.columns is None or _names(step, column, ("all", "categorical"))):
            return True
        if step.name.rpartition(":")[2] in TEXT_STEPS and (
            step.columns is None or _names(step, column, ("all", "categorical"))
        ):
            return True
    return False


def _reads_texts(column: str, space: Space) -> bool:
    """Return whether a model gets a column of texts, as it is or encoded. A user's own loop may ignore columns."""
    if space.trainer.name is not None and space.trainer_definition.needs_label:
        return True
    encoders = [step for step in _steps(space) if step.name.rpartition(":")[2] in ENCODERS]
    return any(
        step.columns is None or _names(step, column, ("all", "categorical")) for step in encoders
    )


def _warning(finding: Finding, summary: DataSummary) -> DataWarning:
    """Return the warning for a finding about one column or about rows."""
    name = f"`{finding.column}`"
    if finding.kind == "leak":
        text = f"{name} alone explains {percent(finding.share)} of the label; if it is known only after the label, add it to data.drop"
        return DataWarning("data.drop", text)
    if finding.kind == "identifier":
        copies = (
            ", some of them copies"
            if any(other.kind == "duplicates" for other in summary.findings)
            else ""
        )
        text = f"{name} has {finding.count:,} different values in {summary.sampled:,} rows{copies}, such as {finding.example}; "
        return DataWarning(
            "data.drop", f"{text}it identifies rows and cannot generalize; add it to data.drop"
        )
    if finding.kind == "row_number":
        return DataWarning(
            "data.drop", f"{name} numbers the rows ({finding.example}, …); add it to data.drop"
        )
    if finding.kind == "number_text":
        return _number_text(finding)
    if finding.kind == "date_text":
        choice = f'"{finding.rule}"' + (
            f' or "{finding.other_rule}", which also fits' if finding.other_rule else ""
        )
        text = f"{name} has dates as text, such as {finding.example}; write data.parse: {{{finding.column}: {choice}}}"
        return DataWarning("data.parse", text)
    if finding.kind == "infinite":
        text = f"{name} has {finding.count:,} infinite values, which most trainers refuse; make them empty, or add it to data.drop"
        return DataWarning("data.drop", text)
    if finding.kind == "rounded":
        text = f"{name} needs more than the 24 bits of a 32-bit float: the trainer sees {percent(finding.share)} of its values as equal to "
        remedy = "others; subtract the smallest value of the column, or add it to data.drop if it is an identifier"
        return DataWarning("data.drop", text + remedy)
    if finding.kind == "unseen":
        text = f"{finding.count:,} values ({percent(finding.share)}) of {name} in data.valid are not in data.train; encoders treat them as "
        return DataWarning("data.valid", f"{text}missing; choose a split with the same values")
    if finding.kind == "duplicates":
        text = f"about {percent(finding.share)} of the train rows are copies of other rows, so copies of train rows are in valid; "
        return DataWarning("data.drop_duplicates", f"{text}write data.drop_duplicates: true")
    text = f"about {percent(finding.share)} of the rows of data.{finding.example} are also in data.train; "
    return DataWarning(
        "data.drop_duplicates",
        f"{text}write data.drop_duplicates: true, which leaves them out of train",
    )


def _number_text(finding: Finding) -> DataWarning:
    name, rule, example, blank = (
        f"`{finding.column}`",
        finding.rule,
        finding.example,
        " and blank texts" * finding.blank,
    )
    if finding.count:
        some = f"{finding.count} different texts" if finding.count > 1 else "one text"
        text = f"{name} has numbers, and {some} such as {example!r}, so the column is text; make these values empty, "
        return DataWarning(
            "data.parse", f"{text}then write data.parse: {{{finding.column}: {rule}}}"
        )
    text = f"{name} has numbers as text, such as {example}{blank}; write data.parse: {{{finding.column}: {rule}}}"
    return DataWarning("data.parse", text)


def _useless(findings: list[Finding]) -> list[DataWarning]:
    """Return one warning about all columns without a value, and one about all columns with one value."""
    result = []
    for kind, text in (("empty", "no value"), ("constant", "the same value in all rows")):
        names = [f"`{f.column}`" for f in findings if f.kind == kind]
        if names:
            verb, each = ("has", "it") if len(names) == 1 else ("have", "them")
            result.append(
                DataWarning(
                    "data.drop", f"{first_of(names, NAMED)} {verb} {text}; add {each} to data.drop"
                )
            )
    return result
