"""The section `data` of a space file: its keys as written, and the data that they name.

Each section is a frozen dataclass. `section_checks.check` validates it by its annotations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, StrictBool, StrictStr

from sweeps.core.label_columns import Label, label_columns
from sweeps.space.parse import value_types
from sweeps.space.yaml.scalars import Plain

from .key_types import (
    AtLeast0,
    AtLeast2,
    Fraction,
    LabelColumns,
    MissingMarkers,
    NonEmptyText,
    ParseRules,
    Scalar,
    Share,
    Task,
)


@dataclass(frozen=True)
class DataKeys:
    """The section `data` as written.

    `DataSection` parses `valid` and `test`, which have several forms.

    Attributes:
        train: Source of the train rows: a path, a glob, a folder, a URI, `sklearn:NAME`, or
            `module:function` for a loader of your own.
        valid: The rows on which trials are evaluated during the search.
        label: The column to predict, or a list of several columns: numbers, or 0 and 1 in each
            column. The built-in trainers need a label.
        test: The rows on which the winner is evaluated once, at the end. The search never uses
            these rows.
        task: The kind of prediction. By default it follows from the label: text, booleans, and
            integers with up to 20 values are classes.
        drop: Columns that are not features, such as an id.
        rows: Share of the train rows to train on. `valid` and `test` keep all their rows.
        drop_missing_label: True to leave out rows without a label. By default such rows are an
            error.
        weight: A column with the weight of each row: a number of at least 0. The column is not a
            feature. Weights count in training only.
        class_weight: With `balanced`, all classes have the same total weight in training: the
            weight of a row is divided by the share of its class, and by the number of classes.
        ingest: `memory` reads all rows once and holds them in memory. `stream` reads them anew in
            each epoch, block by block. By default (`auto`), data of 4 GB and more is streamed if
            the space allows streaming; `sweeps plan` shows which one applies, and why.
        parse: Columns of text to read as numbers: `number` for `$1,234.50`, `19M` or `>20`,
            `decimal_comma` for `1.234,50`, `unit bhp` for `74 bhp`, `duration` for `2h 50m`, or a
            format such as `%d/%m/%Y`, which becomes the days since 1970-01-01, or `%H:%M`, which
            becomes the seconds since midnight. `{rule: number, other: missing}` reads other texts
            as missing values. The bundle takes the same texts.
        drop_duplicates: True to leave out train rows that are copies of other train rows, or of
            rows of a `valid` or `test` with a source of its own.
        positive: The positive class of a label with two classes, to which metrics such as F1, the
            signs of constraints, and parameters such as `scale_pos_weight` refer. By default, it is
            the class that is last in sorted order.
        group: The column with the group of each row, such as a patient or a query. A group is never
            divided between splits or folds. A trainer with a ranking objective ranks the rows of
            each group. The column is not a feature.
        missing: Texts and numbers that mean a missing value, by column; `*` adds markers for all
            columns. Empty texts, `NaN` and `null` are always missing. `NA`, `N/A` and `None` are
            missing unless they are frequent in a column of texts. The list of a column replaces
            this rule, so with `[]` no word is missing in the column.
        read: Settings for reading text files, if a file does not show this itself: its header,
            separator, decimal sign and encoding.
    """

    train: NonEmptyText
    valid: Any
    label: LabelColumns = None
    test: Any = None
    task: Task | None = None
    drop: tuple[NonEmptyText, ...] = ()
    rows: Share = 1.0
    drop_missing_label: StrictBool = False
    weight: NonEmptyText | None = None
    class_weight: Literal["balanced"] | None = None
    ingest: Literal["auto", "memory", "stream"] = "auto"
    parse: ParseRules = field(default_factory=dict)
    drop_duplicates: StrictBool = False
    positive: Scalar = None
    group: NonEmptyText | None = None
    missing: MissingMarkers = field(default_factory=dict)
    read: Any = None


@dataclass(frozen=True)
class ByColumn:
    """A split by the value of a column, such as `{column: split, value: valid}`.

    Attributes:
        column: Name of the column. The column is then not a feature.
        value: Value that the rows of the split have in this column.
    """

    column: NonEmptyText
    value: Scalar


@dataclass(frozen=True)
class ByTime:
    """A split that takes the latest rows, ordered by a time column.

    An example is `{time: col, last: 0.2}`.

    Attributes:
        time: Name of the column of times or numbers by which the rows are ordered.
        last: Fraction of the rows in the split. Rows with equal times stay together.
    """

    time: NonEmptyText
    last: Fraction


@dataclass(frozen=True)
class ByFolds:
    """Cross-validation: each trial trains once for each fold, such as `{folds: 5}`.

    Attributes:
        folds: Number of folds. Each fold is the valid split once, and the other folds are then the
            train split.
    """

    folds: AtLeast2


@dataclass(frozen=True)
class ByRolling:
    """Cross-validation of a time series, such as `{rolling: day}`.

    Each fold validates on rows that are later than its train rows.

    Attributes:
        rolling: A column of times or numbers.
        folds: Number of folds. The rows are cut into one more block than there are folds, in the
            order of time. Fold k trains on the first k blocks and validates on the next block.
    """

    rolling: NonEmptyText
    folds: AtLeast2 = 5


SPLIT_FORMS = (
    "a fraction such as 0.2 (for whole groups, use `data.group`), a path, {column: split, value: "
    "valid} or {time: col, last: 0.2}"
)
FOLD_FORMS = "{folds: 5} or {rolling: col} for a cross-validation"


@dataclass(frozen=True)
class Split:
    """The rule that selects the rows of `valid` or `test`.

    Attributes:
        kind: "fraction", "path", "column", "time", "group", "folds" or "rolling". Attributes that
            this kind does not use are None, 0, or {} for `args`.
        fraction: Share of the rows, for the kinds fraction, time and group. With the kind time, the
            split has the latest rows.
        path: A path, a URI, `sklearn:NAME` or `module:function`, for the kind path.
        args: Keyword arguments of the function that `path` names.
        column: The column to split by, for the kinds column, time, group and rolling. For the kind
            folds, `data.group`; None if there are no groups.
        value: The value of `column` that marks the rows of the split, for the kind column.
        folds: Number of folds of a cross-validation, for the kinds folds and rolling.
    """

    kind: str
    fraction: float | None = None
    path: str | None = None
    column: str | None = None
    value: Plain = None
    args: dict[str, Any] = field(default_factory=dict)
    folds: int = 0


@dataclass(frozen=True)
class ReadKeys:
    """The keys of `data.read`, which say how to read CSV and TSV files. Other files ignore them.

    Attributes:
        names: Names of all columns, for files without a header. A column whose name is "" has no
            name.
        skip_lines: Number of lines at the beginning of each file that are not read, such as titles
            above the header.
        separator: The character between two values. By default, it is a comma in CSV files and a
            tab in TSV files.
        decimal: The decimal sign of numbers. With a comma, points between groups of three digits
            are left out.
        encoding: The encoding of the text, by the name that Python has for it.
    """

    names: tuple[StrictStr, ...] = ()
    skip_lines: AtLeast0 = 0
    separator: Annotated[NonEmptyText | None, AfterValidator(value_types.separator)] = None
    decimal: Literal[".", ","] = "."
    encoding: Annotated[NonEmptyText, AfterValidator(value_types.encoding)] = "utf-8"


READ_DEFAULTS = ReadKeys()


@dataclass(frozen=True)
class DataSpec:
    """The data of a sweep, as the space file names it. No file has been opened.

    Attributes:
        train: Source of the train rows: a path, a glob, a folder, a URI, `sklearn:NAME` or
            `module:function`. "" if the space file names no data, because the loop reads its own
            data.
        label: The column to predict, or a tuple of several columns to predict. None if the space
            file names none.
        valid: The rows on which trials are evaluated during the search. None only if the space file
            names no data.
        test: The rows on which the winner is evaluated at the end. The search never uses these
            rows. None if the space file has no `test`.
        task: "binary", "multiclass" or "regression". None to infer the task from the label.
        base: Folder to which relative paths refer, usually the folder of the space file.
        drop: Columns that are not features.
        args: Keyword arguments of the function that `train` names.
        rows: Share of the train rows to train on, above 0 and at most 1.
        drop_missing_label: True to leave out rows without a label. Otherwise such rows are an
            error.
        weight: The column with the weight of each train row. None if all rows count equally.
        class_weight: "balanced" to multiply each weight by a number that gives all classes the same
            total weight. Otherwise None.
        weight_columns: The columns that `weight` can name: several if `weight` is tuned. They are
            not features.
        ingest: "memory", "stream" or "auto". `sweeps.data.sources.ingest` replaces "auto" before a
            sweep starts.
        parse: The columns of text that are read as numbers, each with its rule; see
            `sweeps.data.columns.parse`.
        drop_duplicates: True to leave out train rows that are copies of other rows of train, or of
            rows of valid or test.
        positive: The positive class of a label with two classes. None for the class that is last in
            sorted order.
        group: The column with the group of each row, such as a query or a patient. It is not a
            feature. None if there are no groups.
        queries: True if the trainer gets the groups, as its queries.
        missing: The texts and numbers that mean a missing value, by column; `*` for all columns.
            See `sweeps.data.columns.missing`.
        read: Settings for reading text files.
    """

    train: str
    label: Label | None
    valid: Split | None
    test: Split | None
    task: str | None
    base: Path
    drop: tuple[str, ...] = ()
    args: dict[str, Any] = field(default_factory=dict)
    rows: float = 1.0
    drop_missing_label: bool = False
    weight: str | None = None
    class_weight: str | None = None
    weight_columns: tuple[str, ...] = ()
    ingest: str = "auto"
    parse: dict[str, str] = field(default_factory=dict)
    drop_duplicates: bool = False
    positive: Plain = None
    group: str | None = None
    queries: bool = False
    missing: dict[str, tuple[str | int | float, ...]] = field(default_factory=dict)
    read: ReadKeys = READ_DEFAULTS

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns to predict; () if the space file names none."""
        return label_columns(self.label)

    @property
    def only_label(self) -> str | None:
        """The label column of a stream, which has at most one.

        Return None if the space file names none.
        """
        assert not isinstance(self.label, tuple), "`stream_obstacles` refuses several label columns"
        return self.label

    @property
    def is_named(self) -> bool:
        """True if the space file names data."""
        return self.train != ""

    @property
    def weighted(self) -> bool:
        """True if the train rows have weights."""
        return self.weight is not None or self.class_weight is not None

    @property
    def folds(self) -> int:
        """Number of folds of a cross-validation. 0 if `valid` is a fixed set of rows."""
        return 0 if self.valid is None else self.valid.folds

    @property
    def can_redivide(self) -> bool:
        """True if the rows of valid, or the folds, are a random choice.

        Otherwise valid has the latest rows, whole groups, or rows with a source or a mark of their
        own. A stream is not divided again.
        """
        kinds = ("fraction", "folds")
        valid = self.valid
        is_random = valid is not None and valid.kind in kinds and valid.column is None
        return is_random and self.ingest != "stream"

    @property
    def source(self) -> str:
        """Text that identifies the source of the train rows. It contains `train` and `args`."""
        return repr((self.train, self.args))


def variant_of(spec: DataSpec, data: Mapping[str, Any]) -> DataSpec:
    """Return the data of a trial: the data of the sweep, with the trial's values of the tuned keys.

    Args:
        spec: The data of the sweep.
        data: The trial's values of the tuned keys, such as `rows`. `train` is text or
            `{module:function: arguments}`.
    """
    values = dict(data)
    source = values.get("train")
    if isinstance(source, Mapping):
        ((function, arguments),) = source.items()
        values |= {"train": function, "args": arguments}
    elif source is not None:
        values["args"] = {}
    return replace(spec, **values)
