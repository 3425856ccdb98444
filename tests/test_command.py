"""The trainer `command` in whole sweeps: two ranks with torch's process group, a scheduler, lost
workers, and failures.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.study import record_reader
from tests.commands import REPO, command, invoke

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

# Each rank adds its number to a sum over both ranks, so a rank that is missing would be noticed.
SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

x, steps, out = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
dist.init_process_group("gloo")
rank = dist.get_rank()
mine = out / f"{sys.argv[4]}-{rank}"

def stop(*_):
    mine.with_suffix(".terminated").touch()
    os._exit(143)

signal.signal(signal.SIGTERM, stop)
file = Path(os.environ["SWEEPS_CHECKPOINT_DIR"], "step")
step = int(file.read_text()) if file.exists() else 0
with mine.with_suffix(".starts").open("a") as starts:
    print(step, os.environ["MASTER_PORT"], os.environ["LOCAL_RANK"], file=starts)
while step < steps:
    step += 1
    total = torch.tensor([x + rank])
    try:
        dist.all_reduce(total)
    except RuntimeError:
        ALONE
    if rank == 0:
        file.write_text(str(step))
        print(json.dumps({"loss": total.item() / step, "step": step}))
    time.sleep(0.1)
    LATER
"""
SPACE = """
name: own
trainer: {{command: [python, train.py, "{{params.x}}", \
{steps}, {out}, "{{trial}}"], grace_seconds: 5}}
objective: {{metric: loss, goal: minimize}}
{more}
space:
  scaling: {{num_workers: 2, resources_per_worker: {{CPU: 1}}}}
  params: {{x: {{grid: {values}}}}}
"""


def written(
    folder: Path,
    values: list[float],
    more: str = "",
    steps: int = 4,
    later: str = "",
    alone: str = "raise",
) -> Path:
    """Write the script and its space.

    Args:
        folder: The folder for both.
        values: The values of `x`.
        more: More keys of the space.
        steps: Number of steps.
        later: A statement of the script after each step.
        alone: A statement of the script when its peer has ended.
    """
    (folder / "train.py").write_text(SCRIPT.replace("LATER", later).replace("ALONE", alone))
    (folder / "out").mkdir()
    (folder / "own.yaml").write_text(
        SPACE.format(steps=steps, out=folder / "out", more=more, values=values)
    )
    return folder / "own.yaml"


def starts(folder: Path, trial: str) -> list[list[tuple[str, ...]]]:
    """Return, for each rank, the step, the port and the local rank of each start of the script."""
    lines = [
        (folder / "out" / f"{trial}-{rank}.starts").read_text().splitlines() for rank in (0, 1)
    ]
    return [[tuple(line.split()) for line in each] for each in lines]


def run(file: Path, *more: object) -> tuple[Path, dict[str, Any]]:
    """Run the sweep in this process. Return its folder and its result."""
    done = invoke("run", file, "--dir", file.parent / "runs", "--json", *more)
    assert done.exit_code in (0, 1) and done.stdout, done.stderr
    result = json.loads(done.stdout)
    return Path(result["dir"]), result


def exit_codes(folder: Path) -> list[int]:
    return [
        json.loads(file.read_text())["exit_code"]
        for file in sorted(folder.glob("trials/*/files/command.json"))
    ]


def test_torchrun_script_runs_on_two_ranks_and_is_stopped(clean_ray: Any, tmp_path: Path) -> None:
    scheduler = "scheduler: {name: asha, max_t: 4, grace_period: 2, reduction_factor: 2}"
    # A rank whose peer was stopped first waits for its own signal.
    folder, result = run(written(tmp_path, [0.0, 5.0], scheduler, alone="time.sleep(60)"))
    assert result["trials"] == {"completed": 1, "pruned": 1, "failed": 0}
    assert result["best"]["value"] == 0.25 and result["best"]["params"] == {"x": 0.0}
    assert all((tmp_path / "out" / f"0001-{rank}.terminated").exists() for rank in (0, 1))
    first, second = starts(tmp_path, "0000")
    assert [step for step, _, _ in (*first, *second)] == ["0", "0"] and first[0][1] == second[0][1]
    assert [first[0][2], second[0][2]] == ["0", "1"]
    assert (folder / "checkpoint" / "step").read_text() == "4"
    assert exit_codes(folder) == [0, 143]
    assert '"step": 4' in (folder / "trials" / "0000" / "logs" / "rank-0.log").read_text()
    assert not list(folder.glob("trials/*/script_checkpoint*"))


