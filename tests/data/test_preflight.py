"""Preflight checks refuse only what the sweep would refuse, and read no more than they need."""

from __future__ import annotations

import datetime
import decimal
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from sweeps.data.checks.column_checks import check_step_columns
from sweeps.data.checks.label_checks import infer_task
from sweeps.data.sources import data_files, ingest, sklearn_datasets
from sweeps.space import Space, load
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import Chain
from sweeps.space.sections.data_section import SKLEARN
from tests.bad_input import ROWS, furnish, rows, top
from tests.commands import invoke

SPACES = Path(__file__).parents[2] / "search_spaces"

Loaded = Callable[..., Space]


@pytest.fixture
def space(tmp_path, monkeypatch) -> Loaded:
    """Load the base of the bad input with other data, in a folder with `rows.csv`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)

    def do(
        data: str = "{train: rows.csv, label: y, valid: 0.25}", *overrides: str, **changes: str
    ) -> Space:
        trainer = {} if "label:" in data else {"trainer": "{loop: json:load}"}  # ours need a label
        (tmp_path / "space.yaml").write_text(top(data=data, **trainer, **changes))
        return load("space.yaml", overrides)

    return do


def said(space: Space) -> list[str]:
    with pytest.raises(InputError) as e:
        preflight.check_data(space)
    return [str(problem) for problem in e.value.problems]


# ---- variants


OTHER = "age,plan,y\n" + "".join(f"{i},a,{('no', 'yes', 'maybe')[i % 3]}\n" for i in range(9))


def test_every_variant_is_checked_and_named_by_its_option(space, tmp_path):
    (tmp_path / "more.csv").write_text("age,y\n1,no\n2,yes\n3,yes\n")
    assert said(
        space(
            "{train: {grid: [rows.csv, row.csv, more.csv]}, label: y, valid: 0.25}",
            space="{preprocessor: {OneHotEncoder: {columns: plan}}}",
        )
    ) == [
        "space.yaml:2:33: data.train.grid.1: `row.csv` does not exist; did you mean `rows.csv`?",
        (
            "space.yaml:5:49: preprocessor.OneHotEncoder.columns: no column `plan` in `more.csv`; "
            "valid: age"
        ),
    ]
    drop = space(
        "{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan], [plan, agee]]}}"
    )
    assert said(drop) == [
        "space.yaml:2:76: data.drop.choice.2: `rows.csv` has no column `agee`; did you mean `age`?"
    ]


def test_a_column_that_a_variant_drops_is_not_a_feature_of_it(space):
    dropped = space(
        "{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan]]}}",
        space="{preprocessor: {OneHotEncoder: {columns: plan}}}",
    )
    assert said(dropped) == [
        (
            "space.yaml:5:49: preprocessor.OneHotEncoder.columns: `plan` is not a feature, "
            "because "
            "data.drop, data.weight or a split removes it"
        )
    ]


def test_variants_agree_on_the_label(space, tmp_path):
    (tmp_path / "other.csv").write_text(OTHER)
    (tmp_path / "same.csv").write_text(ROWS)
    preflight.check_data(
        space(
            "{train: {grid: [rows.csv, same.csv]}, label: y, valid: 0.25, rows: {uniform: [0.5, "
            "1]}}"
        )
    )
    assert said(space("{train: {grid: [rows.csv, other.csv]}, label: y, valid: 0.25}")) == [
        "space.yaml:2:33: data.train.grid.1: the label of `other.csv` is multiclass with the "
        "classes 'maybe', 'no', 'yes', "
        "but the label of `rows.csv` is binary with the classes 'no', 'yes'; all "
        "variants need the same task and classes"
    ]


# ---- columns that steps name


def chain(*steps: Step) -> Chain:
    return Chain(steps)


def refused(*steps: Step) -> list[str]:
    return [
        problem.text.partition(";")[0]
        for problem in check_step_columns(chain(*steps), ("age", "plan"), "y", "rows.csv", ("id",))
    ]


@pytest.mark.parametrize("name", ["sklearn.decomposition:PCA", "my_mod:features"])
def test_a_column_that_an_earlier_step_may_make_is_not_refused(name):
    assert refused(Step(name), Step("StandardScaler", ("made", "age"))) == []
    assert refused(Step("StandardScaler", "made"), Step(name)) == ["no column `made` in `rows.csv`"]


@pytest.mark.parametrize("step", ["OneHotEncoder", "HashingVectorizer"])
def test_names_of_encoded_columns_start_with_their_column(step):
    new_columns = Step(step, "plan", {"num_features": 4} if step == "HashingVectorizer" else {})
    assert (
        refused(new_columns, Step("StandardScaler", ("plan_a", "age", "plan_*", "pixel_*"))) == []
    )
    assert refused(new_columns, Step("StandardScaler", ("paln_a", "planb"))) == [
        "no column `paln_a` in `rows.csv` or in the output of earlier steps",
        "no column `planb` in `rows.csv` or in the output of earlier steps",
    ]


def test_names_that_no_model_reads_are_replaced():
    problems = check_step_columns(
        chain(Step("OneHotEncoder"), Step("MinMaxScaler", "a(1)_x")), ("a[1]",), None, "rows.csv"
    )
    assert problems == []


def test_words_and_patterns_are_no_names():
    assert (
        refused(
            Step("StandardScaler", "numeric"),
            Step("OneHotEncoder", ("categorical", "p*")),
            Step("MinMaxScaler", "all"),
        )
        == []
    )
    assert refused(Step("StandardScaler", "pixel_*")) == [
        "no column in `rows.csv` matches `pixel_*`"
    ]


def test_columns_that_are_not_features_are_refused():
    assert refused(Step("StandardScaler", ("y", "id"))) == [
        "`y` is the label, which no step may change",
        "`id` is not a feature, because data.drop, data.weight or a split removes it",
    ]


OPTIONS = """\
preprocessor:
  - StandardScaler: {columns: {grid: [age, [age, plan], three]}}
  - choice: [OneHotEncoder, "sklearn.preprocessing:PolynomialFeatures"]
  - MinMaxScaler: {columns: [plan_a, four]}
