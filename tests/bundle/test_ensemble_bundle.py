"""The bundle of an ensemble, from the command to a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from sweeps.bundle import integrity
from sweeps.bundle.bundle_model import load_bundle
from sweeps.bundle.ensemble_summary import ensembles_of
from sweeps.bundle.manifest import Manifest
from sweeps.bundle.predict_rows import predict_file
from sweeps.bundle.shared_chains import SharedChains
from sweeps.core.errors import BundleError, InputError
from sweeps.serving.batching import predict_batch
from sweeps.serving.request_checks import read
from sweeps.tracking.mlflow import model_registry
from tests.bundle.ensemble_sweeps import recorded_sweep
from tests.commands import check_in_this_process, invoke

pytestmark = [pytest.mark.timeout(120), pytest.mark.integration]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A sweep of eight linear models, some without two of the columns, and the output of `sweeps
    export --ensemble 6`.
    """
    with pytest.MonkeyPatch.context() as patch:
        check_in_this_process(patch)
        sweep = recorded_sweep(
            tmp_path_factory.mktemp("sweep"), patch, kinds=("scores",) * 8, seed=9
        )
        yield sweep, invoke("export", sweep.folder, "--ensemble", 6)


@pytest.fixture
def bundle(exported: Any) -> Any:
    return exported[0].folder / "exports" / "ensemble-6"


@pytest.fixture
def rows(exported: Any) -> Any:
    splits = next(iter(exported[0].variants.sources.values()))
    return splits.valid.select(list(splits.features)).to_pandas()


def expected_of(sweep: Any, manifest: Any) -> Any:
    total = sum(m.weight for m in manifest.members)
    return sum(sweep.outputs[int(m.trial)] * m.weight for m in manifest.members) / total


def test_the_command_prints_the_folder_and_both_scores(exported: Any, bundle: Any) -> None:
    _, done = exported
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{bundle}\n"
    lines = done.stderr.splitlines()
    assert (
        lines[0].startswith("logloss on valid: ")
        and lines[1].startswith("logloss on test: ")
        and lines[2].startswith("members: 000")
    )
    assert lines[3].startswith("SHA-256 of the bundle's manifest: ")


def test_it_predicts_the_weighted_mean_of_its_members(
    exported: Any, bundle: Any, rows: Any
) -> None:
    manifest = Manifest.read(bundle)
    assert len(manifest.members) >= 2 and manifest.checked and manifest.format == 2
    assert {len(member.manifest.columns) for member in load_bundle(bundle).members} == {28, 30}, (
        "one member without two columns"
    )
    mean = expected_of(exported[0], manifest)
    for model in (load_bundle(bundle), mlflow.pyfunc.load_model(str(bundle))):
        got = model.predict(rows.sample(frac=1, random_state=0)).sort_index()
        np.testing.assert_allclose(got["probability_1"], mean, rtol=1e-12)
        np.testing.assert_array_equal(got["prediction"], (mean > 0.5).astype(int))
    loaded = load_bundle(bundle)
    assert loaded.predict(rows.head(0)).empty and list(
        loaded.predict(rows.head(0)).columns
    ) == list(got.columns)
    for member, facts in zip(loaded.members, manifest.members, strict=True):
        alone = member.predict(rows)["probability_1"]
        np.testing.assert_allclose(alone, exported[0].outputs[int(facts.trial)], rtol=1e-12)
        assert (
            member.transform(rows).shape[0] == len(rows)
            and member.manifest.training["trial"] == facts.trial
        )
    with pytest.raises(
        InputError,
        match=r"each member of an ensemble has its own preprocessor; use "
        r"`bundle.members\[0\].transform`",
    ):
        loaded.transform(rows)


def test_a_server_and_a_file_get_the_same_predictions(
    bundle: Any, rows: Any, tmp_path: Path
) -> None:
    loaded = load_bundle(bundle)
    frame = loaded.predict(rows.head(3))
    request = read(
        json.dumps({"records": rows.head(3).to_dict("records")}).encode(),
        loaded.manifest.columns,
        10,
    )
    answer = json.loads(predict_batch(loaded, [request])[0])
    assert [p["probability_1"] for p in answer["predictions"]] == frame["probability_1"].tolist()
    rows.head(3).to_parquet(tmp_path / "rows.parquet")
    pd.testing.assert_frame_equal(
        predict_file(bundle, tmp_path / "rows.parquet"), frame.reset_index(drop=True)
    )


