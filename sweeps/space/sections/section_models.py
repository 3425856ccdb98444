"""Keys, types and rules of the sections of a space file other than `space`.

Each section is a frozen dataclass. `problems.check` validates a section through pydantic, by the
annotations of its dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)

from sweeps.core.label_columns import Label, label_columns
from sweeps.core.plugins import references
from sweeps.core.trial import LOST
from sweeps.space.model.domains import Keys
from sweeps.space.parse import value_types
from sweeps.space.yaml.scalars import Plain

Text = Annotated[StrictStr, Field(min_length=1)]
Scalar = Annotated[Any, BeforeValidator(value_types.plain_scalar)]
AtLeast0 = Annotated[StrictInt, Field(ge=0)]
AtLeast1 = Annotated[StrictInt, Field(ge=1)]
AtLeast2 = Annotated[StrictInt, Field(ge=2)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, gt=0, lt=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=1)]
# Types that a function validates, with the JSON Schema of the values in the space file.
_DURATION = WithJsonSchema({"type": ["string", "number"], "examples": ["90s", "1h30m"]})
Seconds = Annotated[float, BeforeValidator(value_types.seconds), _DURATION]
HeartbeatTimeout = Annotated[float, BeforeValidator(value_types.heartbeat), _DURATION]
Size = Annotated[
    int,
    BeforeValidator(value_types.size),
    WithJsonSchema({"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*[KkMmGgTt]?[Bb]\s*$"}),
]
Concurrency = Annotated[
    int | None,
    BeforeValidator(value_types.auto),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1}]}),
]
Causes = Annotated[
    tuple[Annotated[StrictStr, Field(pattern=value_types.CLASS_NAME)], ...],
    value_types.described(
        "must be a list whose entries are `lost` or names of exception classes, such as [lost, "
        "ConnectionError]"
    ),
]
Variables = Annotated[
    dict[str, str],
    BeforeValidator(value_types.variables),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer"]}}),
]
Points = Annotated[
    tuple[Any, ...],
    WithJsonSchema({"type": "array", "items": {"type": "object", "minProperties": 1}}),
]
Backend = Annotated[
    str,
    BeforeValidator(value_types.backend),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(value_types.BACKENDS)},
                {"type": "string", "pattern": references.PATTERN},
            ]
        }
    ),
]
ParseRules = Annotated[
    dict[str, str],
    BeforeValidator(value_types.parse_rules),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"enum": list(value_types.NUMBER_RULES)},
                    {"type": "string", "pattern": "%[A-Za-z]|^unit ."},
                    {
                        "type": "object",
                        "properties": {
                            "rule": {
                                "type": "string",
                                "description": "Rule for the texts of the column.",
                            },
                            "other": {
                                "const": "missing",
                                "description": "What becomes of texts that do not fit the rule.",
                            },
                        },
                        "required": ["rule", "other"],
                        "additionalProperties": False,
                    },
                ]
            },
        }
    ),
]
MissingMarkers = Annotated[
    dict[Text, tuple[StrictStr | StrictInt | StrictFloat, ...]],
    value_types.described(
        "must be a mapping of columns, or '*' for all columns, to lists of texts and numbers, "
        "such as {'*': ['?'], no2: [-200]}"
    ),
]
# The two units that a scheduler can count. With `ROWS`, a step is a part of the train split.
ROWS = "data.rows"
Resource = Literal["step", "data.rows"]
Task = Literal["binary", "multiclass", "regression"]
AnyTask = Literal[
    Task, "multilabel", "multioutput"
]  # The last two are the tasks of several label columns.
LabelColumns = Annotated[
    Label | None,
    BeforeValidator(value_types.label),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 2,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]


@dataclass(frozen=True)
class TrainerSpec:
    """The trainer of a sweep: a built-in trainer, or a user's training loop.

    Attributes:
        name: Name of a built-in trainer, which is a file in `trainers/`. None for a user's trainer.
        loop: The training loop, as `module:attr`.
        backend: The process group that the ranks of the loop need: one of `value_types.BACKENDS`,
            or `module:attr` of a `BackendConfig`.
        load: The function that loads a checkpoint's model, as `module:attr`. If None, the sweep
            writes no bundle.
        reuse: "auto" keeps a gang of workers for the next trial. "never" closes the gang after each
            trial.
        options: Value of each option of the trainer, by the option's name; see
            `TrainerDefinition.options`.
        references: The options that name the user's code, as `module:attr`. Their modules belong to
            the code of the loop.
        packages: The options that name a package. The loop and the bundle need these packages.
        environment: Environment variables that the workers have before they import the user's code.
    """

    name: str | None
    loop: str
    backend: str
    load: str | None
    reuse: str = "auto"
    options: dict[str, Any] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


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
    separator: Annotated[Text | None, AfterValidator(value_types.separator)] = None
    decimal: Literal[".", ","] = "."
    encoding: Annotated[Text, AfterValidator(value_types.encoding)] = "utf-8"


READ_DEFAULTS = ReadKeys()


@dataclass(frozen=True)
class DataSpec:
    """The data of a sweep, as the space file names it. No file has been opened.

    Attributes:
        train: Source of the train rows: a path, a glob, a URI, `sklearn:NAME` or `module:function`.
            "" if the space file names no data, because the loop reads its own data.
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
        read: How the text files are read.
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
    def given(self) -> bool:
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
    given = dict(data)
    if isinstance(call := given.get("train"), Mapping):
        given["train"], given["args"] = next(iter(call.items()))
    elif "train" in given:
        given["args"] = {}
    return replace(spec, **given)


