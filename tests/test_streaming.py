"""Sweeps whose data is streamed: `data.ingest: stream`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from sklearn import datasets

import sweeps
from sweeps.core.errors import InputError
from sweeps.study.record_reader import read
from tests.commands import REPO, command, invoke
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]

LOOP = """
import json
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import ray.train
from sweeps import trial


def read(name, size):
    batches = ray.train.get_dataset_shard(name).iter_batches(batch_size=size, batch_format="pandas")
    return pd.concat(list(batches), ignore_index=True)


def train(config):
    cur, context = trial.current(), ray.train.get_context()
    name = f"{config['log']}-{config['ingest']}-{cur.trial}-{context.get_world_rank()}"
    start = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            start = json.loads(Path(folder, "model.json").read_text())["step"]
    for epoch in range(start, 2):
        rows = read("train", 64)
        rows.to_parquet(f"{name}-train-{epoch}.parquet")
        if config["ingest"] == "stream" and epoch == 0:
            shard = ray.train.get_dataset_shard("train")
            batches = list(shard.iter_torch_batches(batch_size=32, local_shuffle_buffer_size=64, \
local_shuffle_seed=epoch, drop_last=True))
            assert all(len(batch["x"]) == 32 for batch in batches), batches
            doubled = shard.materialize().map_batches(lambda batch: {"x": 2 * batch["x"]})
            assert abs(doubled.sum("x") - 2 * float(rows["x"].sum())) < 1e-6
        valid = read("val", 50)
        if context.get_world_rank() == 0:
            valid.to_parquet(f"{name}-valid-{epoch}.parquet")
            cur.check.to_parquet(f"{name}-check.parquet")
        loss = float((valid["x"] ** 2).mean()) + config["lr"] + epoch
        with tempfile.TemporaryDirectory() as folder:
            state = {"step": epoch + 1, "weight": float(rows["x"].sum()), \
"mean": float(rows[cur.label].mean())}
            Path(folder, "model.json").write_text(json.dumps(state))
            ray.train.report({"loss": loss}, checkpoint=ray.train.Checkpoint.from_directory(folder))


class Model:
    def __init__(self, mean):
        self.mean = mean

    def predict(self, frame):
        return np.clip(self.mean + 0.01 * frame["x"].to_numpy(), 0, 1)


def load(folder):
    return Model(json.loads(Path(folder, "model.json").read_text())["mean"])