@pytest.mark.extended
def test_script_continues_from_checkpoint_after_lost_worker(clean_ray: Any, tmp_path: Path) -> None:
    later = (
        "if rank == 1 and step == 3 and not Path(out, 'lost').exists(): Path(out, "
        "'lost').touch(); os.kill(os.getppid(), signal.SIGKILL)"
    )
    folder, result = run(written(tmp_path, [1.0], steps=6, later=later))
    assert result["trials"]["completed"] == 1, result
    study = record_reader.read(folder)
    assert study is not None
    (reports,) = (trial.curve for trial in study.trials)
    assert [step for step, _ in reports] == [1, 2, 3, 4, 5, 6]
    for begins in starts(tmp_path, "0000"):
        assert len(begins) == 2 and 0 < int(begins[1][0]) <= 3, (
            "the second attempt starts from a checkpoint"
        )
    assert (folder / "checkpoint" / "step").read_text() == "6"


@pytest.mark.extended
def test_the_lesson_runs_a_script_and_its_bundle_predicts(tmp_path: Path) -> None:
    process = command(
        "run",
        REPO / "search_spaces" / "command.yaml",
        "--dir",
        tmp_path / "runs",
        "--json",
        "--set",
        "limits.max_trials=3",
    )
    out, err = process.communicate(timeout=230)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"]["failed"] == 0 and result["trials"]["pruned"] >= 1
    assert result["best"]["value"] < 1 and set(exit_codes(Path(result["dir"]))) <= {0, -15}
    probabilities = sweeps.load_bundle(result["bundle"]).predict(pd.DataFrame(np.zeros((2, 64))))
    assert probabilities.shape == (2, 10) and all(
        math.isclose(sum(row), 1, abs_tol=1e-6) for row in probabilities.to_numpy()
    )


CALLS = """
import os, sys
from pathlib import Path
import sweeps

x, out = float(sys.argv[1]), Path(sys.argv[2])
folder = Path(os.environ["SWEEPS_CHECKPOINT_DIR"])
step = int((folder / "step").read_text()) if (folder / "step").exists() else 0
with (out / sys.argv[3]).open("a") as starts:
    print(step, x, file=starts)
for step in range(step + 1, 7):
    (folder / "step").write_text(str(step))
    sweeps.report(loss=x, checkpoint=folder)
"""
LOGS = """
import os
import mlflow
import pandas as pd

folder = os.environ["SWEEPS_DATA_DIR"]
train, valid = (pd.read_parquet(f"{folder}/{name}.parquet") for name in ("train", "valid"))
with mlflow.start_run():
    mlflow.log_param("rows", len(train))
    mlflow.set_tag("team", "a")
    for step in (10, 20):
        mlflow.log_metrics({"loss": abs(float(train["age"].mean())) + 1 / step, "other": step}, \
step=step)
    mlflow.log_text("a note", "note.txt")
    mlflow.log_metric("rows_of_valid", len(valid))
"""
LOGGED = """
name: own
trainer: {command: [python, train.py]}
data: {train: "sklearn:diabetes", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 1}
space: {preprocessor: [StandardScaler]}
"""


@pytest.mark.extended
def test_a_script_reads_prepared_rows_and_reports_with_mlflow(
    clean_ray: Any, tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    (tmp_path / "train.py").write_text(LOGS)
    (tmp_path / "own.yaml").write_text(LOGGED)
    folder, result = run(tmp_path / "own.yaml")
    study = record_reader.read(folder)
    assert study is not None
    (trial,) = study.trials
    assert [step for step, _ in trial.curve] == [1, 2]
    assert trial.result.value == pytest.approx(1 / 20), "the column is scaled, so its mean is 0"
    client = MlflowClient(result["mlflow"]["tracking_uri"])
    mine = f"tags.`mlflow.parentRunId` = '{result['mlflow']['parent_run']}'"
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    (mlflow_run,) = client.search_runs([experiment.experiment_id], mine)
    assert (
        mlflow_run.info.status == "FINISHED"
        and mlflow_run.data.params["rows"] == "354"
        and mlflow_run.data.tags["team"] == "a"
    )
    assert mlflow_run.data.metrics["rows_of_valid"] == 88
    assert [point.step for point in client.get_metric_history(mlflow_run.info.run_id, "loss")] == [
        1,
        2,
    ]
    assert {file.path for file in client.list_artifacts(mlflow_run.info.run_id)} == {
        "files",
        "note.txt",
    }