@dataclass(frozen=True)
class Objective:
    """The metric that the search optimizes.

    Attributes:
        metric: Name of a metric that the loop reports, or a cost that is measured for every trial:
            `seconds`, `cpu_seconds` or `gpu_seconds`.
        goal: `minimize` if smaller values are better, `maximize` if larger values are better.
    """

    metric: Text
    goal: Literal["minimize", "maximize"]


@dataclass(frozen=True)
class InitialPoint:
    """A configuration to try before anything is sampled.

    Attributes:
        keys: Key of each dimension that the point sets, by the dimension's name. A key stands for a
            value; see `Dimension.value`. The other dimensions are sampled.
        values: Known results, one for each objective. None if the results are unknown; the point
            must then be run.
    """

    keys: Keys
    values: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Search:
    """The sampler of a sweep.

    Attributes:
        algorithm: The sampler. `auto` stands for a sampler that suits the space and the limits;
            `sweeps plan` shows which one.
        seed: Seed of the data splits, the sampler and the trials.
        options: Options of the sampler, as a mapping.
        initial_points: Configurations to try in this order, before anything is sampled.
        earlier: Earlier sweeps from which the sweep learns; the key `from` of the space file.
        portfolio: Known good configurations to try early, after the trainer's default
            configuration. They take at most a third of `limits.max_trials`.
    """

    algorithm: Text = "auto"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)] = 0
    options: dict[str, Any] | None = None
    initial_points: Points = ()
    earlier: Annotated[
        tuple[Text, ...],
        BeforeValidator(value_types.sweep_names),
        Field(
            alias="from",
            description="Earlier sweeps with the same objective, from which the sweep learns: "
            "folders, names, `latest` or addresses",
        ),
    ] = ()
    portfolio: Text | None = None


@dataclass(frozen=True)
class SchedulerSpec:
    """The scheduler of a sweep, as the space file names it.

    Attributes:
        name: Name of a built-in scheduler, or the reference `module:attr` of a scheduler class.
        options: Options of the scheduler. The options of a built-in scheduler are complete and
            checked.
    """

    name: str = "none"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def max_t(self) -> int | None:
        """The scheduler's option `max_t`: the step at which a trial ends.

        None if the scheduler has no such limit.
        """
        value = self.options.get("max_t")
        return value if isinstance(value, int) else None

    @property
    def counts_rows(self) -> bool:
        """True if the steps of a trial are parts of the train split.

        The loop then runs again at each rung.
        """
        return self.options.get("resource") == ROWS

    @property
    def population(self) -> int | None:
        """Number of trials that train side by side and can continue from each other's checkpoints.

        None if there is no population.
        """
        return self.options.get("population")


