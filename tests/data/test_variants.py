"""Data variants: how they differ, what they share, and when they cannot be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from sweeps.data.load_request import LoadRequest
from sweeps.data.splits.variants import DataVariants, variant_name
from sweeps.space import DataSpec, Split

HALF = Split("fraction", fraction=0.5)


def spec(train: str = "sklearn:iris", base: Path = Path(), **changes: Any) -> DataSpec:
    return DataSpec(
        **{
            "train": train,
            "label": "target",
            "valid": HALF,
            "test": None,
            "task": None,
            "base": base,
            **changes,
        }
    )


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.999])
def test_a_part_of_the_rows_is_of_the_train_split_alone(share: float) -> None:
    variants = DataVariants(
        spec(test=Split("fraction", fraction=0.1)),
        [spec(test=Split("fraction", fraction=0.1))],
        3,
        ("rows",),
    )
    whole, part = variants.splits({"rows": 1.0}), variants.splits({"rows": share})
    assert part.valid is not None and part.test is not None
    assert part.valid.equals(whole.valid) and part.test.equals(whole.test)
    assert part.train.num_rows == max(3, round(share * whole.train.num_rows))
    assert set(map(tuple, part.train.to_pandas().to_numpy())) <= set(
        map(tuple, whole.train.to_pandas().to_numpy())
    )
    shares = part.train.column("target").to_pandas().value_counts(normalize=True)
    assert len(shares) == 3 and abs(shares - 1 / 3).max() <= 1 / part.train.num_rows, (
        "each class keeps its share"
    )
    assert part.train.equals(variants.splits({"rows": share}).train), "the same rows for all trials"
    assert not part.train.equals(
        DataVariants(spec(), [spec()], 4, ("rows",)).splits({"rows": share}).train
    )


def test_a_rare_class_is_kept() -> None:
    frame = pd.DataFrame({"x": range(200), "y": ["rare"] * 2 + ["b"] * 198})
    import sys
    import types

    sys.modules["rare_rows"] = module = types.ModuleType("rare_rows")
    vars(module)["load"] = lambda: frame
    try:
        splits = load_splits(spec("rare_rows:load", label="y", rows=0.05))
    finally:
        del sys.modules["rare_rows"]
    assert (splits.train.num_rows, sorted(splits.train.column("y").unique().to_pylist())) == (
        5,
        [0, 1],
    )


def test_dropped_columns_are_gone_from_every_split() -> None:
    asked = [spec(drop=()), spec(drop=("petal length (cm)",))]
    variants = DataVariants(spec(), asked, 0, ("drop",))
    whole, less = variants.splits({"drop": ()}), variants.splits({"drop": ("petal length (cm)",)})
    assert set(whole.features) - set(less.features) == {"petal length (cm)"}
    assert (
        set(less.train.column_names) == set(less.valid.column_names) == {*less.features, "target"}
    )
    fixed = load_splits(asked[1])
    assert fixed.train.equals(less.train) and fixed.valid.equals(less.valid)


def test_a_fingerprint_is_of_the_variant() -> None:
    variants = [spec(drop=()), spec(drop=("petal length (cm)",))]
    data_variants = DataVariants(spec(), variants, 0, ("drop", "rows"))
    datas = [{"drop": d, "rows": r} for d in ((), ("petal length (cm)",)) for r in (0.5, 1.0)]
    prints = [data_variants.fingerprint_of(data) for data in datas]
    assert len(set(prints)) == 4 and prints == [
        data_variants.splits(data).fingerprint for data in datas
    ]
    assert data_variants.fingerprint not in prints, "of the sweep it covers all"
    assert (
        data_variants.fingerprint_of({"drop": (), "rows": 1.0}) == load_splits(spec()).fingerprint
    ), "the whole is what it is without variants"
    assert (
        data_variants.fingerprint_of(
            {"drop": ("petal length (cm)", "petal length (cm)"), "rows": 0.5}
        )
        == prints[2]
    )
    assert DataVariants(spec(), [spec()], 0).fingerprint == load_splits(spec()).fingerprint
    assert len({variant_name(data) for data in datas}) == 4 and variant_name({}) == ""


def files(tmp_path: Path, **frames: pd.DataFrame) -> None:
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)


def test_column_of_one_source_cannot_be_dropped_from_the_other() -> None:
    asked = [spec(drop=()), spec(drop=("petal width",))]
    with pytest.raises(
        InputError,
        match=r"data.drop: `sklearn:iris` has no column `petal width`; did you mean `petal width "
        r"\(cm\)`",
    ):
        DataVariants(spec(), asked, 0, ("drop",))


def request(spec: DataSpec, before: str | None = None) -> LoadRequest:
    return LoadRequest(spec, 0, (spec,), earlier_fingerprint=before)


def new_actor(folder: Path, *workers: int, **config: Any) -> Any:
    """Return a data actor in this process."""
    from sweeps.data.data_actor import DataActorConfig, _DataActor

    return _DataActor(DataActorConfig((), folder, workers, **config))


@pytest.mark.integration
@pytest.mark.timeout(90)
def test_data_actor_fits_chain_once_per_variant(local_ray: Any, tmp_path: Path) -> None:
    from sweeps.data.prepared_store import PreparedStore
    from sweeps.space import Step

    rows = pd.DataFrame({"x": np.arange(40.0), "z": np.arange(40) % 7, "y": ["no", "yes"] * 20})
    files(tmp_path, a=rows, b=rows.assign(x=rows.x * 100))
    base = spec(
        "a.csv",
        tmp_path,
        label="y",
        valid=Split("fraction", fraction=0.25),
        test=Split("fraction", fraction=0.25),
    )
    variants = [
        spec(f"{n}.csv", tmp_path, label="y", valid=base.valid, test=base.test, drop=d)
        for n in "ab"
        for d in ((), ("z",))
    ]
    data_actor, scaled = new_actor(tmp_path, 1), (Step("StandardScaler"),)
    facts = data_actor.load(LoadRequest(base, 0, variants, ("train", "drop", "rows")))
    assert facts.classes == ("no", "yes") and facts.rows == {"train": 20, "valid": 10, "test": 10}
    datas = [
        {"train": f"{n}.csv", "drop": d, "rows": r}
        for n in "ab"
        for d in ((), ("z",))
        for r in (0.5, 1.0)
    ]
    prepared = [data_actor.prepare(scaled, data) for data in datas + datas]
    assert (
        data_actor.fitter.store.count_chains() == len({one.key for one in prepared}) == len(datas)
    )
    data_actor.prepare((), datas[0])
    assert data_actor.fitter.store.count_chains() == len(datas), "without a step nothing is fitted"
    store = PreparedStore(tmp_path)
    for data in datas:
        own = store.load_info(data)
        assert (
            own.features == (("x",) if data["drop"] else ("x", "z"))
            and own.rows["train"] == 20 * data["rows"]
        )
        test = store.load_test(data)
        assert test is not None
        frame, labels = test
        assert list(frame) == list(own.features) and len(frame) == len(labels) == 10
        assert frame.x.max() > 40 if data["train"] == "b.csv" else frame.x.max() < 40
        assert store.load_chain(scaled, data).columns_in == own.features


@pytest.mark.integration
@pytest.mark.timeout(90)
def test_of_data_that_has_changed_nothing_is_kept(local_ray: Any, tmp_path: Path) -> None:

    rows = pd.DataFrame({"x": np.arange(40.0), "y": ["no", "yes"] * 20})
    files(tmp_path, a=rows)
    asked = spec(
        "a.csv",
        tmp_path,
        label="y",
        valid=Split("fraction", fraction=0.25),
        test=Split("fraction", fraction=0.25),
    )
    before = new_actor(tmp_path, 1).load(request(asked)).fingerprint
    store = {path.name: path.read_bytes() for path in (tmp_path / "prepared").iterdir()}
    files(tmp_path, a=rows.assign(x=rows.x + 1))
    with pytest.raises(
        InputError,
        match=r"data.train: the data has changed since the sweep began: its fingerprint was "
        rf"{before[:12]}",
    ):
        new_actor(tmp_path, 1).load(request(asked, before=before))
    assert {path.name: path.read_bytes() for path in (tmp_path / "prepared").iterdir()} == store


@pytest.mark.integration
@pytest.mark.timeout(90)
def test_a_chain_that_leaves_text_is_refused_before_a_trial_fails_of_it(
    local_ray: Any, tmp_path: Path
) -> None:
    import ray

    from sweeps.space import Step
    from sweeps.space.sections.trainer_definition import TrainerDefinition

    files(
        tmp_path,
        a=pd.DataFrame(
            {"x": np.arange(40.0), "plan": ["basic", "pro"] * 20, "y": ["no", "yes"] * 20}
        ),
    )
    asked = spec("a.csv", tmp_path, label="y", valid=Split("fraction", fraction=0.25))
    numeric = TrainerDefinition(reads_numbers=True)
    data_actor = new_actor(tmp_path, 1, trainers={"": numeric})
    data_actor.load(request(asked))
    with pytest.raises(
        InputError,
        match=r"`plan` is text, which the trainer cannot read, .* add an encoder, .* or add it to "
        r"data.drop",
    ):
        data_actor.prepare((Step("StandardScaler"),))
    with pytest.raises(
        InputError,
        match=r"`plan` is of the type category, which the trainer cannot read, .* add an encoder",
    ):
        data_actor.prepare((Step("Categorizer"),))
    assert data_actor.prepare((Step("StandardScaler"), Step("OneHotEncoder"))).key
    categories = replace(numeric, reads_categories=True)
    reader = new_actor(tmp_path, 1, 2, trainers={"": categories})
    reader.load(request(asked))
    prepared = reader.prepare((Step("Categorizer"),))
    for part in prepared.shards[2]["train"]:
        plan = ray.get(part).to_pandas()["plan"]
        assert plan.dtype == pd.CategoricalDtype(["basic", "pro"]) and len(plan) == 15
    both = new_actor(tmp_path, 1, trainers={"numbers": numeric, "categories": categories})
    both.load(request(asked))
    unread = both.prepare((Step("Categorizer"),)).unread
    assert list(unread) == ["numbers"]
    assert "`plan` is of the type category, which the trainer cannot read" in unread["numbers"]
    assert both.prepare((Step("OneHotEncoder"),)).unread == {}
    no_features = new_actor(tmp_path, 1, trainers={"": numeric})
    no_features.load(request(replace(asked, drop=("x", "plan"))))
    with pytest.raises(InputError, match="no column is left for the model to read"):
        no_features.prepare(())
    any_loop = new_actor(tmp_path, 1)
    any_loop.load(request(asked))
    assert any_loop.prepare((Step("StandardScaler"),)).key, "a loop of the user's own may read text"


@pytest.mark.integration
@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", ["dataset", "frame"])
def test_arrays_reach_a_loop_as_tensors_and_a_model_as_arrays(
    local_ray: Any, tmp_path: Path, kind: str
) -> None:
    import ray

    from sweeps.bundle.schema import infer_schema
    from sweeps.data.prepared_store import PreparedStore
    from sweeps.space import Step

    data_actor, third = new_actor(tmp_path, 2), Split("fraction", fraction=1 / 3)
    asked = spec(
        "tests.user_loops:images",
        args={"kind": kind},
        label="bright",
        valid=third,
        test=third,
        drop=(),
    )
    facts = data_actor.load(request(asked))
    assert [(c.name, c.type, c.shape) for c in infer_schema(facts.check)] == [
        ("image", "tensor", [4, 5]),
        ("width", "integer", None),
    ]
    for chain in ((), (Step("StandardScaler"),)):
        prepared = data_actor.prepare(chain)
        for shard in (*prepared.shards[2]["train"], *prepared.shards[2]["valid"]):
            (batch,) = ray.get(shard).iter_batches(batch_size=None, batch_format="numpy")
            assert batch["image"].shape[1:] == (4, 5) and batch["image"].dtype == "float32"
        fitted = PreparedStore(tmp_path).load_chain(chain)
        test = PreparedStore(tmp_path).load_test()
        assert test is not None
        rows = (
            ray.get(prepared.check),
            fitted.transform(facts.check),
            fitted.transform(test[0]),
        )
        assert all(
            type(cell) is np.ndarray and cell.shape == (4, 5)
            for frame in rows
            for cell in frame["image"]
        )


@pytest.mark.integration
@pytest.mark.timeout(90)
@pytest.mark.parametrize("chain", [(), ("StandardScaler",)], ids=["unchanged", "scaled"])
def test_a_large_table_reaches_workers_with_the_same_values(
    local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chain: Any
) -> None:
    import ray

    from sweeps.data import chain_fitter
    from sweeps.space import Step

    rng = np.random.default_rng(0)
    numbers = {
        "x": rng.normal(size=90),
        "narrow": rng.normal(size=90).astype("float32"),
        "n": rng.integers(0, 5, 90),
    }
    rows = pd.DataFrame(
        {
            **numbers,
            "hole": np.where(rng.random(90) < 0.1, np.nan, 1.5),
            "text": ["a", "b", None] * 30,
            "y": [0, 1] * 45,
        }
    )
    rows.to_parquet(tmp_path / "a.parquet")
    asked = spec("a.parquet", tmp_path, label="y", valid=Split("fraction", fraction=1 / 3))
    frames = []
    for limit in (chain_fitter.LARGE_TABLE, 0):
        monkeypatch.setattr(chain_fitter, "LARGE_TABLE", limit)
        actor = new_actor(tmp_path / str(limit), 1, 2)
        (tmp_path / str(limit)).mkdir()
        actor.load(request(asked))
        prepared = actor.prepare(tuple(map(Step, chain)))
        shards = (
            *prepared.shards[1]["train"],
            *prepared.shards[2]["train"],
            *prepared.shards[1]["valid"],
        )
        frames.append([ray.get(shard).to_pandas() for shard in shards])
    for small, large in zip(*frames, strict=True):
        pd.testing.assert_frame_equal(small, large, check_exact=True)


@pytest.mark.integration
@pytest.mark.timeout(90)
def test_raw_rows_are_dropped_if_all_trials_have_the_same_data(
    local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.data import chain_fitter
    from sweeps.space import Step

    monkeypatch.setattr(chain_fitter, "LARGE_TABLE", 1)

    files(tmp_path, a=pd.DataFrame({"x": np.arange(40.0), "y": ["no", "yes"] * 20}))
    asked = spec("a.csv", tmp_path, label="y", valid=Split("fraction", fraction=0.25))
    actor, scaled = new_actor(tmp_path, 1, once=True), (Step("StandardScaler"),)
    facts = actor.load(request(asked))
    assert not actor.runs_tasks()
    prepared = actor.prepare(scaled)
    reload = request(asked, before=facts.fingerprint)
    assert (
        actor.variants is None
        and actor.prepare(scaled, {}, reload) is prepared
        and actor.variants is None
    )
    assert actor.runs_tasks() and actor.prepare((), {}, reload).key != prepared.key, (
        "another chain reads the rows again"
    )