"""
SPACE = """
name: {ingest}
trainer: {{loop: "stream_loop:train", load: "stream_loop:load"}}
data: {{train: train, label: y, valid: {valid}, ingest: {ingest}}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: {trials}, max_concurrent_trials: {trials}}}
space:
  preprocessor: [SimpleImputer, StandardScaler, {{OneHotEncoder: {{columns: color}}}}]
  scaling: {{num_workers: {workers}, resources_per_worker: {{CPU: 0.25}}}}
  params: {{lr: {{grid: {rates}}}, log: "{log}", ingest: {ingest}}}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A working directory with the folder `train` of three files, the file `valid.parquet`, and the
    loop.
    """
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "x": rng.normal(3, 2, 640),
            "id": np.arange(640.0),
            "color": rng.choice(["red", "blue"], 640),
        }
    )
    frame.loc[::9, "x"] = np.nan
    frame["y"] = np.where(frame["id"] % 3 == 0, "yes", "no")
    (tmp_path / "train").mkdir()
    for number, (begin, end) in enumerate([(0, 30), (30, 300), (300, 500)]):
        frame[begin:end].to_parquet(tmp_path / "train" / f"{number}.parquet", index=False)
    frame[500:].to_parquet(tmp_path / "valid.parquet", index=False)
    (tmp_path / "stream_loop.py").write_text(LOOP)
    return tmp_path


def swept(
    folder: Any,
    ingest: str,
    workers: str = "{grid: [1, 2]}",
    rates: str = "[0.0]",
    valid: str = "valid.parquet",
    trials: int = 2,
    overrides: tuple[str, ...] = (),
) -> Any:
    text = SPACE.format(
        ingest=ingest, workers=workers, rates=rates, valid=valid, trials=trials, log=folder / "seen"
    )
    (folder / f"{ingest}.yaml").write_text(text)
    return sweeps.run(f"{ingest}.yaml", dir=folder / "runs", overrides=overrides)


def seen(folder: Any, ingest: str, trial: str, split: str, epoch: int = 0) -> list[pd.DataFrame]:
    return [
        pd.read_parquet(path)
        for path in sorted(folder.glob(f"seen-{ingest}-{trial}-*-{split}-{epoch}.parquet"))
    ]


def test_stream_gives_same_rows_and_bundle_as_memory(
    clean_ray: Any, files: Any, checked_in_this_process: Any
) -> None:
    results = {ingest: swept(files, ingest) for ingest in ("memory", "stream")}
    values = {}
    for ingest, result in results.items():
        assert result.trials["completed"] == 2, result.notes
        for trial, ranks in (("0000", 1), ("0001", 2)):
            parts = seen(files, ingest, trial, "train")
            assert [len(part) for part in parts] == [500 // ranks] * ranks
            values[ingest, trial] = pd.concat(parts).sort_values("id", ignore_index=True)
        values[ingest, "valid"] = seen(files, ingest, "0001", "valid", 1)[0]
        values[ingest, "check"] = pd.read_parquet(files / f"seen-{ingest}-0000-0-check.parquet")
    for key in ("0000", "0001", "valid", "check"):
        pd.testing.assert_frame_equal(values["stream", key], values["memory", key], rtol=1e-6)
    first, second = (
        seen(files, "stream", "0001", "train", 0),
        seen(files, "stream", "0001", "train", 1),
    )
    for before, after in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(before, after)
    raw = pd.read_parquet("valid.parquet").drop(columns="y")
    one, other = (
        sweeps.load_bundle(result.bundle).predict(raw)["probability_yes"]
        for result in results.values()
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)
    again = invoke("rerun", results["stream"].dir, "0001")
    assert again.exit_code == 0, again.stderr


@pytest.mark.long
def test_a_stream_is_split_by_the_hash_of_its_rows_and_refitted(
    clean_ray: Any, files: Any, checked_in_this_process: Any
) -> None:
    result = swept(files, "stream", "1", valid="0.2", trials=1)
    train, valid = (
        seen(files, "stream", "0000", "train")[0],
        seen(files, "stream", "0000", "valid")[0],
    )
    assert (
        50 < len(valid) < 150
        and not set(train["id"]) & set(valid["id"])
        and len(train) + len(valid) == 500
    )
    exported = invoke("export", result.dir, "--refit", "-o", files / "refitted")
    assert exported.exit_code == 0, exported.stderr
    assert (
        json.loads((files / "refitted" / "manifest.json").read_text())["training"]["refit"]["rows"]
        == 500
    )


@pytest.mark.long
def test_changed_files_are_noticed_when_a_sweep_is_resumed(
    clean_ray: Any, files: Any, checked_in_this_process: Any
) -> None:
    rate = "space.params.lr={uniform: [0, 0.1]}"
    result = swept(files, "stream", "1", trials=1, overrides=(rate,))
    assert sweeps.resume(result.dir, add_trials=1).trials["completed"] == 2
    os.utime(files / "train" / "1.parquet")
    with pytest.raises(InputError, match="the data has changed since the sweep began"):
        sweeps.resume(result.dir, add_trials=1)


def test_a_gang_that_would_need_the_cpus_of_ray_data_is_refused(clean_ray: Any, files: Any) -> None:
    text = SPACE.format(
        ingest="stream", workers=2, rates="[0.0]", valid="0.2", trials=1, log=files / "seen"
    ).replace("0.25", "1")
    (files / "stream.yaml").write_text(text)
    with pytest.raises(
        InputError,
        match=r"2 workers × 1 CPU can never run.*; 1 of the cluster's CPUs are left to Ray Data",
    ):
        sweeps.run("stream.yaml", dir=files / "runs")


EVENTS = """
import json
import os
import signal
import tempfile
from pathlib import Path

