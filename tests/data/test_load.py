"""Load a `data` section into three splits: sources, labels, and one line for each error."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sweeps.core.errors import InputError
from sweeps.core.label_columns import GROUP_COLUMN
from sweeps.data.load_data import _distribute, load_splits
from sweeps.data.sources import sources
from sweeps.data.sources.data_files import Source
from sweeps.data.splits.split_tables import fold_of
from sweeps.space import load
from sweeps.space.sections.data_models import DataSpec, Split
from tests.data.test_split import rule

HALF = rule("fraction", fraction=0.5)


def spec(
    train: Any,
    base: Any = Path(),
    label: Any = None,
    valid: Any = HALF,
    test: Any = None,
    task: Any = None,
    drop: Any = (),
) -> Any:
    return DataSpec(str(train), label, valid, test, task, Path(base), drop)


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_splits(spec(*args, **kwargs))
    assert all("\n" not in p.text for p in caught.value.problems)
    return str(caught.value)


def frame_of(module: Any, tmp_path: Path, code: Any, **kwargs: Any) -> Any:
    return load_splits(
        spec(module(f"def load():\n    return pd.DataFrame({code})"), tmp_path, **kwargs)
    )


def test_a_toy_set_is_stratified_and_reproducible() -> None:
    asked = spec(
        "sklearn:breast_cancer",
        label="target",
        valid=rule("fraction", fraction=0.2),
        test=rule("fraction", fraction=0.1),
    )
    one, two = load_splits(asked, seed=3), load_splits(asked, seed=3)
    assert (one.task, one.classes, len(one.features)) == ("binary", (0, 1), 30)
    assert "mean radius" in one.features
    assert one.valid is not None and one.test is not None
    assert [t.num_rows for t in (one.train, one.valid, one.test)] == [398, 114, 57]
    shares = [pc.mean(t.column("target")).as_py() for t in (one.train, one.valid, one.test)]
    assert max(shares) - min(shares) < 0.01
    assert one.fingerprint == two.fingerprint != load_splits(asked, seed=4).fingerprint
    assert one.train.equals(two.train)


@pytest.mark.parametrize(
    ("values", "asked", "task", "classes"),
    [
        (["no", "yes", "no", "yes"], None, "binary", ("no", "yes")),
        (["b", "a", "c", "a"], None, "multiclass", ("a", "b", "c")),
        ([True, False, True, False], None, "binary", (False, True)),
        ([3, 7, 3, 7], None, "binary", (3, 7)),
        ([3, 7, 9, 7], None, "multiclass", (3, 7, 9)),
        ([0.0, 1.0, 1.0, 0.0], None, "binary", (0.0, 1.0)),
        ([0.0, 2.0, 1.0, 0.0], None, "regression", None),
        (list(range(21)), None, "regression", None),
        (list(range(21)), "multiclass", "multiclass", tuple(range(21))),
        ([0, 1, 1, 0], "regression", "regression", None),
    ],
)
def test_the_task_follows_from_the_label(
    module: Any, tmp_path: Path, values: Any, asked: str | None, task: str, classes: Any
) -> None:
    many = values * 4
    splits = frame_of(
        module, tmp_path, f"{{'x': range({len(many)}), 'y': {many!r}}}", label="y", task=asked
    )
    assert (splits.task, splits.classes) == (task, classes)
    assert str(splits.train.schema.field("y").type) == ("double" if classes is None else "int64")
    whole = pa.concat_tables([splits.train, splits.valid]).sort_by("x").column("y").to_pylist()
    assert (whole if classes is None else [classes[code] for code in whole]) == many


def test_dropped_columns_are_not_features(module: Any, tmp_path: Path) -> None:
    rows = "{'id': range(8), 'x': range(8), 'y': [0, 1] * 4}"
    assert frame_of(module, tmp_path, rows, label="y", drop=("id",)).features == ("x",)
    text = re.escape("no column `idd`; did you mean `id`?")
    with pytest.raises(InputError, match=f"data.drop: .*{text}"):
        frame_of(module, tmp_path, rows, label="y", drop=("idd",))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def load():\n    raise KeyError('gone')", "`rows_module:load` failed: KeyError: 'gone'"),
        ("def load():\n    return [1, 2]", "returned list, but must return a pandas DataFrame"),
        ("load = 3", "has the type int, but must be a function"),
        ("def laod(): pass", "`rows_module` has no `load`; the module defines: laod"),
        ("def load():\n    return pd.DataFrame({'a': []})", "has no rows"),
        ("def load():\n    return pd.DataFrame()", "has no columns"),
        ("def load():\n    return pa.table([[1], [2]], names=['a', 'a'])", "two columns named `a`"),
    ],
)
def test_functions_that_fail(module: Any, tmp_path: Path, code: str, text: str) -> None:
    assert text in refused(module(code), tmp_path)


def test_the_rows_of_train_are_distributed_one_column_at_a_time() -> None:
    table = pa.table(
        {
            "a": pa.chunked_array([[1, 2], [3, None, 5]]),
            "b": ["v", "w", "x", "y", "z"],
            "c": [[1], [], [2], None, [3]],
        }
    )
    rows = {"train": pa.array([4, 0, 2]), "valid": pa.array([1]), "test": pa.array([3])}
    parts = {"train": table}
    assert (
        _distribute(parts, rows) == {key: table.take(indices) for key, indices in rows.items()}
        and parts == {}
    )


def test_local_parquet_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"a": range(8), "c": pd.Categorical(list("xyzwxyzw")), "y": [0, 1] * 4},
        index=range(8, 0, -1),
    )
    frame.iloc[:5].to_parquet(tmp_path / "1.parquet", row_group_size=2)
    frame.iloc[5:].to_parquet(tmp_path / "2.pq")
    read = sources.read_source(Source("*.p*q*", tmp_path, "data.train"))
    assert read.column_names == ["a", "c", "y"] and read.to_pydict() == frame.to_dict("list")


def test_tensors_in_parquet_files_keep_their_type(tmp_path: Path) -> None:
    from ray.data.extensions import TensorArray

    tensors = TensorArray(np.zeros((4, 3, 2)))
    table = pa.Table.from_pandas(pd.DataFrame({"x": tensors, "y": [0, 1, 0, 1]}))
    pq.write_table(table, tmp_path / "rows.parquet")
    read = sources.read_source(Source("rows.parquet", tmp_path, "data.train"))
    assert isinstance(read.schema.field("x").type, pa.BaseExtensionType)


def test_train_rows_of_one_class_are_refused(module: Any, tmp_path: Path) -> None:
    source = module("def load():\n    return pd.DataFrame({'x': range(4), 'y': list('aabb')})")
    valid = rule("time", column="x", fraction=0.5)
    text = refused(source, tmp_path, label="y", valid=valid)
    assert "the train split has only one class of `y`, 'a'" in text


class TestFiles:
    def rows(self, splits: Any) -> Any:
        return pa.concat_tables([splits.train, splits.valid]).to_pandas()

    def test_csv_is_typed_as_pandas_types_it(self, tmp_path: Path) -> None:
        text = (
            'id,n,f,blank,flag,text,void\n1,1,1.5,,true,"a\n'
            'b",\n2,,2, 3,false,null,\n3,7,1e3,4,True,007,\n'
        )
        (tmp_path / "rows.csv").write_text(text)
        (tmp_path / "zipped.csv.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / "tabs.tsv").write_text(text.replace(",", "\t"))
        expected = pd.read_csv(tmp_path / "rows.csv")
        for name in ("rows.csv", "zipped.csv.gz", "tabs.tsv", f"file://{tmp_path}/rows.csv"):
            pd.testing.assert_frame_equal(
                self.rows(load_splits(spec(name, tmp_path))).sort_values("id", ignore_index=True),
                expected,
            )

    def test_types_do_not_depend_on_the_first_rows(self, tmp_path: Path) -> None:
        (tmp_path / "1.csv").write_text("a,b,c\n1,,x\n2,,y\n")
        (tmp_path / "2.csv").write_text("c,a,b\nz,0.5,late\n")
        rows = self.rows(load_splits(spec("*.csv", tmp_path)))
        assert sorted(rows["a"]) == [0.5, 1, 2] and rows["b"].dropna().tolist() == ["late"]

    def test_an_index_without_a_name_is_called_as_in_pandas(self, tmp_path: Path) -> None:
        pd.DataFrame({"a": [1, 2]}).to_csv(tmp_path / "rows.csv")
        assert load_splits(spec("rows.csv", tmp_path)).features == ("Unnamed: 0", "a")

    def test_parquet_files_globs_folders_and_uris_have_one_fingerprint(
        self, tmp_path: Path
    ) -> None:
        frame = pd.DataFrame({"a": range(40), "c": list("xyzw") * 10, "y": [0, 1] * 20})
        (tmp_path / "many").mkdir()
        frame.to_parquet(tmp_path / "one.parquet")
        for i in range(4):
            frame.iloc[i * 10 : i * 10 + 10].to_parquet(tmp_path / "many" / f"{i}.parquet")
        sources = [
            "one.parquet",
            "many",
            "many/*.parquet",
            f"file://{tmp_path}/many",
            f"file://{tmp_path}/many/*.parquet",
        ]
        assert len({load_splits(spec(s, tmp_path, label="y")).fingerprint for s in sources}) == 1

    def test_parquet_that_drifts_from_integers_to_floats(self, tmp_path: Path) -> None:
        pd.DataFrame({"a": [1, 2], "fee": [None, None]}).to_parquet(tmp_path / "1.parquet")
        pd.DataFrame({"a": [1.5, None], "fee": [2.5, 1.0]}).to_parquet(tmp_path / "2.parquet")
        rows = self.rows(load_splits(spec("*.parquet", tmp_path)))
        assert rows.dtypes.astype(str).tolist() == ["float64", "float64"] and rows["a"].sum() == 4.5

    def test_hive_folders_give_their_column(self, tmp_path: Path) -> None:
        for year in (2019, 2020):
            (tmp_path / "d" / f"year={year}").mkdir(parents=True)
            pd.DataFrame({"a": [1, 2]}).to_parquet(tmp_path / "d" / f"year={year}" / "x.parquet")
        assert sorted(self.rows(load_splits(spec("d", tmp_path)))["year"].astype(int)) == [
            2019,
            2019,
            2020,
            2020,
        ]

    def test_a_broken_row_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("a,b\n1,2\n1,2,3\n")
        assert "line 3 has 3 values, but there are 2 names" in refused("rows.csv", tmp_path)

    def test_valid_and_test_from_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "train.csv").write_text("a,c,y\n1,u,no\n2,v,yes\n3,,no\n4,u,yes\n")
        (tmp_path / "valid.csv").write_text("y,c,a\nyes,,1.5\nno,,2\n")
        (tmp_path / "odd.csv").write_text("y,cc,a\nyes,u,1\n")
        (tmp_path / "typed.csv").write_text("y,c,a\nyes,u,many\n")
        path = rule("path", path="valid.csv")
        splits = load_splits(
            spec("train.csv", tmp_path, label="y", valid=path, test=rule("fraction", fraction=0.25))
        )
        assert splits.valid is not None and splits.test is not None
        assert [t.num_rows for t in (splits.train, splits.valid, splits.test)] == [3, 2, 1]
        assert splits.train.schema == splits.valid.schema == splits.test.schema
        assert splits.valid.column("y").to_pylist() == [1, 0] and splits.valid.column(
            "a"
        ).to_pylist() == [1.5, 2.0]
        assert "missing `c`; extra `cc`" in refused(
            "train.csv", tmp_path, label="y", valid=rule("path", path="odd.csv")
        )
        text = refused("train.csv", tmp_path, label="y", valid=rule("path", path="typed.csv"))
        assert "data.valid: column `a` holds text in data.valid, but int64 in data.train" in text

    def test_a_column_that_names_the_split_is_no_feature(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("a,part,y\n1,train,0\n2,train,1\n3,valid,0\n4,test,1\n")
        by = {key: rule("column", column="part", value=key) for key in ("valid", "test")}
        splits = load_splits(spec("rows.csv", tmp_path, label="y", **by))
        assert splits.features == ("a",) and splits.train.column_names == ["a", "y"]
        assert splits.valid is not None and splits.test is not None
        assert [t.column("a").to_pylist() for t in (splits.train, splits.valid, splits.test)] == [
            [1, 2],
            [3],
            [4],
        ]

    @pytest.mark.integration
    @pytest.mark.timeout(120)
    def test_a_ray_dataset_from_a_function(
        self, local_ray: Any, module: Any, tmp_path: Path
    ) -> None:
        source = module("def load():\n    import ray\n    return ray.data.range(20)")
        assert sorted(self.rows(load_splits(spec(source, tmp_path)))["id"]) == list(range(20))


def test_a_function_takes_arguments_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_rows.py").write_text(
        "import pandas as pd\n"
        "def rows(n, of='a', **more):\n"
        "    return pd.DataFrame({'x': range(n), 'y': [of, *sorted(more)] * (n // (1 + "
        "len(more)))})\n"
    )
    (tmp_path / "space.yaml").write_text(
        "trainer: xgboost\nobjective: {metric: valid-logloss, goal: minimize}\n"
        "limits: {max_trials: 1}\nspace: {params: {}}\n"
        'data: {train: {"own_rows:rows": {n: 40, of: c, d: 1}}, label: y, valid: '
        '{"own_rows:rows": {n: 20, of: c, d: 2}}}\n'
    )
    spec = load(tmp_path / "space.yaml").data
    assert (spec.train, spec.args) == ("own_rows:rows", {"n": 40, "of": "c", "d": 1})
    splits = load_splits(spec)
    assert (splits.train.num_rows, splits.valid.num_rows, splits.classes) == (40, 20, ("c", "d"))
    for args, said in (
        ("{m: 1}", "TypeError"),
        ("{n: {grid: [1, 2]}}", "cannot be tuned"),
        ("{a-b: 1}", "must be a Python identifier"),
    ):
        with pytest.raises(InputError, match=said):
            load_splits(
                load(tmp_path / "space.yaml", [f'data.train={{"own_rows:rows": {args}}}']).data
            )


RULES = (
    Split("group", column="q", fraction=0.25),
    Split("time", column="day", fraction=0.25),
    Split("folds", column="q", folds=3),
    Split("rolling", column="day", folds=3),
)


@pytest.mark.parametrize("valid", RULES, ids=lambda rule: rule.kind)
@pytest.mark.parametrize("queries", [True, False])
@pytest.mark.parametrize("rows", [1.0, 0.5])
def test_splits_keep_groups_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, valid: Any, queries: bool, rows: float
) -> None:
    rng = np.random.default_rng(4)
    count = 240
    frame = pd.DataFrame(
        {
            "q": rng.permutation(np.repeat(np.arange(40), 6)),
            "day": rng.integers(0, 60, count),
            "x": np.arange(count),
            "y": rng.normal(size=count),
        }
    )
    monkeypatch.setattr("sweeps.data.load_data.read_source", lambda *_: pa.Table.from_pandas(frame))
    spec = DataSpec(
        "d.csv", "y", valid, None, None, tmp_path, group="q", queries=queries, rows=rows
    )
    splits = load_splits(spec, 3)
    assert splits.features == ("day", "x")
    parts = [fold_of(splits, i, rows, 3) for i in range(len(splits.folds))] or [splits]
    group = dict(zip(frame.x, frame.q, strict=True))
    for part in parts:
        groups = [
            [group[x] for x in table.column("x").to_pylist()] for table in (part.train, part.valid)
        ]
        assert groups[0] and groups[1] and not set(groups[0]) & set(groups[1])
        assert (pd.Series(groups[1]).value_counts() == 6).all()
        if queries:
            assert (pd.Series(groups[0]).value_counts() == 6).all(), (
                "also a sample has whole groups"
            )
            for table, own in zip((part.train, part.valid), groups, strict=True):
                numbers = table.column(GROUP_COLUMN).to_numpy()
                assert (np.diff(numbers) >= 0).all(), "the rows of a query follow each other"
                assert len(set(zip(numbers, own, strict=True))) == len(set(own))
        else:
            assert GROUP_COLUMN not in part.train.column_names