@dataclass(frozen=True)
class Repeats:
    """The number of times that each configuration is trained, each time with a different seed.

    Attributes:
        count: Number of times that each configuration is trained. `repeats: 3` is short for
            `repeats: {count: 3}`.
        aggregate: Function that combines the values of the repeated trials into the value of the
            configuration.
    """

    count: AtLeast1 = 1
    aggregate: Literal["mean", "median", "min", "max"] = "mean"


@dataclass(frozen=True)
class Limits:
    """The budget of a sweep, and the conditions that end the sweep early.

    Attributes:
        max_trials: Number of trials of the whole sweep; repeats do not count. If only grids are
            tuned, the default is the number of grid cells (combinations of grid values). With
            `pbt`, the default is `scheduler.population`. Otherwise the key is required.
        timeout: Longest time of the whole sweep, including its start. When the time is over,
            running trials are stopped and become PRUNED.
        max_concurrent_trials: Largest number of trials that run at once. `auto` means as many as
            fit on the cluster at the same time. If `space.scaling` is tuned, `auto` counts how many
            trials with the smallest scaling fit.
        max_failures: How many times a trial may be retried after a failure.
        retry_on: Causes of a failure after which a trial is retried: `lost` (a worker process was
            lost), and names of exception classes that the loop raises.
        trial_timeout: Longest time that one trial may train, over all its attempts. A trial that
            takes longer fails.
        report_timeout: Longest time that a rank may train without a report. If a rank takes longer,
            its trial fails.
        heartbeat_timeout: Time after which a worker process that sends no heartbeat is treated as
            lost. For example, the process may be suspended. The trial continues on another worker.
            `max_failures` does not count this loss.
        max_gpu_hours: Largest number of GPU hours of all trials together. When these hours are used
            up, running trials are stopped and become PRUNED.
        target: Stop the sweep when a trial is COMPLETE and its value of the objective is this value
            or a better one.
        patience: Stop the sweep after this many consecutive COMPLETE and PRUNED trials without a
            new best COMPLETE trial.
        max_failures_in_a_row: Stop the sweep after this many consecutive failed trials.
    """

    max_trials: AtLeast1 = 0
    timeout: Seconds | None = None
    max_concurrent_trials: Concurrency = None
    max_failures: AtLeast0 = 2
    retry_on: Causes = (LOST,)
    trial_timeout: Seconds | None = None
    report_timeout: Seconds | None = None
    heartbeat_timeout: HeartbeatTimeout = 60.0
    max_gpu_hours: Annotated[Number, Field(gt=0)] | None = None
    target: Number | None = None
    patience: AtLeast1 | None = None
    max_failures_in_a_row: AtLeast1 | None = None


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints that ended trials keep; see `sweeps.checkpoints.retention`.

    Attributes:
        per_trial: Number of checkpoints that a trial keeps: its best checkpoint and its `per_trial`
            - 1 latest checkpoints.
        top: Number of trials that keep checkpoints, starting with the best trial. By default all
            trials keep checkpoints.
        max_disk: Largest disk space of all checkpoints together, such as `500MB` or `10GB`. The
            checkpoints of the worst trials are deleted first.
    """

    per_trial: AtLeast1 = 2
    top: AtLeast1 | None = None
    max_disk: Size | None = None

    @property
    def all_stay(self) -> bool:
        """True if every key has its default.

        The sweep then deletes no checkpoint of an ended trial.
        """
        return self == Checkpoints()


@dataclass(frozen=True)
class BundleKeys:
    """The model in the bundle that a sweep writes for its winner.

    Attributes:
        train_on: `train` exports the winner's own model. `all` trains the winner again at the end
            of the sweep, on train and valid. If `data.test` is a fraction, `all` includes test,
            which is scored before. After a cross-validation, the winner is always trained again.
    """

    train_on: Literal["train", "all"] = "train"


@dataclass(frozen=True)
class RuntimeEnv:
    """The environment that Ray sets up for the workers and the process that prepares data.

    Attributes:
        env_vars: Environment variables, by name. MLflow, reports and bundles show only the names.
        pip: Requirements that Ray installs with pip, such as `polars==1.31.0`.
        py_modules: Folders of Python packages, wheels, or URIs of these. Workers can import the
            packages.
        working_dir: Folder that Ray copies for the workers, or its URI. Loops start in this folder.
        image_uri: Container image in which the processes run. It can be combined only with
            `env_vars`.
    """

    env_vars: Variables = field(default_factory=dict, repr=False)  # the values may be secrets
    pip: tuple[Text, ...] = ()
    py_modules: tuple[Text, ...] = ()
    working_dir: Text | None = None
    image_uri: Text | None = None

    def for_ray(self) -> dict[str, Any]:
        """Return the given keys as Ray's `runtime_env`."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if value
        }