"""


def test_every_option_is_checked_and_columns_that_any_option_makes_count(space):
    body = "".join(f"  {line}\n" for line in OPTIONS.splitlines())
    loaded = space(space="\n" + body, limits="{max_trials: 99}")
    assert said(loaded) == [
        "space.yaml:7:59: preprocessor.0.StandardScaler.columns.grid.2: no column `three` in "
        "`rows.csv`; valid: age, plan"
    ]


def test_texts_that_no_step_encodes_are_refused_if_every_trial_would_fail(space, tmp_path):
    def problems(
        steps: str, data: str = "train: rows.csv, label: y, valid: 0.25", **changes: str
    ) -> list[str]:
        try:
            preflight.check_data(
                space(f"{{{data}}}", space=f"{{preprocessor: {steps}}}", **changes)
            )
        except InputError as e:
            return [problem.text.partition(";")[0] for problem in e.problems]
        return []

    error = "space.preprocessor: `plan` is text, which xgboost cannot read, and no step encodes it"
    # a text after the first lines
    (tmp_path / "late.csv").write_text(
        "age,plan,y\n"
        + "".join(f"{i},{i},{'no' if i % 2 else 'yes'}\n" for i in range(9999))
        + "1,a,no\n"
    )
    pd.read_csv(tmp_path / "rows.csv").to_parquet(tmp_path / "rows.parquet")
    for refused_steps in (
        "[]",
        "[StandardScaler]",
        "[{OneHotEncoder: {columns: [age]}}]",
        "{grid: [[], [SimpleImputer]]}",
    ):
        assert problems(refused_steps) == [error], refused_steps
    for steps in (
        "OneHotEncoder",
        "[sklearn.preprocessing:OrdinalEncoder]",
        "{grid: [[], [OrdinalEncoder]]}",
        '[{OrdinalEncoder: {columns: "pl*"}}]',
    ):
        assert problems(steps) == [], steps
    assert (
        problems("[]", "train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan]]}") == []
    ), "only some trials fail"
    assert problems("[]", "train: rows.csv, label: y, valid: 0.25, drop: [plan]") == []
    assert problems("[]", "train: late.csv, label: y, valid: 0.25") == [error]
    assert problems("[]", "train: rows.parquet, label: y, valid: 0.25") == [error]
    indexed = pd.DataFrame({"age": range(8), "y": ["no", "yes"] * 4}, index=list("abcdefgh"))
    indexed.to_parquet(tmp_path / "indexed.parquet")
    assert problems("[]", "train: indexed.parquet, label: y, valid: 0.25") == [], (
        "the index is no feature"
    )
    assert problems("[]", trainer="{loop: json:load}") == []


# ---- the data


@pytest.mark.parametrize("name", ["quickstart", "digits_mlp"])
def test_the_spaces_that_ship_pass(name):
    preflight.check_data(load(SPACES / f"{name}.yaml"))


def test_the_columns_of_toy_sets_are_scikit_learns():
    from sklearn import datasets

    assert set(sklearn_datasets.COLUMNS) == set(SKLEARN)
    for name in sklearn_datasets.COLUMNS:
        assert (*sklearn_datasets.COLUMNS[name], "target") == tuple(
            getattr(datasets, f"load_{name}")(as_frame=True).frame.columns
        )


@pytest.mark.parametrize("name", sklearn_datasets.COLUMNS)
def test_the_tasks_of_toy_sets_are_inferred_from_scikit_learns(name):
    from sklearn import datasets

    target = pa.chunked_array([getattr(datasets, f"load_{name}")().target])
    for task in (None, "regression", "binary", "multiclass"):
        try:
            inferred = infer_task("target", task, {"train": target})
        except InputError:
            assert sklearn_datasets.label_task(name, task) is None
        else:
            assert sklearn_datasets.label_task(name, task) in (inferred, None)
    assert sklearn_datasets.label_task(name, None) == infer_task("target", None, {"train": target})


def test_a_metric_of_a_toy_set_is_checked_without_scikit_learn(space):
    wrong = space(
        '{train: "sklearn:wine", label: target, valid: 0.25}',
        objective="{metric: valid-mloglos, goal: minimize}",
    )
    assert said(wrong) == [
        (
            "space.yaml:3:21: objective.metric: `valid-mloglos` is not a metric of this trainer; "
            "did "
            "you mean `valid-mlogloss`?"
        )
    ]
    preflight.check_data(space('{train: "sklearn:wine", label: alcohol, valid: 0.25}'))


def test_many_columns_are_not_all_listed(space):
    assert said(space('{train: "sklearn:digits", label: klass, valid: 0.2}'))[0].endswith(
        "no column `klass`; it has pixel_0_0, pixel_0_1, pixel_0_2, pixel_0_3, pixel_0_4, "
        "pixel_0_5, pixel_0_6, pixel_0_7, "
        "pixel_1_0, pixel_1_1, ... (65 in all)"
    )


def test_slow_checks_are_left_to_the_sweep(space, tmp_path):
    (tmp_path / "own.py").write_text("raise SystemExit('imported')\ndef rows(): ...\n")
    for train in ("s3://no-such-bucket-of-anybody/rows.parquet", "own:rows"):
        preflight.check_data(
            space(
                f'{{train: "{train}", label: nothing, valid: 0.2, drop: [x]}}',
                space="{preprocessor: {StandardScaler: {columns: z}}}",
            )
        )
        assert said(space(f'{{train: "{train}", valid: absent.csv}}')) == [
            "space.yaml:2:" + str(26 + len(train)) + ": data.valid: `absent.csv` does not exist"
        ]


def test_a_file_uri_is_checked(space, tmp_path):
    assert (
        "has no column `Y`"
        in said(space(f'{{train: "file://{tmp_path}/rows.csv", label: Y, valid: 0.2}}'))[0]
    )


def test_large_files_are_left_to_the_sweep(space, tmp_path):
    (tmp_path / "one.csv").write_text(ROWS.replace("yes", "no"))
    one = space("{train: one.csv, label: y, valid: 0.2}")
    assert "one class" in said(one)[0]
    preflight.check_data(one, 20)


def test_only_the_first_of_many_files_are_checked(space, monkeypatch, tmp_path):
    for i in range(4):
        (tmp_path / f"part{i}.csv").write_text(ROWS if i < 3 else "")
    many = space('{train: "part*.csv", valid: 0.2}')
    assert "`part3.csv` cannot be read: it is empty" in said(many)[0]
    monkeypatch.setattr(preflight, "MAX_FILES", 3)
    preflight.check_data(many)


def test_a_file_without_rows_among_others_is_no_problem(space, tmp_path):
    (tmp_path / "empty.csv").write_text("age,plan,y\n")
    preflight.check_data(space('{train: "*.csv", label: y, valid: 0.2}'))


def test_folders_name_columns_too(space, tmp_path):
    for year in (2019, 2020):
        (tmp_path / "d" / f"year={year}").mkdir(parents=True)
        (tmp_path / "d" / f"year={year}" / "rows.csv").write_text(ROWS)
    scaled = "{preprocessor: [{StandardScaler: {columns: [age, year]}}, OneHotEncoder]}"
    preflight.check_data(space("{train: d, label: y, valid: {column: year, value: 2020}}"))
    preflight.check_data(space("{train: d, label: year, valid: 0.2}"))
    preflight.check_data(space("{train: d, label: y, valid: 0.2}", space=scaled))
    assert (
        "no column `year`"
        in said(space("{train: d/year=2019, label: y, valid: 0.2}", space=scaled))[0]
    )


@pytest.mark.parametrize("value", ["2", "two", "true", "2.0"])
def test_a_split_by_value_is_checked_as_the_sweep_does(space, tmp_path, value):
    from sweeps.data.splits.split import assign_splits

    (tmp_path / "parts.csv").write_text(
        "age,part,flag,half\n" + "".join(f"{i},{i % 3},{i % 2 == 0},{i}.5\n" for i in range(9))
    )
    frame = pd.read_csv(tmp_path / "parts.csv")
    for column in ("part", "flag"):
        loaded = space(f"{{train: parts.csv, valid: {{column: {column}, value: {value}}}}}")
        try:
            assign_splits(
                9,
                valid=loaded.data.valid,
                test=None,
                columns={column: frame[column].to_numpy()},
                strata=None,
                seed=0,
            )
        except InputError as e:
            assert said(loaded)[0].endswith(f": {e}")
        else:
            preflight.check_data(loaded)


@pytest.mark.parametrize("name", ["a.b", "größe", "with, comma", ""])
def test_labels_of_any_name(space, tmp_path, name):
    frame = pd.DataFrame({"x": range(6), name: ["u", "v"] * 3})
    frame.to_csv(tmp_path / "odd.csv", index=False)
    frame.to_parquet(tmp_path / "odd.parquet")
    label = name or "Unnamed: 1"
    preflight.check_data(space(f"{{train: odd.csv, label: '{label}', valid: 0.2}}"))
    if name:
        preflight.check_data(space(f"{{train: odd.parquet, label: '{label}', valid: 0.2}}"))
        frame[name] = "u"
        frame.to_parquet(tmp_path / "odd.parquet")
        assert (
            "one class, 'u'"
            in said(space(f"{{train: odd.parquet, label: '{label}', valid: 0.2}}"))[0]
        )


def test_a_row_longer_than_a_block(space, tmp_path):
    long = '"' + "x\n" * 100_000 + '"'
    (tmp_path / "long.csv").write_text("text,y\n" + f"{long},no\n{long},yes\n" * 2)
    preflight.check_data(space("{train: long.csv, label: y, valid: 0.5}"))


@pytest.mark.parametrize(("columns", "size"), [(["y"], 1), (["x", "y"], 2)])
def test_weight_is_of_the_columns_in_parquet_and_of_the_file_in_csv(tmp_path, columns, size):
    frame = pd.DataFrame({"x": range(50_000), "y": range(50_000)})
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    weigh = lambda name: ingest.estimate_bytes(  # noqa: E731
        data_files.find_files(data_files.Source(name, tmp_path, "data.train")), columns
    )
    assert weigh("a.csv") == (tmp_path / "a.csv").stat().st_size
    assert 350_000 * size < weigh("a.parquet") < 700_000 * size


def test_the_root_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    preflight.check_root(tmp_path)
    preflight.check_root(tmp_path / "not" / "yet")
    for path, text in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "x", f"`{tmp_path}/file` is a file"),
    ):
        with pytest.raises(InputError, match=text):
            preflight.check_root(path)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("wrong", "imported"), [(ROWS.replace("yes", "no"), "[]"), (ROWS, "['pandas']")]
)
def test_it_imports_nothing_heavy(space, tmp_path, wrong, imported):
    space()
    (tmp_path / "rows.csv").write_text(wrong)
    code = (
        "import sys, contextlib; from sweeps.space import load\n"
        "from sweeps.data.checks.preflight import check_data\n"
        "with contextlib.suppress(Exception): check_data(load('space.yaml'))\n"
        "print([m for m in 'ray torch mlflow pandas sklearn optuna xgboost'.split() if m in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == imported, done.stderr


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_preflight_refuses_what_the_sweep_refuses(local_ray, tmp_path, monkeypatch):
    from sweeps.data.splits.variants import DataVariants

    count = 0
    for i, case in enumerate(case for cases in rows.TABLE.values() for case in cases):
        # The reader does not know the steps, nor whether the trainer needs a feature.
        if "space: " in case.shown or "a model needs a column" in case.answer[0]:
            continue
        folder = tmp_path / str(i)
        furnish(folder)
        monkeypatch.chdir(folder)
        case.write(folder)
        with pytest.raises(InputError) as e:
            space = load("space.yaml")
            DataVariants(space.data, space.variants, 0, tuple(space.sections.get("data", ())))
        # the reader names the key, the look its option
        mine = {
            re.sub(r"^(data\.\w+)\.(grid|choice)\.\d+: ", r"\1: ", line.partition(": ")[2])
            for line in case.answer
        }
        theirs = {f"{p.place}: {p.text}" for p in e.value.problems}
        assert theirs <= mine, case.name
        count += 1
    assert count > 30


N = 24
TYPES = {
    "text": ["red", "blue"] * (N // 2),
    "category": pd.Categorical(["red", "blue"] * (N // 2)),
    "timestamp": pd.date_range("2024-01-01", periods=N, freq="D"),
    "date": [datetime.date(2024, 1, 1 + i) for i in range(N)],
    "time": [datetime.time(i) for i in range(N)],
    "duration": pd.to_timedelta(range(N), unit="h"),
    "list": [["a", "b"]] * N,
    "struct": [{"a": 1}] * N,
    "binary": [b"x"] * N,
    "period": pd.period_range("2021-01", periods=N, freq="M"),
    "interval": pd.interval_range(0, N),
    "decimal": [decimal.Decimal(i) for i in range(N)],
    "int8": pd.array([*range(N - 1), None], "Int8"),
}
DATE = r'write `data.parse: {x: "%Y-%m-%d"}`'


@pytest.mark.parametrize(
    ("kind", "shown", "advice"),
    [
        ("text", "text", "add an encoder"),
        ("category", "of the type category", "add an encoder"),
        ("timestamp", "of the type timestamp[", DATE),
        ("date", "of the type date32[day]", DATE),
        ("time", "of the type time64[us]", "name it in `columns` of a step"),
        ("duration", "of the type duration[", "convert it to numbers"),
        ("list", "of the type list<", "name it in `columns` of a step"),
        ("struct", "of the type struct<", "name it in `columns` of a step"),
        ("binary", "of the type binary", "name it in `columns` of a step"),
        ("period", "of the type pandas.period", "convert it to dates (`to_timestamp()`)"),
        ("interval", "of the type pandas.interval", "convert it to dates"),
        ("decimal", "", ""),
        ("int8", "", ""),
    ],
)
def test_a_column_is_refused_if_the_trainer_cannot_read_its_type(
    space, tmp_path, kind, shown, advice
):
    frame = pd.DataFrame({"x": TYPES[kind], "a": range(N), "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    rows = "train: typed.parquet, label: y, valid: 0.25"
    loaded = space(f"{{{rows}}}", space="{params: {eta: 0.1}}")
    preflight.check_data(space(f"{{{rows}, drop: [x]}}", space="{params: {eta: 0.1}}"))
    if not shown:
        preflight.check_data(loaded)
        return
    (line,) = said(loaded)
    assert f"`x` is {shown}" in line and advice in line and line.endswith("add it to data.drop")


@pytest.mark.parametrize(
    ("kind", "steps", "refused"),
    [
        ("category", "[OneHotEncoder]", False),
        ("time", "[OneHotEncoder]", False),
        ("timestamp", "[OneHotEncoder]", True),
        ("timestamp", "[{OrdinalEncoder: {columns: [x]}}]", True),
        ("list", "[OneHotEncoder]", True),
        ("duration", "[StandardScaler]", True),
        ("duration", '["json:dumps"]', False),
        ("period", '["json:dumps"]', True),
        ("period", "[{OneHotEncoder: {columns: [x]}}]", True),
    ],
)
def test_a_step_may_make_numbers_of_a_column(space, tmp_path, kind, steps, refused):
    frame = pd.DataFrame({"x": TYPES[kind], "a": range(N), "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    loaded = space(
        "{train: typed.parquet, label: y, valid: 0.25}", space=f"{{preprocessor: {steps}}}"
    )
    if refused:
        assert "`x` is of the type" in said(loaded)[0]
    else:
        preflight.check_data(loaded)


@pytest.mark.parametrize("columns", ["categorical", "[plan]", "all"])
def test_categories_are_refused_for_a_trainer_of_numbers(space, columns):
    steps = f"[{{Categorizer: {{columns: {columns}}}}}]"
    data = "{train: rows.csv, label: y, valid: 0.25}"
    preflight.check_data(space(data, space=f"{{preprocessor: {steps}}}"))
    loaded = space(data, space=f"{{preprocessor: {steps}}}", trainer="torch_tabular")
    assert said(loaded) == [
        "space.yaml:5:23: space.preprocessor: `plan` is of the type category, which torch_tabular "
        "cannot read, and no step "
        "encodes it; add an encoder that makes numbers, such as `preprocessor: [OneHotEncoder]`, "
        "or add it to data.drop"
    ]
    after = "[Categorizer, OneHotEncoder]"
    preflight.check_data(space(data, space=f"{{preprocessor: {after}}}", trainer="torch_tabular"))


def test_types_that_a_bundle_would_refuse_are_refused_for_every_trainer(space, tmp_path):
    frame = pd.DataFrame({"x": TYPES["period"], "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    data = "{train: typed.parquet, label: y, valid: 0.25}"
    for trainer in ("catboost", '"sklearn.svm:SVC"', "{loop: json:load}"):
        assert "pandas.period" in said(space(data, trainer=trainer))[0]
    frame.assign(x=TYPES["list"]).to_parquet(tmp_path / "typed.parquet")
    preflight.check_data(space(data, trainer="{loop: json:load}"))


def test_dates_with_a_rule_are_numbers(space, tmp_path):
    frame = pd.DataFrame({"x": TYPES["timestamp"], "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    preflight.check_data(
        space('{train: typed.parquet, label: y, valid: 0.25, parse: {x: "%Y-%m-%d"}}')
    )


RARE = "a,day,y\n" + "".join(f"{i},{i},{'rare' if i < 5 else 'usual'}\n" for i in range(60))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            "valid: {folds: 8}",
            (
                "data.valid: 8 folds need at least 8 rows of each class in train, but class "
                "`rare` of "
                "`y` has 5 in train"
            ),
        ),
        ("valid: {folds: 5}, test: 0.2", "but class `rare` of `y` has 4 in train and 1 in test"),
        ("valid: {time: day, last: 0.95}", "data.label: the train split has only one class"),
        ("group: y, valid: 0.5", "data.label: the train split has only one class"),
        ("valid: {column: day, value: 99}", "data.valid: no row has 99 in column `day`"),
        ("valid: {folds: 5}", None),
        ("valid: 0.25", None),
    ],
)
def test_splits_and_folds_are_those_of_the_sweep(space, tmp_path, data, error):
    (tmp_path / "rare.csv").write_text(RARE)
    loaded = space(f"{{train: rare.csv, label: y, {data}}}")
    if error is None:
        preflight.check_data(loaded)
    else:
        (line,) = said(loaded)
        assert error in line


@pytest.mark.parametrize(
    ("metric", "refused"),
    [("valid-auc", True), ("valid-roc_auc", True), ("valid-logloss", False)],
)
def test_a_class_that_valid_lacks_is_a_warning_unless_the_metric_needs_it(
    space, tmp_path, caplog, metric, refused
):
    (tmp_path / "rare.csv").write_text(RARE)
    loaded = space(
        "{train: rare.csv, label: y, valid: {time: day, last: 0.2}}",
        objective=f"{{metric: {metric}, goal: {'maximize' if refused else 'minimize'}}}",
    )
    note = "the valid split has no row of class `rare` of `y`"
    if refused:
        assert said(loaded) == [
            f"space.yaml:3:21: objective.metric: `{metric}` needs rows of every class, but "
            f"{note}; "
            "choose another metric or change data.valid"
        ]
    else:
        preflight.check_data(loaded)
        assert caplog.messages == [f"note: {note}"]


def test_a_label_of_integers_may_be_a_number(space, tmp_path):
    (tmp_path / "stars.csv").write_text("a,y\n" + "".join(f"{i},{i % 6}\n" for i in range(60)))
    data = "train: stars.csv, label: y, valid: 0.25"
    wanted = {"objective": "{metric: valid-rmse, goal: minimize}"}
    (line,) = said(space(f"{{{data}}}", **wanted))
    assert "to predict the label as a number, set `data.task: regression`" in line
    preflight.check_data(space(f"{{{data}, task: regression}}", **wanted))


def test_plan_with_data_refuses_what_run_refuses(space, tmp_path):
    (tmp_path / "rare.csv").write_text(RARE)
    space("{train: rare.csv, label: y, valid: {folds: 8}}")
    planned = invoke("plan", "space.yaml", "--data")
    assert planned.exit_code == 2 and "class `rare` of `y` has 5 in train" in planned.stderr
    assert "data: 60 rows" in planned.stdout, "the summary may show the cause"


def test_a_constraint_names_a_column_that_reaches_the_trainer(space, tmp_path):
    (tmp_path / "rows.csv").write_text(ROWS)
    params = "monotone_constraints: {agee: 1}, interaction_constraints: [[age, x], [0, 1]]"
    lines = said(space(space=f"{{preprocessor: [OneHotEncoder], params: {{eta: 0.1, {params}}}}}"))
    assert [line.partition(": ")[2] for line in lines] == [
        "params.monotone_constraints: no column `agee` reaches the trainer; did you mean `age`?",
        "params.interaction_constraints: no column `x` reaches the trainer; valid: age, plan",
    ]
    params = "monotone_constraints: {plan_a: 1, age: 1}"
    preflight.check_data(
        space(space=f"{{preprocessor: [OneHotEncoder], params: {{eta: 0.1, {params}}}}}")
    )


def test_an_infinite_label_is_named_with_its_row(space, tmp_path):
    lines = ["age,plan,y", *(f"{i},a,{'inf' if i == 7 else i / 3}" for i in range(40))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (line,) = said(space("{train: rows.csv, label: y, valid: 0.2}"))
    assert line.endswith("`y` is infinite in row 8 of data.train; remove such rows")
