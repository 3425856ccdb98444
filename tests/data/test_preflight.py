"""Preflight checks: they refuse only what the sweep would refuse, and read no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError, Problem
from sweeps.data import files, preflight, schema_probe, sklearn_datasets
from sweeps.data.column_checks import check_step_columns
from sweeps.data.label_checks import infer_task
from sweeps.space import Space, load
from sweeps.space.data_section import SKLEARN
from sweeps.space.step_names import Step
from sweeps.space.templates import Chain
from tests.bad_input import ROWS, furnish, rows, top

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
        "space.yaml:5:49: preprocessor.OneHotEncoder.columns: no column `plan` in `more.csv`; valid: age",
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
        "space.yaml:5:49: preprocessor.OneHotEncoder.columns: `plan` is not a feature, because data.drop, data.weight or a split removes it"
    ]


def test_variants_agree_on_the_label(space, tmp_path):
    (tmp_path / "other.csv").write_text(OTHER)
    (tmp_path / "same.csv").write_text(ROWS)
    preflight.check_data(
        space(
            "{train: {grid: [rows.csv, same.csv]}, label: y, valid: 0.25, rows: {uniform: [0.5, 1]}}"
        )
    )
    assert said(space("{train: {grid: [rows.csv, other.csv]}, label: y, valid: 0.25}")) == [
        "space.yaml:2:33: data.train.grid.1: the label of `other.csv` is multiclass with the classes 'maybe', 'no', 'yes', "
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


@pytest.mark.parametrize(
    "before",
    [
        Step("SimpleImputer", "age", {"output_columns": ["made"]}),
        Step("FeatureHasher", "all", {"num_features": 4, "output_column": "made"}),
        Step("Concatenator", "all", {"output_column_name": "made"}),
        Step("sklearn.decomposition:PCA"),
        Step("my_mod:features", "age"),
    ],
    ids=lambda step: step.name,
)
def test_a_column_that_an_earlier_step_may_make_is_not_refused(before):
    assert refused(before, Step("StandardScaler", ("made", "age"))) == []
    assert refused(Step("StandardScaler", "made"), before) == ["no column `made` in `rows.csv`"]


@pytest.mark.parametrize(
    "step", ["OneHotEncoder", "MultiHotEncoder", "CountVectorizer", "HashingVectorizer"]
)
def test_columns_made_of_values_begin_with_their_column(step):
    made = Step(step, "plan", {"num_features": 4} if step == "HashingVectorizer" else {})
    assert refused(made, Step("StandardScaler", ("plan_a", "age", "plan_*", "pixel_*"))) == []
    assert refused(made, Step("StandardScaler", ("paln_a", "planb"))) == [
        "no column `paln_a` in `rows.csv` or in the output of earlier steps",
        "no column `planb` in `rows.csv` or in the output of earlier steps",
    ]


def test_names_that_no_model_reads_are_made_plain():
    made = check_step_columns(
        chain(Step("OneHotEncoder"), Step("MinMaxScaler", "a(1)_x")), ("a[1]",), None, "rows.csv"
    )
    assert made == []


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
    assert refused(Step("LabelEncoder", "plan")) == ["LabelEncoder: `plan` is not the label (`y`)"]
    assert (
        refused(
            Step("LabelEncoder"),
            Step("LabelEncoder", "y"),
            Step("LabelEncoder", None, {"label_column": "y"}),
        )
        == []
    )


OPTIONS = """\
preprocessor:
  - grid:
      - none
      - SimpleImputer: {columns: age, output_columns: {choice: [[one], [two]]}}
  - StandardScaler: {columns: {grid: [age, [one, two], three]}}
  - choice: [OneHotEncoder, "sklearn.preprocessing:PolynomialFeatures"]
  - MinMaxScaler: {columns: [plan_a, four]}
