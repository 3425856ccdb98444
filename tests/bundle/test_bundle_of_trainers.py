"""Bundles of our trainers with a fitted chain, for each task."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from bundle_parts import write_parts

import sweeps.trainers.torch_tabular
import sweeps.trainers.xgboost
from sweeps.bundle.bundle_model import load_bundle
from sweeps.data.preprocessing.fit import fit_chain
from sweeps.space import Step
from sweeps.testing.fake_session import FakeShard, run_loop, small_table

pytestmark = [pytest.mark.timeout(90), pytest.mark.integration]

SKLEARN = (
    Step("sklearn.impute:SimpleImputer", "numeric", {"strategy": "mean"}),
    Step("sklearn.preprocessing:PowerTransformer", "numeric", {}),
)
RAY = (
    Step("SimpleImputer", "numeric", {"strategy": "mean"}),
    Step("OneHotEncoder", "categorical", {}),
    Step("StandardScaler", "numeric", {}),
)


def rows(task: str) -> pd.DataFrame:
    """Raw rows with whole numbers, gaps and text."""
    rng = np.random.default_rng(3)
    n = 240
    frame = pd.DataFrame(
        {
            "rooms": rng.integers(1, 9, n),
            "area": rng.lognormal(3, 0.5, n),
            "town": rng.choice(["Lyon", "Nice", "Pau"], n),
        }
    )
    worth = 3.0 * frame["rooms"] + frame["area"] + (frame["town"] == "Nice") * 10
    frame.loc[::9, "area"] = np.nan
    frame["y"] = (
        worth * 1000
        if task == "regression"
        else np.digitize(worth, np.quantile(worth, [0.5] if task == "binary" else [0.3, 0.6]))
    )
    return frame


def trained(module: Any, params: Any, task: Any, steps: Any, folder: Any) -> Any:
    """Train on prepared rows, and return the arguments of `write_parts`."""
    raw = rows(task)
    if not any(step.name in ("OneHotEncoder", "Categorizer") for step in steps):
        raw = raw.drop(columns="town")
    fitted = fit_chain(steps, pa.Table.from_pandas(raw.iloc[:160]), "y")
    prepared = fitted.transform(raw)
    make, _ = small_table(task)
    shards = {"train": FakeShard(prepared.iloc[:160]), "valid": FakeShard(prepared.iloc[160:])}
    cur = make(check=prepared.drop(columns="y").iloc[160:192], _cached_objects={})
    run = run_loop(module.train_func, params, cur, shards, folder)
    checkpoint = run.checkpoints[len(run.metrics)]
    return {
        "checkpoint": checkpoint,
        "fitted": fitted,
        "load": f"{module.__name__}:load",
        "roots": (),
        "label": "y",
        "task": task,
        "classes": cur.classes,
        "raw": raw.drop(columns="y").iloc[160:192],
        "expected": np.load(checkpoint / "check.npy"),
        "training": {},
    }


@pytest.mark.parametrize(
    ("module", "params"),
    [
        (sweeps.trainers.xgboost, {"num_boost_round": 5}),
        (sweeps.trainers.torch_tabular, {"epochs": 3, "lr": 0.01}),
    ],
    ids=["xgboost", "torch"],
)
@pytest.mark.parametrize(
    "task",
    [
        pytest.param("binary", marks=pytest.mark.long),
        "multiclass",
        pytest.param("regression", marks=pytest.mark.extended),
    ],
)
def test_a_trained_model_leaves_as_a_bundle(
    module: Any, params: Any, task: str, checked_in_this_process: Any, tmp_path: Path
) -> None:
    kept = trained(module, params, task, SKLEARN, tmp_path)
    bundle = load_bundle(write_parts(tmp_path / "out" / "bundle", **kept))
    np.testing.assert_array_equal(bundle.model_output(kept["raw"]), kept["expected"])
    predicted = bundle.predict(kept["raw"])
    names = {r.split("==")[0] for r in bundle.manifest.requirements}
    assert "scikit-learn" in names and "ray[data]" not in names
    assert names & {"xgboost", "torch"} == {module.__name__.split(".")[-1].split("_")[0]}
    if task == "regression":
        assert list(predicted.columns) == ["prediction"] and predicted["prediction"].mean() > 1000
    else:
        classes = {"binary": ["no", "yes"], "multiclass": ["a", "b", "c"]}[task]
        assert list(predicted.columns) == ["prediction", *(f"probability_{c}" for c in classes)]
        assert predicted["prediction"].tolist() == [
            classes[i] for i in predicted.iloc[:, 1:].to_numpy().argmax(axis=1)
        ]


@pytest.mark.integration
def test_a_chain_of_rays_preprocessors(
    local_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    kept = trained(sweeps.trainers.xgboost, {"num_boost_round": 5}, "binary", RAY, tmp_path)
    bundle = load_bundle(write_parts(tmp_path / "out" / "bundle", **kept))
    assert not {"ray[data]", "scikit-learn"} & {
        r.split("==")[0] for r in bundle.manifest.requirements
    }
    assert bundle.manifest.pickled == {}
    odd = kept["raw"].assign(town="Atlantis", rooms=np.nan)
    assert bundle.predict(odd)["probability_yes"].notna().all()


def test_a_bundle_with_categories_needs_no_ray(
    checked_in_this_process: Any, tmp_path: Path
) -> None:
    steps = (Step("Categorizer", ("town", "rooms"), {}),)
    kept = trained(sweeps.trainers.xgboost, {"num_boost_round": 5}, "binary", steps, tmp_path)
    bundle = load_bundle(write_parts(tmp_path / "out" / "bundle", **kept))
    assert not [r for r in bundle.manifest.requirements if r.startswith("ray")]
    assert bundle.manifest.pickled == {}
    odd = kept["raw"].assign(town="Atlantis", rooms=np.nan)
    missing = kept["raw"].assign(town=None, rooms=99)
    pd.testing.assert_frame_equal(bundle.predict(odd), bundle.predict(missing))
    bundle.count_unseen(odd)
    assert bundle.unseen_notes == [
        (
            f"{len(odd)} of {len(odd)} values of `town` were not in the training data; predicted "
            "as "
            "missing"
        )
    ]


TWO = """
import sys, mlflow.pyfunc, pandas as pd, numpy as np
for bundle in sys.argv[1:]:
    model = mlflow.pyfunc.load_model(bundle)
    out = model.predict(pd.read_parquet(bundle + "/data/sweep/check.parquet"))
    np.testing.assert_array_equal(out["probability_yes"], \
np.load(bundle + "/data/sweep/check.npy").reshape(len(out), -1)[:, -1])
assert sys.modules["sweeps"].__file__.startswith(sys.argv[1]) \
and "sweeps.trainers.torch_tabular" in sys.modules
assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized(), \
"a chain of Ray's preprocessors starts no Ray"
"""


@pytest.mark.extended
def test_bundles_of_all_kinds_load_without_sweeps(local_ray: Any, tmp_path: Path) -> None:
    """One process loads two bundles, such as a champion and a challenger.

    The first provides sweeps and trainers for both.
    """
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = trained(
        sweeps.trainers.xgboost, {"num_boost_round": 2}, "binary", SKLEARN, tmp_path / "a"
    )
    binning = "sklearn.preprocessing:KBinsDiscretizer"
    bins = (*RAY, Step(binning, ("rooms",), {"n_bins": 3, "encode": "ordinal"}))
    second = trained(sweeps.trainers.torch_tabular, {"epochs": 1}, "binary", bins, tmp_path / "b")
    bundles = [
        write_parts(tmp_path / name, **kept) for name, kept in (("one", first), ("two", second))
    ]
    assert load_bundle(bundles[1]).manifest.pickled, "a step that is a pickle"
    carried = [
        sorted(p.relative_to(b).as_posix() for p in (b / "code" / "_sweeps").rglob("*.py"))
        for b in bundles
    ]
    ours = {
        f"code/_sweeps/sweeps/trainers/{p.name}"
        for p in Path(sweeps.trainers.__path__[0]).glob("*.py")
    }
    assert carried[0] == carried[1] and ours <= set(carried[0])
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", TWO, *map(str, bundles)]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=80
    )
    assert done.returncode == 0, done.stderr