@dataclass(frozen=True)
class LoopKeys:
    """The section `trainer` as a mapping, which names a training loop.

    Attributes:
        loop: Your training loop, as `module:function`.
        backend: The process group that the ranks of the loop need. `module:attr` names a
            `BackendConfig` of your own.
        load: The function that loads a checkpoint's model, as `module:function`. Without `load`,
            the sweep writes no bundle.
        reuse: `auto` keeps the workers for the next trial. `never` closes the workers after each
            trial. Write `never` for a framework that cannot start twice in one process.
    """

    loop: Text
    backend: Backend = "none"
    load: Text | None = None
    reuse: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class TrainerKeys:
    """The section `trainer` as a mapping, which names a trainer and gives its options.

    Each trainer has further keys for its options.

    Attributes:
        name: A built-in trainer, or your own module with a `TRAINER` literal.
        backend: The process group that the ranks of the loop need. By default, the trainer decides.
        load: The function that loads a checkpoint's model, as `module:function`. By default, the
            trainer decides.
        reuse: `auto` keeps the workers for the next trial. `never` closes the workers after each
            trial.
    """

    name: Text | None = None
    backend: Backend | None = None
    load: Text | None = None
    reuse: Literal["auto", "never"] = "auto"


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
            becomes the seconds since midnight. `{rule:
            number, other: missing}` reads other texts as missing values. The bundle takes the same
            texts.
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
        read: How text files are read, if a file does not show this itself: its header, separator,
            decimal sign and encoding.
    """

    train: Text
    valid: Any
    label: LabelColumns = None
    test: Any = None
    task: Task | None = None
    drop: tuple[Text, ...] = ()
    rows: Share = 1.0
    drop_missing_label: StrictBool = False
    weight: Text | None = None
    class_weight: Literal["balanced"] | None = None
    ingest: Literal["auto", "memory", "stream"] = "auto"
    parse: ParseRules = field(default_factory=dict)
    drop_duplicates: StrictBool = False
    positive: Scalar = None
    group: Text | None = None
    missing: MissingMarkers = field(default_factory=dict)
    read: Any = None


@dataclass(frozen=True)
class ByColumn:
    """A split by the value of a column, such as `{column: split, value: valid}`.

    Attributes:
        column: Name of the column. The column is then not a feature.
        value: Value that the rows of the split have in this column.
    """

    column: Text
    value: Scalar


@dataclass(frozen=True)
class ByTime:
    """A split that takes the latest rows, ordered by a time column.

    An example is `{time: col, last: 0.2}`.

    Attributes:
        time: Name of the column of times or numbers by which the rows are ordered.
        last: Fraction of the rows in the split. Rows with equal times stay together.
    """

    time: Text
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

    rolling: Text
    folds: AtLeast2 = 5


SPLIT_FORMS = (
    "a fraction such as 0.2 (for whole groups, use `data.group`), a path, {column: split, value: "
    "valid} or {time: col, last: 0.2}"
)
FOLD_FORMS = "{folds: 5} or {rolling: col} for a cross-validation"
# What to give for a missing required key, by section and key.
REQUIRED: dict[tuple[type, str], str] = {
    (DataKeys, "valid"): f"give {SPLIT_FORMS}; or {FOLD_FORMS}",
    (
        DataKeys,
        "train",
    ): "give a path, a glob, a URI, sklearn:NAME or module:function; a loop that reads its own "
    "data needs no `data`",
    (Objective, "goal"): "give minimize or maximize",
    (
        Objective,
        "metric",
    ): "give the name of a metric that the trainer reports, such as valid-logloss",
    (LoopKeys, "loop"): "give a reference `module:attr` to a training loop",
}