"""


def test_every_option_is_checked_and_columns_that_any_option_makes_count(space):
    body = "".join(f"  {line}\n" for line in OPTIONS.splitlines())
    loaded = space(space="\n" + body, limits="{max_trials: 99}")
    assert said(loaded) == [
        "space.yaml:10:58: preprocessor.1.StandardScaler.columns.grid.2: no column `three` in `rows.csv` or in the output "
        "of earlier steps; valid: age, one, plan, two"
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


NAMES = ("age", "plan", "made")
STEPS = st.one_of(
    st.builds(Step, st.just("StandardScaler"), st.sampled_from(NAMES)),
    st.builds(
        Step,
        st.just("SimpleImputer"),
        st.sampled_from(NAMES),
        st.just({"output_columns": ["made"]}),
    ),
    st.builds(Step, st.just("my_mod:f"), st.sampled_from(NAMES)),
)


@given(st.lists(STEPS, max_size=6))
def test_one_name_is_refused_exactly_before_anything_may_have_made_it(steps):
    may, expected = False, 0
    for step in steps:
        expected += step.columns == "made" and not may
        may = may or step.name != "StandardScaler"
    assert len(refused(*steps)) == expected


# ---- the data


@pytest.mark.parametrize("name", ["quickstart", "digits_mlp"])
def test_the_spaces_that_ship_pass(name):
    preflight.check_data(load(SPACES / f"{name}.yaml"))


def test_the_columns_of_toy_sets_are_scikit_learns():
    from sklearn import datasets

    assert set(sklearn_datasets.NAMES) == set(SKLEARN)
    for name in sklearn_datasets.NAMES:
        assert (*sklearn_datasets.feature_names(name), "target") == tuple(
            getattr(datasets, f"load_{name}")(as_frame=True).frame.columns
        )


@pytest.mark.parametrize("name", sklearn_datasets.NAMES)
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
        "space.yaml:3:21: objective.metric: `valid-mloglos` is not a metric of this trainer; did you mean `valid-mlogloss`?"
    ]
    preflight.check_data(space('{train: "sklearn:wine", label: alcohol, valid: 0.25}'))


def test_all_is_told_at_once_in_the_order_of_the_file(space):
    loaded = space(
        "{train: rows.csv, label: Y, valid: valdi.csv, drop: [id]}",
        "data.test=nowhere.parquet",
        space="{preprocessor: {StandardScaler: {columns: heigth}}}",
    )
    assert [line.split(": ")[1:3] for line in said(loaded)] == [
        ["data.label", "`rows.csv` has no column `Y`; did you mean `y`?"],
        ["data.valid", "`valdi.csv` does not exist"],
        ["data.drop", "`rows.csv` has no column `id`; valid"],
        ["preprocessor.StandardScaler.columns", "no column `heigth` in `rows.csv`; valid"],
        ["data.test", "`nowhere.parquet` does not exist"],
    ]


def test_many_columns_are_not_all_listed(space):
    assert said(space('{train: "sklearn:digits", label: klass, valid: 0.2}'))[0].endswith(
        "no column `klass`; it has pixel_0_0, pixel_0_1, pixel_0_2, pixel_0_3, pixel_0_4, pixel_0_5, pixel_0_6, pixel_0_7, "
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


def test_large_files_are_left_to_the_sweep(space, monkeypatch, tmp_path):
    (tmp_path / "one.csv").write_text(ROWS.replace("yes", "no"))
    one = space("{train: one.csv, label: y, valid: 0.2}")
    assert "one class" in said(one)[0]
    monkeypatch.setattr(preflight, "MAX_BYTES", 20)
    preflight.check_data(one)


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
    from sweeps.data.split import assign_splits

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
        except ValueError as e:
            assert said(loaded)[0].partition(": data.valid: ")[2] == str(e)
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
    (tmp_path / "long.csv").write_text(f"text,y\n{long},no\n{long * 1},yes\n")
    preflight.check_data(space("{train: long.csv, label: y, valid: 0.5}"))


@pytest.mark.parametrize(("columns", "size"), [(["y"], 1), (["x", "y"], 2)])
def test_weight_is_of_the_columns_in_parquet_and_of_the_file_in_csv(tmp_path, columns, size):
    frame = pd.DataFrame({"x": range(50_000), "y": range(50_000)})
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    weigh = lambda name: schema_probe.bytes_to_read(  # noqa: E731
        files.find_files(name, tmp_path, "data.train"), columns
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


def test_problems_that_are_found_later_get_their_place_too(space):
    loaded = space()
    error = preflight.locate_problems(
        loaded,
        [
            Problem("space.preprocessor", "it fails"),
            Problem("data.label", "it fails"),
            Problem("--address", "away"),
        ],
    )
    assert [str(p) for p in error.problems] == [
        "space.yaml:2:32: data.label: it fails",
        "space.yaml:5:65: space.preprocessor: it fails",
        "--address: away",
    ]


def test_it_imports_nothing_heavy(space, tmp_path):
    space()
    code = (
        "import sys; from sweeps.space import load; from sweeps.data.preflight import check_data; check_data(load('space.yaml'))\n"
        "print([m for m in 'ray torch mlflow pandas sklearn optuna xgboost'.split() if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_preflight_refuses_what_the_sweep_refuses(local_ray, tmp_path, monkeypatch):
    from sweeps.data.variants import DataVariants

    count = 0
    for i, case in enumerate(case for cases in rows.TABLE.values() for case in cases):
        if "space: " in case.shown:  # of steps: no business of the reader's
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


def test_rows_without_a_label_are_refused_or_left_out(space, tmp_path):
    (tmp_path / "holes.csv").write_text(ROWS.replace("0,a,no", "0,a,"))
    (found,) = said(space("{train: holes.csv, label: y, valid: 0.25}"))
    assert "data.label: " in found and "`data.drop_missing_label: true`" in found
    preflight.check_data(
        space("{train: holes.csv, label: y, valid: 0.25, drop_missing_label: true}")
    )
    (tmp_path / "holes.csv").write_text(ROWS.replace("no\n", "\n"))
    (found,) = said(space("{train: holes.csv, label: y, valid: 0.25, drop_missing_label: true}"))
    assert "data.label: " in found and "one class" in found
    (tmp_path / "holes.csv").write_text(ROWS.replace("no\n", "\n").replace("yes\n", "\n"))
    (found,) = said(space("{train: holes.csv, label: y, valid: 0.25, drop_missing_label: true}"))
    assert "data.label: " in found and "no value in data.train" in found
