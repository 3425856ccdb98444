"""The winner is trained again on all rows: `bundle.train_on: all`, with a test split, folds, a
failure, and a time limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

import sweeps
from sweeps.controller.session import SweepSession
from sweeps.data.load_data import load_splits
from sweeps.exports import trial_refit
from tests.commands import invoke

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("checked_in_this_process"),
]

ROWS = 442
LOOP = """
import json, pickle, tempfile, time
from pathlib import Path

import ray.train
from sklearn.linear_model import Ridge
from sweeps import trial


def train(config):
    cur = trial.current()
    train, valid = (ray.train.get_dataset_shard(name).materialize().to_pandas() \
for name in ("train", "valid"))
    with open(config["log"], "a") as log:
        log.write(json.dumps([len(train), cur.keep_last, cur.max_t]) + "\\n")
    with open(config["log"] + ".threads", "a") as log:
        log.write(f"{cur.threads}\\n")
    if cur.keep_last and config["at_end"] == "fail":
        raise ValueError("no room for all rows")
    if cur.keep_last and config["at_end"] == "hang":
        Path(config["log"] + ".hangs").touch()
        time.sleep(1000)
    model = Ridge(alpha=config["alpha"]).fit(train.drop(columns=cur.label), train[cur.label])
    error = float(((model.predict(valid.drop(columns=cur.label)) - valid[cur.label]) ** 2).mean())
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pkl").write_bytes(pickle.dumps(model))
        for value in (error, error + 2):  # the first step is the best one
            ray.train.report({"mse": value}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def load(folder):
    return pickle.loads(Path(folder, "model.pkl").read_bytes())
"""
SPACE = """
name: all-rows
trainer: {{loop: "{module}:train", load: "{module}:load"}}
data: {{train: "sklearn:diabetes", label: target, {splits}}}
objective: {{metric: mse, goal: minimize}}
search: {{seed: 3}}
limits: {{max_concurrent_trials: 1}}
trackers: []
bundle: {{train_on: all}}
space:
  preprocessor: {preprocessor}
  params: {{alpha: {{grid: {alphas}}}, log: "{log}", at_end: {at_end}}}
"""


def swept(
    folder: Path,
    module: str,
    splits: str,
    at_end: str = "train",
    alphas: Sequence[float] = (0.1, 10.0),
    preprocessor: Sequence[str] = ("StandardScaler",),
    **how: Any,
) -> tuple[sweeps.SweepResult, list[list[Any]]]:
    """Run a sweep.

    Return its result, and what each run of the loop wrote: rows of train, keep_last, max_t.
    """
    (folder / f"{module}.py").write_text(LOOP)
    log = folder / "log.jsonl"
    text = SPACE.format(
        module=module,
        splits=splits,
        log=log,
        at_end=at_end,
        alphas=list(alphas),
        preprocessor=list(preprocessor),
    )
    (folder / "space.yaml").write_text(text)
    result = sweeps.run(folder / "space.yaml", dir=folder / "runs", **how)
    return result, [json.loads(line) for line in log.read_text().splitlines()]


def training_of(result: sweeps.SweepResult) -> dict[str, Any]:
    assert result.bundle is not None
    facts: dict[str, Any] = sweeps.load_bundle(result.bundle).manifest.training
    return facts


def error_on_test(bundle: Path, space: Path) -> float:
    """Return the error of a bundle on the rows of test, which the sweep has set aside."""
    test = load_splits(sweeps.load(space).data, 3).test
    assert test is not None
    rows = test.to_pandas()
    predicted = sweeps.load_bundle(bundle).predict(rows)["prediction"]
    return float(((predicted - rows["target"]) ** 2).mean())


def test_searched_model_is_scored_and_exported_model_sees_all_rows(
    clean_ray: Any, tmp_path: Path
) -> None:
    result, runs = swept(tmp_path, "rows_all", "valid: 0.2, test: 0.2")
    searched = ROWS - 2 * round(0.2 * ROWS)
    assert runs == [[searched, False, None], [searched, False, None], [ROWS, True, 1]]
    facts = {"on": ["train", "valid", "test"], "rows": ROWS, "steps": 1}
    assert result.best is not None and result.best["refit"] == training_of(result)["refit"] == facts
    assert result.notes == (
        (
            "MLflow has no runs of this sweep, because `trackers` in the space file does not list "
            "`mlflow`"
        ),
    )
    (exported,) = sweeps.open(result.dir).export(latest=True, output=tmp_path / "searched")
    expected = error_on_test(exported.path, tmp_path / "space.yaml")
    assert result.best["test"] == training_of(result)["test"] == pytest.approx(expected)
    assert result.bundle is not None and "test" in (result.bundle / "README.md").read_text()
    saved = json.loads((result.dir / "result.json").read_text())
    assert saved["best"]["refit"] == facts
    words = "trained on 442 rows: train, valid and test"
    assert words in invoke("show", result.dir).stdout
    assert not list(result.dir.glob(".rerun-*"))
    # Every row is seen, also by the preprocessor.
    x = pd.DataFrame(load_diabetes().data, columns=load_diabetes().feature_names)
    scaled = sweeps.load_bundle(result.bundle).transform(x)
    np.testing.assert_allclose(scaled.mean(), 0, atol=1e-9)


@pytest.mark.extended
def test_the_export_of_another_trial_is_trained_on_all_rows_too(
    clean_ray: Any, tmp_path: Path
) -> None:
    result, _ = swept(tmp_path, "rows_other", "valid: 0.2, test: 0.2")
    again = invoke("export", result.dir, "--trial", "0", "--cpus", 1, "-o", tmp_path / "other")
    words = "trained on 442 rows: train, valid and test"
    assert again.exit_code == 0 and words in again.stderr, again.stderr
    assert "test score of the model before: " in again.stderr
    assert not list(result.dir.glob(".rerun-*"))


@pytest.mark.extended
def test_the_final_training_has_all_cpus_if_ray_is_our_own(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = trial_refit.train_again

    @contextlib.contextmanager
    def train_in_our_ray(session: SweepSession, *arguments: Any, **how: Any) -> Iterator[Any]:
        cluster = session.cluster
        total = {**cluster.total, "CPU": 5.0}
        session.cluster = dataclasses.replace(cluster, ours=True, total=total)
        with train(session, *arguments, **how) as model:
            session.cluster = cluster
            yield model

    monkeypatch.setattr(trial_refit, "train_again", train_in_our_ray)
    swept(tmp_path, "rows_threads", "valid: 0.2")
    assert (tmp_path / "log.jsonl.threads").read_text().split() == ["1", "1", "5"]


@pytest.mark.extended
def test_a_test_split_of_its_own_is_never_trained_on(clean_ray: Any, tmp_path: Path) -> None:
    frame = load_diabetes(as_frame=True).frame
    frame.iloc[:40].to_csv(tmp_path / "test.csv", index=False)
    result, runs = swept(tmp_path, "rows_own", "valid: 0.2, test: test.csv")
    assert runs[-1] == [ROWS, True, 1] and training_of(result)["refit"]["on"] == ["train", "valid"]
    assert result.best is not None and result.bundle is not None
    predicted = sweeps.load_bundle(result.bundle).predict(frame.iloc[:40])["prediction"]
    error = float(((predicted - frame["target"].iloc[:40]) ** 2).mean())
    assert result.best["test"] == pytest.approx(error), "the final model has not seen these rows"


@pytest.mark.extended
def test_after_folds_the_average_of_their_models_is_scored_on_test(
    clean_ray: Any, tmp_path: Path
) -> None:
    result, runs = swept(tmp_path, "rows_folds", "valid: {folds: 3}, test: 0.2")
    assert len(runs) == 2 * 3 + 1 and runs[-1] == [ROWS, True, 1]
    assert training_of(result)["refit"]["rows"] == ROWS
    searched = (tmp_path / "space.yaml").read_text().replace("train_on: all", "train_on: train")
    (tmp_path / "searched.yaml").write_text(searched)
    averaged = sweeps.run(tmp_path / "searched.yaml", dir=tmp_path / "runs")
    assert averaged.bundle is not None and averaged.best is not None and result.best is not None
    error = error_on_test(averaged.bundle, tmp_path / "space.yaml")
    assert result.best["test"] == averaged.best["test"] == pytest.approx(error)
    members = sweeps.load_bundle(averaged.bundle).manifest.members
    assert [(member.fold, member.weight) for member in members] == [(1, 1), (2, 1), (3, 1)]


def test_if_the_final_training_fails_the_model_of_the_search_is_exported(
    clean_ray: Any, tmp_path: Path
) -> None:
    result, _ = swept(
        tmp_path, "rows_fail", "valid: 0.2, test: 0.2", "fail", alphas=[0.1], preprocessor=[]
    )
    assert "refit" not in training_of(result) and result.best is not None
    assert result.best["test"] is not None and "refit" not in result.best
    (note,) = [note for note in result.notes if "all rows" in note]
    assert note.startswith(
        "the exported model is that of the search, because the winner was not trained on all rows "
        "(ValueError: no room for all rows); `"
    )
    assert note.endswith(f"sweeps export {result.dir} --refit` does this")


def test_minutes_end_a_final_training_that_takes_too_long(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.controller.controller import SweepController

    hangs = Path(f"{tmp_path}/log.jsonl.hangs")
    looks: list[bool] = []

    def why_no_training(self: SweepController) -> str | None:
        looks.append(hangs.exists())
        return "--minutes leaves too little time" if looks[-1] else None

    monkeypatch.setattr(SweepController, "why_no_training", why_no_training)
    result, runs = swept(
        tmp_path, "rows_hang", "valid: 0.2, test: 0.2", "hang", alphas=[0.1], preprocessor=[]
    )
    assert looks[0] is False and looks[-1] is True and runs[-1][1] is True
    assert "refit" not in training_of(result)
    assert any("--minutes leaves too little time" in note for note in result.notes)


@pytest.mark.extended
def test_minutes_end_the_search_in_time_for_the_final_training(
    clean_ray: Any, tmp_path: Path
) -> None:
    began = time.monotonic()
    override = ("space.params.alpha={uniform: [0.1, 10]}", "limits.max_trials=100000")
    splits = "valid: 0.2, test: 0.2"
    result, _ = swept(tmp_path, "rows_minutes", splits, overrides=override, minutes=0.5)
    assert result.reason == "--minutes" and training_of(result)["refit"]["rows"] == ROWS
    # Other tests run beside this one, so it may take longer than the minutes.
    assert time.monotonic() - began < 1.3 * 30
    assert "(--minutes)" in sweeps.resume(result.dir).notes[-1]
