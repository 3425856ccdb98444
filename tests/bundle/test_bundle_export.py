"""Write bundles: what they contain, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bundle_parts
import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest

from sweeps.bundle import check_process
from sweeps.bundle.bundle_model import load_bundle
from sweeps.bundle.manifest import GPU_TOLERANCE, Manifest
from sweeps.bundle.predict_rows import predict_file
from sweeps.bundle.write import copy_checkpoint
from sweeps.core.errors import BundleError, InputError
from sweeps.data.columns.column_values import InvalidColumnValue
from sweeps.exports import sweep_exports

pytestmark = [pytest.mark.timeout(60), pytest.mark.integration]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One bundle for all tests that only read it."""
    folder = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patch:
        kept = bundle_parts.ingredients(folder, patch, "shared")
        yield bundle_parts.write_parts(folder / "out" / "bundle", **kept), kept


def expected_frame(kept: Any) -> Any:
    p = kept["expected"]
    return pd.DataFrame(
        {
            "prediction": np.where(p > 0.5, "yes", "no"),
            "probability_no": 1 - p,
            "probability_yes": p,
        }
    )


def test_predictions_equal_those_of_training_with_and_without_mlflow(bundle: Any) -> None:
    path, kept = bundle
    for model in (load_bundle(path), mlflow.pyfunc.load_model(str(path))):
        pd.testing.assert_frame_equal(
            model.predict(kept["raw"]), expected_frame(kept), check_exact=True, check_dtype=False
        )
    np.testing.assert_array_equal(load_bundle(path).model_output(kept["raw"]), kept["expected"])


def test_a_readme_says_what_the_bundle_is(bundle: Any) -> None:
    path, kept = bundle
    text, manifest = (
        (path / "README.md").read_text(),
        json.loads((path / "manifest.json").read_text()),
    )
    assert (
        "README.md" in manifest["files"]
        and f"It was written with Python {manifest['python']}." in text
    )
    assert all(f"`{name}`" in text for name in [*kept["raw"].columns, *manifest["requirements"]])


def test_an_existing_export_is_reused_if_it_is_intact_and_of_the_same_kind(
    bundle: Any, tmp_path: Path
) -> None:
    path, _ = bundle
    again = tmp_path / "0001"
    shutil.copytree(path, again)
    training = load_bundle(again).manifest.training
    facts = {name: training.get(name) for name in ("best_step", "value")}
    assert sweep_exports.holds_export(again, facts)
    assert not sweep_exports.holds_export(again, facts | {"value": -1.0}), "it went on since"
    assert not sweep_exports.holds_export(again, facts | {"best_step": 7})
    (again / "MLmodel").write_text("changed")
    assert not sweep_exports.holds_export(again, facts) and not sweep_exports.holds_export(
        tmp_path / "none", facts
    )