import psutil
import ray.train
from sweeps import trial


def happen(event):
    # Kill this worker, or the data actor of the same Ray.
    if event == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    for process in psutil.Process().parent().children():
        if any("_DataActor" in part for part in process.cmdline()):
            process.kill()
            process.wait(20)


def train(config):
    cur, context = trial.current(), ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    state = {"epoch": 0, "loss": 10.0}
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
    start = state["epoch"]
    event = config["events"].get(cur.trial, {})
    happened = Path(config["log"], f"happened-{cur.trial}")
    grows = config["epochs"] == "grow"
    last = 500 if grows else config["epochs"]
    if grows and start and world == 2:
        last = start + 2  # the gang has grown again
    for epoch in range(start + 1, last + 1):
        rows = 0
        for number, batch in enumerate(ray.train.get_dataset_shard("train")\
.iter_batches(batch_size=50)):
            rows += len(batch["x"])
            if epoch == 2 and number == 1 and event.get("rank") == rank and not happened.exists():
                happened.touch()
                happen(event["what"])
            if config["each_batch"]:
                ray.train.report({"loss": config["x"] + 1 / (number + 1)})
        with Path(config["log"], f"rows-{cur.trial}").open("a") as file:
            file.write(f"{epoch} {world} {rows}\\n")
        state = {"epoch": epoch, "loss": state["loss"] - config["x"]}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            checkpoint = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
            ray.train.report({"loss": state["loss"]}, checkpoint=checkpoint)
"""
EVENT_SPACE = """
name: events
trainer: {{loop: "stream_events:train"}}
data: {{train: train, label: y, valid: valid.parquet, ingest: stream}}
objective: {{metric: loss, goal: minimize}}
scheduler: {scheduler}
limits: {{max_trials: {trials}, max_concurrent_trials: {together}, max_failures: {failures}}}
space:
  preprocessor: [SimpleImputer, StandardScaler]
  scaling: {{num_workers: {workers}, resources_per_worker: {{CPU: 0.25}}}}
  params: {{x: {x}, log: "{log}", epochs: {epochs}, each_batch: {each_batch}, events: {events}}}
