"""Decide which findings in the data matter for a space, and say how to mend each of them.

Pure functions.

A finding is a fact about the data. Whether it harms depends on the space: a column of texts harms a
trainer that reads numbers, but not a loop that tokenizes the column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from sweeps.core.errors import join_first
from sweeps.core.label_columns import LabelValue
from sweeps.data.checks.column_checks import selects, steps_of
from sweeps.data.checks.named_columns import split_rules
from sweeps.data.columns.missing import EVERY_COLUMN
from sweeps.data.preprocessing.step_kinds import ENCODERS
from sweeps.space import Space
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import params_of
from sweeps.space.yaml.scalars import scalar
from sweeps.space.yaml.yaml_writer import flow

from .data_summary import DataSummary, Finding, percent, short_text

# Metrics and parameters that depend on which class is the positive one
NEED_POSITIVE = {
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
}
# Names of classes that say themselves which class is the positive one
NEUTRAL_CLASSES = {"0", "1", "0.0", "1.0", "False", "True"}
# Trainers that compute with 64-bit floats, or whose numbers sweeps does not know.
WIDE_FLOATS = (None, "lightgbm", "command")
# There is a warning about an encoder of a column with more different numbers.
MANY_NUMBERS = 30
# Number of columns that one warning names.
MOST_NAMED = 5
# The key and the text of the warning by the kind of the finding. The most harmful kinds come first.
TEXTS = {
    "leak": (
        "data.drop",
        "{names} alone explains {share} of the label; if it is known only after the label, "
        "add it to data.drop",
    ),
    "overlap": (
        "data.drop_duplicates",
        "about {share} of the rows of data.{example} are also in data.train; write "
        "data.drop_duplicates: true, which leaves them out of train",
    ),
    "identifier": (
        "data.drop",
        "{names} has {count:,} different values in {sampled:,} rows{copies}, such as "
        "{example}; it identifies rows and cannot generalize; add it to data.drop",
    ),
    "row_number": (
        "data.drop",
        "{names} numbers the rows ({example}, …); add it to data.drop",
    ),
    "number_text": (
        "data.parse",
        "{names} has numbers as text{others}, such as {example}{row}; write data.parse: "
        "{{{column}: {entry}}}{effect}",
    ),
    "date_text": (
        "data.parse",
        "{names} has dates as text{others}, such as {example}{row}; write data.parse: "
        "{{{column}: {entry}}}{effect}",
    ),
    "prose": (
        "space.preprocessor",
        "{names} has prose: {count:,} different texts in {sampled:,} rows, such as {example};"
        " read it with the step HashingVectorizer: {{columns: [{column}], num_features: 64}},"
        " or add it to data.drop",
    ),
    "rounded": (
        "data.drop",
        "{names} needs more than the 24 bits of a 32-bit float: the trainer sees {share} of "
        "its values as equal to others; subtract the smallest value of the column, or add it "
        "to data.drop if it is an identifier",
    ),
    "infinite": (
        "data.drop",
        "{names} has {count:,} infinite values, which most trainers refuse; remove these "
        "rows, or add the column to data.drop",
    ),
    "unseen": (
        "data.valid",
        "{count:,} values ({share}) of {names} in data.valid are not in data.train; encoders "
        "treat them as missing; choose a split with the same values",
    ),
    "duplicates": (
        "data.drop_duplicates",
        "about {share} of the train rows are copies of other rows, so copies of train rows "
        "are in valid; write data.drop_duplicates: true",
    ),
    "marker": (
        "data.missing",
        "{names} {have} '{example}' in {count:,} {rows}{first}; if this means a missing "
        "value, write data.missing: {markers}",
    ),
    "many": (
        "space.preprocessor",
        "{names} {have} more than 30 different texts; if these are no categories, add {them} "
        "to data.drop",
    ),
    "empty": ("data.drop", "{names} {have} no value; add {them} to data.drop"),
    "constant": (
        "data.drop",
        "{names} {have} the same value in all rows; add {them} to data.drop",
    ),
}
# Kinds of findings with one warning for all columns.
GROUPED = ("many", "empty", "constant")


@dataclass(frozen=True)
class DataWarning:
    """A warning about the data.

    Attributes:
        key: The key of the space file that mends it.
        text: The warning in one line. It says what was found, and what to write.
    """

    key: str
    text: str


def warnings(summary: DataSummary, space: Space) -> tuple[DataWarning, ...]:
    """Return the warnings about the data of a space, the most harmful first."""
    dropped = {name for spec in space.variants for name in spec.drop}
    findings = [f for f in summary.findings if f.column not in dropped and _matters(f, space)]
    grouped = [_warning(group, summary) for kind in TEXTS for group in groups(findings, kind)]
    return (*_positive_class(summary, space), *_encoded_numbers(summary, space), *grouped)


def _positive_class(summary: DataSummary, space: Space) -> Iterator[DataWarning]:
    """Yield a warning if a setting needs the positive class, and the space file names none."""
    classes = list(summary.label)
    if len(classes) != 2 or space.data.positive is not None or {*classes} <= NEUTRAL_CLASSES:
        return
    blocks = [params_of(space.sections, label) for label in space.trainers]
    metrics = [o.metric for o in space.objectives] + [c.metric for c in space.constraints]
    settings = {name.partition("-")[2] for name in metrics}  # without `valid-`
    for params in blocks:
        settings.update(params if isinstance(params, dict) else {})
    if used := sorted(NEED_POSITIVE & settings):
        text = (
            f"the positive class is {classes[1]}, the last in sorted order, and "
            f"`{', '.join(used)}` depends on it; "
        )
        remedy = f"write data.positive: {classes[1]}, or data.positive: {classes[0]}"
        yield DataWarning("data.positive", text + remedy)


def _encoded_numbers(summary: DataSummary, space: Space) -> Iterator[DataWarning]:
    """Yield a warning for each column of many numbers that an encoder names.

    The encoder reads the numbers as if they were categories.
    """
    for column in summary.columns:
        if column.role != "feature" or column.kind != "number":
            continue
        if column.distinct is None or column.distinct <= MANY_NUMBERS:
            continue
        for step in _steps(space):
            has_columns = step.name in ENCODERS and step.columns
            if has_columns and selects(step, column.name, categorical=False):
                yield DataWarning(
                    "space.preprocessor",
                    f"`{column.name}` has numbers, which {step.name} makes codes, so that other "
                    "numbers are missing values; take it out of `columns`",
                )


def _matters(finding: Finding, space: Space) -> bool:
    """Return whether a finding can harm the trials of a space."""
    data = space.data
    if finding.kind == "row_number":
        return all(rule.column != finding.column for rule in split_rules(data).values())
    if finding.kind == "duplicates":
        return not data.drop_duplicates and data.group is None
    if finding.kind == "overlap":
        return not data.drop_duplicates
    if finding.kind == "rounded":
        scaled = any(step.name.endswith("Scaler") for step in _steps(space))
        narrow = any(trainer.name not in WIDE_FLOATS for trainer in space.trainers.values())
        return narrow and not scaled
    about_texts = ("identifier", "prose", "many", "number_text", "date_text", "unseen")
    if finding.kind not in about_texts:
        return True
    if _is_handled(finding.column, space):
        return False
    packages = {name for each in space.trainers.values() for name in each.definition.packages}
    if finding.kind == "prose" and "transformers" in packages:
        return False
    return _reads_texts(finding.column, space)


def _steps(space: Space) -> Iterator[Step]:
    """Yield every step that a chain of the space may have."""
    return steps_of(space.sections.get("preprocessor"))


def _is_handled(column: str, space: Space) -> bool:
    """Return whether a step reads, or may read, the texts of a column as texts.

    A step may read them as texts if it is the user's code.
    """
    for step in _steps(space):
        is_users_code = ":" in step.name and not step.name.startswith("sklearn.")
        may_read_texts = is_users_code or step.short.endswith(("Vectorizer", "Hasher"))
        if may_read_texts and selects(step, column):
            return True
    return False


def _reads_texts(column: str, space: Space) -> bool:
    """Return whether a model gets a column of texts, as it is or encoded.

    A user's own loop may ignore columns.
    """
    trainers = space.trainers.values()
    if any(trainer.name is not None and trainer.definition.needs_label for trainer in trainers):
        return True
    encoders = (step for step in _steps(space) if step.short in ENCODERS)
    return any(selects(step, column) for step in encoders)


def _warning(group: Sequence[Finding], summary: DataSummary) -> DataWarning:
    """Return the warning for the findings of a group; see `TEXTS` and `groups`."""
    finding = group[0]
    key, text = TEXTS[finding.kind]
    count = sum(finding.count for finding in group)
    copied = any(other.kind == "duplicates" for other in summary.findings)
    entry = flow(parse_entry(finding))
    if finding.other_rule:
        entry += f" or {flow(finding.other_rule)}, which also fits"
    return DataWarning(
        key,
        text.format(
            names=join_first([f"`{finding.column}`" for finding in group], MOST_NAMED),
            column=finding.column,
            have="has" if len(group) == 1 else "have",
            them="it" if len(group) == 1 else "them",
            example=short_text(finding.example),
            count=count,
            rows="row" if count == 1 else "rows",
            share=percent(finding.share),
            sampled=summary.sampled,
            copies=", some of them copies" if copied else "",
            others=f", and {count} other text{'s' * (count > 1)}" if count else "",
            row=f" in row {finding.row:,}" if finding.row > 1 else "",
            first=f" (first: row {finding.row:,})" if finding.row else "",
            entry=entry,
            effect=", which reads other texts as missing values" if count else "",
            markers=flow(missing_entry(group)),
        ),
    )


def parse_entry(finding: Finding) -> JsonValue:
    """Return the rule of `data.parse` for a finding.

    Texts that do not fit become missing values.
    """
    return {"rule": finding.rule, "other": "missing"} if finding.count else finding.rule


def missing_entry(findings: Sequence[Finding]) -> dict[str, list[LabelValue | None]]:
    """Return the value of `data.missing` for findings with the same marker."""
    finding = findings[0]
    column = finding.column if len(findings) == 1 else EVERY_COLUMN
    # The marker is a number if the finding has a rule, and otherwise a text.
    return {column: [scalar(finding.example) if finding.rule else finding.example]}


def groups(findings: Sequence[Finding], kind: str) -> list[list[Finding]]:
    """Return the findings of a kind in groups, each with one warning.

    Findings of the same marker are one group, and so are all findings of the kinds in `GROUPED`.
    """
    findings_by_key: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.kind != kind:
            continue
        if kind in GROUPED:
            key = ""
        elif kind == "marker":
            key = finding.example
        else:
            key = finding.column + finding.example
        findings_by_key.setdefault(key, []).append(finding)
    return list(findings_by_key.values())