def test_a_new_process_needs_neither_sweeps_nor_ray(bundle: Any, rows: Any, tmp_path: Path) -> None:
    rows.to_parquet(tmp_path / "rows.parquet")
    script = (
        "import sys\n"
        "sys.modules['ray'] = None\n"
        "import mlflow.pyfunc, pandas as pd\n"
        f"model = mlflow.pyfunc.load_model({str(bundle)!r})\n"
        "print(model.predict(pd.read_parquet('rows.parquet'))['probability_1'].tolist())\n"
        f"assert sys.modules['sweeps'].__file__.startswith({str(bundle / 'code' / '_sweeps')!r})\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (
        json.loads(done.stdout.splitlines()[-1])
        == load_bundle(bundle).predict(rows)["probability_1"].tolist()
    )


def test_show_mentions_it(exported: Any, bundle: Any) -> None:
    sweep, _ = exported
    (ensemble,) = ensembles_of(sweep.folder)
    assert ensemble.path == str(bundle) and sum(ensemble.members.values()) <= 6
    shown = invoke("show", sweep.folder)
    line = next(line for line in shown.output.splitlines() if line.startswith("  ensemble"))
    assert (
        f"{ensemble.value:.6g}, test {ensemble.test:.6g} ({len(ensemble.members)} models; "
        f"best single model {ensemble.single_value:.6g}" in line
    )
    (listed,) = json.loads(invoke("show", sweep.folder, "--json").output)["ensembles"]
    assert listed["members"] == dict(ensemble.members) and listed["path"] == str(bundle)


def test_a_member_that_was_changed_is_refused(bundle: Any, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(bundle, tmp_path / "copy")
    next(copy.glob("data/sweep/members/*/model/model.json")).write_text("{}")
    with pytest.raises(
        BundleError, match=r"members/\d+/model/model.json is not the file that was exported"
    ):
        load_bundle(copy)


def test_it_is_registered_with_the_run_of_the_sweep(
    exported: Any, bundle: Any, tmp_path: Path
) -> None:
    """Two runs stand for what MLflow has recorded: the sweep's run, and the run of a trial."""
    from sweeps.bundle import integrity

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    parent = client.create_run(
        client.create_experiment("models", artifact_location=str(tmp_path / "artifacts"))
    ).info.run_id
    training = Manifest.read(bundle).training | {"members": "0001 (weight 2), 0000 (weight 1)"}
    digest = integrity.sha256(bundle / integrity.MANIFEST)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    champion = model_registry.RegisteredModel(uri, name="cells", alias="champion")
    notes = model_registry.register(bundle, digest, training, parent, champion)
    assert (
        notes[0] == f"registered this bundle as cells version 1, for the MLflow run {parent}"
        and "alias champion now" in notes[1]
    )
    version = client.get_model_version("cells", "1")
    assert version.tags["sweeps.members"] == "0001 (weight 2), 0000 (weight 1)"
    assert version.run_id == parent and float(version.tags["sweeps.value"]) == training["value"]
    again = model_registry.RegisteredModel(uri, name="cells")
    notes = model_registry.register(bundle, digest, training, parent, again)
    assert notes[0].startswith("this bundle is already registered")


def test_members_with_equal_preprocessors_share_one(bundle: Any, tmp_path: Path) -> None:
    import shutil

    manifest = Manifest.read(bundle)
    members = bundle / "data" / "sweep" / "members"
    first, second = (members / member.folder for member in manifest.members[:2])
    names = [column.name for column in manifest.of_member(manifest.members[0]).columns]
    for name, source in {"a": first, "b": first, "c": second}.items():
        shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("model"))
    files = {
        file.relative_to(tmp_path).as_posix(): integrity.sha256(file)
        for file in tmp_path.rglob("*")
        if file.is_file()
    }
    chains = SharedChains(tmp_path, files)
    loaded = chains.load(tmp_path / "a", names)
    assert loaded is not None and chains.load(tmp_path / "b", names) is loaded
    assert chains.load(tmp_path / "b", names[1:]) is not loaded
    assert chains.load(tmp_path / "c", names) is not loaded
    assert chains.load(tmp_path, names) is None