"""


def swept_with_events(folder: Any, **changed: Any) -> Any:
    """Run a sweep whose loop is `EVENTS`. Return the result, and the recorded trials."""
    given = {
        "trials": 1,
        "together": 1,
        "failures": 0,
        "workers": 2,
        "x": 0.1,
        "epochs": 3,
        "each_batch": False,
        "events": {},
    }
    (folder / "stream_events.py").write_text(EVENTS)
    text = EVENT_SPACE.format(**given | {"scheduler": "{name: none}", "log": folder} | changed)
    (folder / "events.yaml").write_text(text)
    result = sweeps.run("events.yaml", dir=folder / "runs")
    study = read(result.dir)
    assert study is not None and not result.trials["failed"], result.notes
    wait_until(lambda: not coordinators(), 30, "the split coordinators to end")
    return result, study.trials


def coordinators() -> list[int]:
    """Return the ids of the processes of this Ray that distribute a stream among the ranks of a
    gang.
    """
    return [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "ray::SplitCoordinator" in child.name()
    ]


def epochs_of(folder: Any, trial: str) -> list[tuple[int, int, int]]:
    """Return (epoch, number of workers, number of rows) for each epoch that a rank has finished."""
    lines = (folder / f"rows-{trial}").read_text().splitlines()
    return [
        (int(epoch), int(workers), int(rows))
        for epoch, workers, rows in (line.split() for line in lines)
    ]


@pytest.mark.long
def test_asha_stops_trials_in_the_middle_of_an_epoch(clean_ray: Any, files: Any) -> None:
    """An epoch has five batches, and each batch is a step.

    The gang reads the stream of the next trial afterwards.
    """
    asha = "{name: asha, max_t: 8, grace_period: 2, reduction_factor: 2}"
    result, trials = swept_with_events(
        files, scheduler=asha, trials=4, x="{grid: [0.0, 1.0, 2.0, 3.0]}", each_batch=True
    )
    assert result.trials == {"completed": 1, "pruned": 3, "failed": 0}
    assert [t.result.steps for t in trials] == [8, 2, 2, 2] and all(t.attempt == 1 for t in trials)


@pytest.mark.long
def test_a_lost_worker_and_a_lost_data_actor_cost_a_stream_no_trial(
    clean_ray: Any, files: Any
) -> None:
    events = {"0000": ("die", 1), "0001": ("die", 0), "0002": ("lose the data actor", 0)}
    given = json.dumps(
        {trial: {"what": what, "rank": rank} for trial, (what, rank) in events.items()}
    )
    result, trials = swept_with_events(files, trials=4, failures=2, events=given)
    assert result.trials["completed"] == 4 and len(list(files.glob("happened-*"))) == 3
    assert [t.attempt for t in trials[:2]] == [2, 2], "a lost worker costs an attempt"
    for t in trials:
        assert [step for step, _ in t.curve] == [1, 2, 3]
        finished = epochs_of(files, t.id)
        assert {rows for _, _, rows in finished} == {250} and {
            epoch for epoch, _, _ in finished
        } == {1, 2, 3}


@pytest.mark.long
def test_members_of_a_population_read_streams(clean_ray: Any, files: Any) -> None:
    pbt = "{name: pbt, max_t: 6, perturbation_interval: 2, quantile_fraction: 0.5}"
    x = "{uniform: [0.0, 1.0]}"
    result, trials = swept_with_events(
        files, scheduler=pbt, trials=4, together=4, workers=1, epochs=6, x=x
    )
    assert result.trials["completed"] == 4 and any(t.lineage for t in trials)
    for t in trials:
        assert {rows for _, _, rows in epochs_of(files, t.id)} == {500}


@pytest.mark.long
def test_an_elastic_gang_loses_a_worker_while_it_streams(clean_ray: Any, files: Any) -> None:
    events = json.dumps({"0000": {"what": "die", "rank": 1}})
    _, (trial,) = swept_with_events(
        files, workers="{elastic: [1, 2]}", epochs="grow", failures=2, events=events
    )
    sizes = [size.workers for size in trial.sizes]
    assert trial.attempt > 1 and sizes[:2] == [2, 1], sizes
    assert [step for step, _ in trial.curve] == list(range(1, trial.result.steps + 1)), (
        "no report is lost or doubled"
    )
    assert {(world, rows) for _, world, rows in epochs_of(files, trial.id)} <= {(2, 250), (1, 500)}


@pytest.mark.long
def test_the_shipped_space_runs_with_a_ray_of_its_own(tmp_path: Path) -> None:
    """Two workers train with DDP on the machine's CPUs, and Ray Data has CPUs beside them."""
    process = command(
        "run", REPO / "search_spaces" / "streaming.yaml", "--dir", tmp_path / "runs", "--json"
    )
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"]["failed"] == 0 and sum(result["trials"].values()) == 4
    assert result["best"]["value"] < 1
    frame = datasets.load_digits(as_frame=True).frame.drop(columns="target").head(5)
    assert len(sweeps.load_bundle(result["bundle"]).predict(frame)) == 5


@pytest.mark.long
@pytest.mark.timeout(900)
def test_streams_of_four_times_the_object_store_do_not_deadlock(tmp_path: Path) -> None:
    """`python -m benchmarks.streaming 20` runs this 20 times."""
    from benchmarks import streaming

    assert streaming.write_files(tmp_path / "data") >= 4 * streaming.STORE_BYTES
    for number in range(3):
        done = streaming.run(tmp_path / f"{number}", tmp_path / "data")
        assert done["shared"] < 3 * streaming.STORE_BYTES, done