def test_imported_code_is_used_if_it_equals_bundled_code(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = bundle
    other = tmp_path / "helper_shared.py"
    shutil.copy(path / "code" / "helper_shared.py", other)
    monkeypatch.setitem(sys.modules, "helper_shared", SimpleNamespace(__file__=str(other)))
    load_bundle(path)
    other.write_text(other.read_text() + "\n# another version\n")
    said = (
        r"code/helper_shared\.py cannot be used, because .* another module of the same name, .*; "
        r"load the bundle in a new process"
    )
    with pytest.raises(BundleError, match=said):
        load_bundle(path)


def test_the_manifest(bundle: Any) -> None:
    path, _ = bundle
    facts = load_bundle(path).manifest
    assert facts.training == {"sweep": "test", "params": {"eta": 0.1}, "value": 0.25, "path": "x"}
    assert facts.classes == ["no", "yes"] and facts.label == "sold" and facts.checked
    assert [(c.name, c.type) for c in facts.columns] == [
        ("rooms", "integer"),
        ("city", "string"),
        ("area", "double"),
        ("garden", "boolean"),
    ]
    files = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    assert set(facts.files) == files - {"manifest.json", "manifest.sha256"}
    assert facts.pickled == {"data/sweep/preprocessor-1.pkl": "prep_shared.Fitted"}


def test_ships_the_users_modules_and_those_they_import(bundle: Any) -> None:
    path, _ = bundle
    shipped = os.listdir(path / "code")
    assert set(shipped) == {
        "model_shared.py",
        "helper_shared.py",
        "prep_shared.py",
        "_sweeps",
        "sweeps_bundle.py",
        "__pycache__",
    }
    folder = path / "code" / "_sweeps" / "sweeps"
    ours = {p.relative_to(folder).as_posix() for p in folder.rglob("*.py")}
    assert {
        "bundle/bundle_model.py",
        "data/preprocessing/fitted_chain.py",
        "core/errors.py",
    } <= ours
    assert (
        not {
            "controller/session.py",
            "bundle/write.py",
            "data/preprocessing/fit.py",
            "cli/group.py",
        }
        & ours
    )
    requirements = (path / "requirements.txt").read_text().split()
    names = {r.split("==")[0] for r in requirements}
    assert {"mlflow", "pandas", "numpy", "pyarrow", "pydantic"} <= names
    assert not {"torch", "xgboost", "ray[data]", "scikit-learn"} & names


def test_mlflows_view(bundle: Any) -> None:
    path, _ = bundle
    model = mlflow.pyfunc.load_model(str(path))
    assert {str(t) for t in model.metadata.get_input_schema().input_types()} == {"Any"}
    assert model.metadata.get_output_schema().input_names() == [
        "prediction",
        "probability_no",
        "probability_yes",
    ]
    assert len(model.input_example) == 5
    odd = bundle_parts.raw().assign(rooms=[1, np.nan, 3, 4, 5, 6])
    for frame in (
        odd,
        bundle_parts.raw().assign(garden=[1, 0, 1, 0, 1, 1]),
        bundle_parts.raw().assign(city=range(6)),
    ):
        pd.testing.assert_frame_equal(model.predict(frame), load_bundle(path).predict(frame))


@pytest.mark.parametrize(
    ("printed", "speed"),
    [("", None), ("hello\nrows a second: 12.5\nbye\n", 12.5), ("bye\n", None)],
)
def test_the_check_finds_the_speed_among_other_lines(
    printed: str, speed: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(
        communicate=lambda *_, **__: (printed, ""), returncode=0, kill=lambda: None
    )
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: process)
    assert check_process.check(Path("bundle"), 1.0) == speed


def test_loads_anywhere_with_the_code_it_ships(bundle: Any, tmp_path: Path) -> None:
    path, kept = bundle
    kept["raw"].to_parquet(tmp_path / "raw.parquet")
    script = (
        "import sys, mlflow.pyfunc, pandas as pd\n"
        f"model = mlflow.pyfunc.load_model({str(path)!r})\n"
        "print(model.predict(pd.read_parquet('raw.parquet')).to_json())\n"
        f"assert sys.modules['sweeps'].__file__.startswith({str(path / 'code' / '_sweeps')!r})\n"
        "print([m for m in ('ray', 'torch', 'xgboost', 'optuna') if m in sys.modules])\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    predicted, loaded = done.stdout.strip().splitlines()[-2:]
    assert json.loads(predicted)["prediction"] == dict(
        zip("012345", expected_frame(kept)["prediction"], strict=True)
    )
    assert loaded == "[]"


@pytest.mark.parametrize("what", ["odd model", "no load", "no predict", "broken preprocessor"])
def test_a_bundle_that_is_not_right_is_not_written(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if what != "odd model":
        request.getfixturevalue("checked_in_this_process")
    kept = bundle_parts.ingredients(tmp_path, monkeypatch, "wrong" + what.replace(" ", ""))
    target = tmp_path / "out" / "bundle"
    module = kept["load"].split(":")[0]
    if what == "odd model":
        kept["expected"] = kept["expected"].copy()
        kept["expected"][3] = np.nextafter(kept["expected"][3], 1)
        message = (
            r"not written, because its check in a new process failed: the bundle's predictions "
            r"differ from the "
            r"predictions in training: DataFrame.*probability_"
        )
    elif what == "no load":
        kept["load"], message = f"{module}:lood", f"`{module}` has no `lood`"
    elif what == "no predict":
        kept["load"], message = (
            f"{module}:load_nothing",
            r"returned a int, which has no method predict\(DataFrame\)",
        )
    else:
        kept["fitted"].fitted_steps[0].estimator.cities = lambda city: 0
        message = "the fitted preprocessor cannot be pickled"
    with pytest.raises(BundleError, match=message):
        bundle_parts.write_parts(target, **kept)
    assert os.listdir(target.parent) == []


def test_a_second_export_replaces_the_first(
    checked_in_this_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = bundle_parts.ingredients(tmp_path, monkeypatch, "again")
    target = tmp_path / "out" / "bundle"
    bundle_parts.write_parts(target, **kept | {"expected": None})
    assert not load_bundle(target).manifest.checked
    kept["load"] = kept["load"].replace(":load", ":load_codes")
    kept["expected"] = (kept["expected"] > 0.5).astype(int)
    bundle_parts.write_parts(target, **kept | {"classes": (10, 20)})
    assert load_bundle(target).manifest.positive == 20
    assert load_bundle(target).predict(kept["raw"])["prediction"].tolist() == [
        10 + 10 * c for c in kept["expected"]
    ]
    assert os.listdir(target.parent) == ["bundle"]
    (target.parent / "mine").mkdir()
    with pytest.raises(
        BundleError, match="exists and is not a bundle, so sweeps does not replace it"
    ):
        bundle_parts.write_parts(target.parent / "mine", **kept)


def test_a_folder_that_is_not_a_bundle_is_named(bundle: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist"):
        load_bundle(tmp_path / "none")
    with pytest.raises(
        InputError, match=r"is not a bundle, because the folder has no manifest\.json"
    ):
        load_bundle(tmp_path)


def test_a_checkpoint_is_copied_whole(tmp_path: Path) -> None:
    source = tmp_path / "0007" / "checkpoint"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "model.bin").write_bytes(b"1")
    target = tmp_path / "out" / "checkpoint"
    assert copy_checkpoint(source, target) == target
    (source / "deep" / "model.bin").write_bytes(b"2")
    copy_checkpoint(source, target)
    assert (target / "deep" / "model.bin").read_bytes() == b"2"
    assert os.listdir(target.parent) == ["checkpoint"]
    with pytest.raises(BundleError, match="the checkpoint does not exist"):
        copy_checkpoint(tmp_path / "none", target)


IMAGES = """
import numpy as np

def load(folder):
    return Model()

class Model:
    def predict(self, frame):
        assert all(type(cell) is np.ndarray and cell.dtype == "uint8" for cell in frame["image"])
        return np.array([float(cell.sum()) for cell in frame["image"]])
"""


@pytest.mark.parametrize("shapes", ["equal", "different"])
def test_rows_with_arrays_are_stored_shown_and_predicted(
    shapes: str, checked_in_this_process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"images_{shapes}.py").write_text(IMAGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    kept = bundle_parts.ingredients(tmp_path, monkeypatch, f"images{shapes}")
    cells = [
        np.full((2, 2 + (shapes == "different") * (i % 2)), 40 * i, dtype="uint8") for i in range(6)
    ]
    raw = pd.DataFrame({"image": pd.Series(cells), "width": range(6)})
    expected = np.array([float(cell.sum()) for cell in cells])
    kept |= {
        "load": f"images_{shapes}:load",
        "fitted": None,
        "task": None,
        "classes": None,
        "label": None,
    }
    path = bundle_parts.write_parts(
        tmp_path / "out" / "bundle", **kept | {"raw": raw, "expected": expected}
    )
    model = mlflow.pyfunc.load_model(str(path))
    assert (
        load_bundle(path).predict(raw)["prediction"].tolist()
        == expected.tolist()
        == model.predict(raw)["prediction"].tolist()
    )
    assert model.predict(model.input_example)["prediction"].tolist() == expected[:5].tolist()
    checked = predict_file(path, path / "data" / "sweep" / "check.parquet")
    assert isinstance(checked, pd.DataFrame)
    assert checked["prediction"].tolist() == expected.tolist()
    with pytest.raises(InputError) as e:
        load_bundle(path).predict(raw.assign(image=3))
    problem = e.value.problems[0]
    assert isinstance(problem, InvalidColumnValue) and problem.column == "image"


@pytest.mark.parametrize(
    ("answer", "columns"),
    [
        ("np.arange(len(frame))", {"prediction": [0, 1]}),
        ("frame['word']", {"prediction": ["a", "b"]}),
        ("np.ones((len(frame), 2))", {"prediction_0": [1.0, 1.0], "prediction_1": [1.0, 1.0]}),
        ("frame.assign(more=frame['word'] * 2)", {"word": ["a", "b"], "more": ["aa", "bb"]}),
    ],
    ids=["numbers", "text", "columns", "frame"],
)
def test_a_model_whose_loop_read_its_own_data_gets_rows_unchanged(
    answer: str,
    columns: Any,
    checked_in_this_process: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tag = f"free{abs(hash(answer))}"
    text = (
        f"import numpy as np\nclass Model:\n    predict = staticmethod(lambda frame: {answer})\n"
        "def load(folder):\n    return Model()\n"
    )
    (tmp_path / f"model_{tag}.py").write_text(text)
    kept = bundle_parts.ingredients(tmp_path, monkeypatch, f"plain{tag}")
    nothing = {
        "load": f"model_{tag}:load",
        "fitted": None,
        "label": None,
        "task": None,
        "classes": None,
        "raw": None,
        "expected": None,
    }
    path = bundle_parts.write_parts(tmp_path / "out" / "bundle", **kept | nothing)
    rows = pd.DataFrame({"word": ["a", "b"]}, index=[3, 4])
    for model in (load_bundle(path), mlflow.pyfunc.load_model(str(path))):
        pd.testing.assert_frame_equal(
            model.predict(rows), pd.DataFrame(columns, index=[3, 4]), check_dtype=False
        )
    assert not list((path / "data").rglob("check.*")) and not (path / "input_example.json").exists()


def test_a_process_that_was_started_early_checks_one_bundle_and_ends(
    bundle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = bundle
    processes = []
    start = subprocess.Popen

    def record(*arguments: Any, **options: Any) -> Any:
        processes.append(start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", record)
    with check_process.started_early(["no_such_package"]):
        speed = check_process.check(path, 60.0)
        assert speed is not None and speed > 100
        (early,) = processes
        assert early.returncode == 0
        assert Manifest.read(path).rows_per_second is not None
        check_process.check(path, 60.0)
        assert len(processes) == 2, "the next check starts a process of its own"
    with check_process.started_early():
        pass
    assert processes[2].returncode is not None


@pytest.mark.parametrize(
    ("scaling", "tolerance"),
    [
        ({}, 0.0),
        ({"resources_per_worker": {"CPU": 1}}, 0.0),
        ({"resources_per_worker": {"CPU": 1, "GPU": 0}}, 0.0),
        ({"resources_per_worker": {"GPU": 0.5}}, GPU_TOLERANCE),
    ],
)
def test_predictions_have_a_tolerance_if_the_workers_had_gpus(
    checked_in_this_process: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scaling: Any,
    tolerance: Any,
) -> None:
    parts = bundle_parts.ingredients(tmp_path, monkeypatch, f"gpus{len(str(scaling))}")
    parts["training"] |= {"scaling": {"num_workers": 2, **scaling}}
    path = bundle_parts.write_parts(tmp_path / "bundle", **parts)
    assert Manifest.read(path).tolerance == tolerance
