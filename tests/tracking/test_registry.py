"""Bundles are registered with the runs of their trials, and an alias moves only to a better
version.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError, SweepsError
from sweeps.tracking.mlflow.model_registry import (
    RegisteredModel,
    Score,
    check_names,
    register,
    score_of,
    should_move_alias,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "bundle"))

numbers = st.floats(allow_nan=False)


@given(numbers, numbers, st.sampled_from(["minimize", "maximize"]))
def test_an_alias_moves_only_to_a_better_version(old: Any, new: Any, goal: Any) -> None:
    better = new < old if goal == "minimize" else new > old
    assert should_move_alias(Score("loss", goal, old), Score("loss", goal, new), False)[0] == better
    assert should_move_alias(Score("loss", goal, old), Score("loss", goal, new), True)[0]
    for other in (None, Score("auc", goal, old)):
        assert not should_move_alias(other, Score("loss", goal, new), False)[0]


def test_an_alias_does_not_move_to_nan() -> None:
    tags = {"sweeps.metric": "loss", "sweeps.goal": "minimize"}
    assert score_of(tags | {"sweeps.value": "0.5"}) == Score("loss", "minimize", 0.5)
    assert not should_move_alias(
        Score("loss", "minimize", 1.0), score_of(tags | {"sweeps.value": "None"}), False
    )[0]


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_bundle_becomes_a_version_with_its_run_and_an_alias(
    empty_database: Any,
    checked_in_this_process: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import bundle_parts as ingredients
    import mlflow.pyfunc
    from mlflow.tracking import MlflowClient

    from sweeps.tracking import default_uri

    monkeypatch.chdir(tmp_path)
    uri = default_uri(tmp_path)
    client = MlflowClient(uri)
    experiment = client.create_experiment("houses", str(tmp_path / "artifacts"))
    parent = client.create_run(experiment).info.run_id
    child = client.create_run(
        experiment, tags={"mlflow.parentRunId": parent, "sweeps.trial": "0002"}
    ).info.run_id
    kept = ingredients.ingredients(tmp_path, monkeypatch, "registry")
    bundle = ingredients.write_parts(tmp_path / "bundle", **kept)

    def digest_of(value: float) -> str:
        return f"{value:.60f}"  # of its manifest, in which the value stands

    def registered(
        value: float,
        alias: str | None = "champion",
        force: bool = False,
        trial: str = "0002",
        **more: object,
    ) -> list[str]:
        facts = {
            "sweep": "s",
            "trial": trial,
            "metric": "loss",
            "goal": "minimize",
            "value": value,
            **more,
        }
        model = RegisteredModel(uri, "houses", alias, force)
        return register(bundle, digest_of(value), facts, parent, model)

    def holder() -> str:
        return str(client.get_model_version_by_alias("houses", "champion").version)

    assert registered(0.5)[1] == "alias champion now refers to version 1"
    assert (
        registered(0.6)[1]
        == (
            "alias champion stays at version 1: loss is 0.6 for the new version and 0.5 for the "
            "current version, so the "
            "new version is not better; to move the alias anyway, use --force"
        )
        and holder() == "1"
    )
    assert (
        registered(0.4)[1]
        == "alias champion moved from version 1 to version 3: loss is 0.4 for the new version "
        "and 0.5 for the current version"
        and holder() == "3"
    )
    assert (
        registered(0.9, force=True)[1]
        == "alias champion moved from version 3 to version 4: because of --force"
    )
    assert (
        registered(0.1, alias=None)
        == [f"registered this bundle as houses version 5, for the MLflow run {child}"]
        and holder() == "4"
    )
    version = client.get_model_version("houses", "4")
    assert version.run_id == child and version.tags["sweeps.value"] == "0.9"
    assert version.tags["sweeps.manifest_sha256"] == digest_of(0.9)
    assert registered(0.9) == [
        "this bundle is already registered as houses version 4",
        "alias champion already refers to version 4",
    ]
    assert (
        registered(0.4, force=True)[0] == "this bundle is already registered as houses version 3"
        and holder() == "3"
    )
    assert (
        registered(0.9, force=True)[1]
        == "alias champion moved from version 3 to version 4: because of --force"
    )
    registered(0.45, alias=None, refit={"on": ["train", "valid"], "rows": 5, "steps": 2})
    again = client.get_model_version("houses", "6")
    assert again.tags["sweeps.refit"] == "train+valid" and again.source != version.source, (
        "the earlier version keeps its files"
    )
    with pytest.raises(InputError, match="no run of trial 0009"):
        registered(0.1, trial="0009")
    mlflow.set_registry_uri(uri)
    mlflow.set_tracking_uri(uri)
    try:
        for _ in range(2):  # MLflow leaves a note of its own in what it downloads
            got = mlflow.pyfunc.load_model("models:/houses@champion").predict(kept["raw"])
            assert got["probability_yes"].tolist() == kept["expected"].tolist()
    finally:
        mlflow.set_registry_uri(None)  # type: ignore[arg-type]
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def test_an_alias_does_not_move_from_a_feasible_to_an_infeasible_version() -> None:
    tags = {"sweeps.metric": "loss", "sweeps.goal": "minimize", "sweeps.value": "0.1"}
    kept, broken = Score("loss", "minimize", 0.3), score_of(tags | {"sweeps.feasible": "false"})
    assert broken is not None
    assert (
        should_move_alias(kept, broken, False)
        == (False, "the current version meets the constraints, and the new version does not")
        and should_move_alias(kept, broken, True)[0]
    )
    assert should_move_alias(broken, kept, False) == (
        True,
        "the new version meets the constraints, and the current version does not",
    )
    assert should_move_alias(broken, dataclasses.replace(broken, value=0.05), False)[0]
    feasible = score_of(tags | {"sweeps.feasible": "true"})
    assert score_of(tags) == feasible == Score("loss", "minimize", 0.1)


def test_errors_of_a_store_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"sweep": "s", "trial": "0000", "metric": "loss", "goal": "minimize", "value": 0.1}
    gone = f"sqlite:///{tmp_path / 'moved' / 'mlflow.db'}"
    with pytest.raises(
        InputError, match=r"moved/mlflow\.db, where MLflow recorded the sweep, does not exist"
    ):
        register(tmp_path, "0", training, "p", RegisteredModel(gone, "m"))
    assert not (tmp_path / "moved").exists(), "MLflow would have made one"

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied", "/mlflow")

    monkeypatch.setattr("mlflow.tracking.MlflowClient.get_run", refuse)
    with pytest.raises(
        SweepsError,
        match=r"MLflow at http://me@there: PermissionError: .*Permission denied: '/mlflow'",
    ):
        register(tmp_path, "0", training, "p", RegisteredModel("http://me:secret@there", "m"))


@pytest.mark.parametrize(
    ("name", "alias", "place"),
    [
        ("", None, "--register"),
        ("a/b", None, "--register"),
        ("a:b", "x", "--register"),
        ("a", "", "--alias"),
        ("a", "v1", "--alias"),
    ]
    + [("a", alias, "--alias") for alias in ("latest", "a b", "V12", "a/b", "x" * 256)],
)
def test_names_that_mlflow_refuses_are_refused(name: Any, alias: Any, place: Any) -> None:
    with pytest.raises(InputError, match=f"^{place}: .*got "):
        check_names(name, alias)
