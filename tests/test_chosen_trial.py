"""The exported trial is chosen by `objective.choose`."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.bundle.manifest import FILE as MANIFEST
from sweeps.evaluation.racing import ROUNDS
from tests.commands import command, invoke
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# A seed brings luck, so the best value is that of a lucky trial.
LOOP = """\
import json
import os
import time
from pathlib import Path

import ray.train
from sweeps import trial

HERE = Path(__file__).parent


def train(config):
    current = trial.current()
    valid = ray.train.get_dataset_shard("valid").materialize().to_pandas()
    luck = (current.seed % 1000) / 1000
    line = json.dumps([os.getpid(), config["x"], round(float(valid.to_numpy().sum()), 3)])
    with open(HERE / "seen.jsonl", "a") as out:
        print(line, file=out, flush=True)
    lines = len((HERE / "seen.jsonl").read_text().splitlines())
    if (HERE / "latch").exists() and lines > int((HERE / "latch").read_text()):
        (HERE / "waiting").touch()
        time.sleep(600)
    if (HERE / "breaks").exists() and lines > 8 and config["x"] == 1:
        raise RuntimeError("x is 1")
    ray.train.report({"loss": config["x"] / 10 + luck})
"""
SPACE = """\
name: lucky
trainer: {{loop: "lucky_loop:train", backend: none}}
data: {{train: "sklearn:wine", label: target, valid: {valid}}}
objective: {{metric: loss, goal: minimize, choose: {choose}}}
search: {{seed: 19}}
limits: {{max_concurrent_trials: 1}}
trackers: []
space: {{params: {{x: {{grid: [0, 1, 2, 3, 4, 5, 6, 7]}}}}}}
"""


def written(folder: Path, choose: str = "confirmed", valid: str = "0.3") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "lucky_loop.py").write_text(LOOP)
    (folder / "lucky.yaml").write_text(SPACE.format(choose=choose, valid=valid))
    return folder / "lucky.yaml"


def seen(folder: Path) -> list[Any]:
    """Return the process, the parameter and the sum of valid of each training."""
    return [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]


def check_choice(best: dict[str, Any], sweep: sweeps.Sweep) -> None:
    """Check that the chosen trial has the best mean of those that were not dropped."""
    choice = best["choice"]
    values_in_search = dict(
        zip((f"{n:04d}" for n in sweep.trials["number"]), sweep.trials["value"], strict=True)
    )
    ranked = sorted(values_in_search, key=lambda trial: values_in_search[trial] or math.inf)
    assert (choice["best"], choice["best_value"]) == (ranked[0], values_in_search[ranked[0]])
    values = choice["values"]
    assert list(values) == ranked[:5]
    assert [own[0] for own in values.values()] == [values_in_search[trial] for trial in values]
    raced = {t: own for t, own in values.items() if len(own) == ROUNDS + 1 and None not in own}
    assert best["trial"] == min(raced, key=lambda trial: math.fsum(raced[trial]))
    assert best["value"] == values_in_search[best["trial"]]


def test_the_best_trials_are_confirmed_on_other_rows(clean_ray: Any, tmp_path: Path) -> None:
    result = sweeps.run(written(tmp_path), dir=tmp_path / "runs")
    assert result.best is not None
    sweep = sweeps.open(result.dir)
    check_choice(result.best, sweep)
    choice = result.best["choice"]
    assert result.best["trial"] != choice["best"], "luck decides with this seed"
    trainings = seen(tmp_path)
    searched, confirmed = trainings[:8], trainings[8:]
    assert len(confirmed) == sum(len(own) - 1 for own in choice["values"].values())
    assert len({total for _, _, total in searched}) == 1
    totals = [total for _, _, total in confirmed]
    assert len(set(totals)) == ROUNDS and searched[0][2] not in totals
    assert totals == sorted(totals, key=totals.index), "all trials of a round have the same rows"
    # The result, the report and other commands name the chosen trial.
    assert sweep.best is not None and sweep.best.id == result.best["trial"]
    shown = invoke("show", result.dir).stdout
    text = f"confirmed among 5 trials in {ROUNDS} further trainings"
    assert text in shown and f"(trial {result.best['trial']})" in shown
    assert text in (result.dir / "report.md").read_text().replace("Confirmed", "confirmed")
    listed = json.loads(invoke("ls", "--dir", tmp_path / "runs", "--json").stdout)
    assert [row["best"]["trial"] for row in listed] == [result.best["trial"]]


def test_a_trial_that_fails_on_other_rows_drops_out(clean_ray: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "breaks").touch()
    result = sweeps.run(file, dir=tmp_path / "runs")
    assert result.best is not None and result.best["params"]["x"] != 1
    values = result.best["choice"]["values"]
    assert [own[1:] for own in values.values() if None in own] == [[None]]
    check_choice(result.best, sweeps.open(result.dir))


def test_folds_are_divided_anew(clean_ray: Any, tmp_path: Path) -> None:
    result = sweeps.run(written(tmp_path, valid="{folds: 2}"), dir=tmp_path / "runs")
    assert result.best is not None
    check_choice(result.best, sweeps.open(result.dir))
    totals = [total for _, _, total in seen(tmp_path)]
    assert len(set(totals)) == 2 * (ROUNDS + 1)


@pytest.mark.slow
def test_the_mean_of_a_model_chooses(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    text = """
name: means
trainer: xgboost
data: {train: "sklearn:breast_cancer", label: target, valid: 0.25}
objective: {metric: valid-logloss, goal: minimize, choose: CHOOSE}
limits: {max_trials: 20}
search: {algorithm: random}
space: {params: {eta: {loguniform: [0.01, 0.5]}, max_depth: {randint: [2, 9]}, subsample: 0.5}}
"""
    (tmp_path / "means.yaml").write_text(text.replace("CHOOSE", "mean"))
    result = sweeps.run(tmp_path / "means.yaml", dir=tmp_path / "runs")
    assert result.best is not None
    choice = result.best["choice"]
    assert choice["rule"] == "mean" and choice["values"] == {}
    training = json.loads((Path(str(result.bundle)) / MANIFEST).read_text())["training"]
    assert training["trial"] == result.best["trial"] and training["choice"] == choice
    # A resumed sweep chooses the same, and so does one with the same trials.
    again = sweeps.resume(result.dir)
    assert again.best is not None and again.best["choice"] == choice


@pytest.mark.faults
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_ended_choice_goes_on_with_the_next_round(tmp_path: Path, sent: Any) -> None:
    whole = command("run", written(tmp_path / "whole"), "--dir", tmp_path / "a", "--json")
    expected = json.loads(whole.communicate(timeout=120)[0])["best"]
    folder = tmp_path / "killed"
    file = written(folder)
    (folder / "latch").write_text("15")  # 8 of the search, 5 of the first round
    process = command("run", file, "--dir", tmp_path / "b", "--json")
    wait_until((folder / "waiting").exists, 120, "the second round")
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    if sent is signal.SIGINT:
        assert process.returncode == 130, err
        assert json.loads(out)["reason"] == "interrupted"
    (folder / "latch").unlink()
    before = len(seen(folder))
    sweep = next((tmp_path / "b").glob("lucky-*"))
    resumed = command("resume", sweep, "--json")
    out, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, err
    best = json.loads(out)["best"]
    assert best["choice"] == expected["choice"] and best["trial"] == expected["trial"]
    rounds = sum(len(own) - 1 for own in best["choice"]["values"].values())
    assert len(seen(folder)) - before == rounds - 5, "the first round is not repeated"
