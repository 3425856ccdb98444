"""Sweeps whose data is streamed: `data.ingest: stream`."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest

import sweeps
from sweeps.core.errors import InputError
from tests.commands import invoke

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
            batches = list(shard.iter_torch_batches(batch_size=32, local_shuffle_buffer_size=64, local_shuffle_seed=epoch, drop_last=True))
            assert all(len(batch["x"]) == 32 for batch in batches), batches
            doubled = shard.materialize().map_batches(lambda batch: {"x": 2 * batch["x"]})
            assert abs(doubled.sum("x") - 2 * float(rows["x"].sum())) < 1e-6
        valid = read("val", 50)
        if context.get_world_rank() == 0:
            valid.to_parquet(f"{name}-valid-{epoch}.parquet")
            cur.check.to_parquet(f"{name}-check.parquet")
        loss = float((valid["x"] ** 2).mean()) + config["lr"] + epoch
        with tempfile.TemporaryDirectory() as folder:
            state = {"step": epoch + 1, "weight": float(rows["x"].sum()), "mean": float(rows[cur.label].mean())}
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
def files(tmp_path, monkeypatch):
    """A working directory with the folder `train` of three files, the file `valid.parquet`, and the loop."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(3, 2, 640), "id": np.arange(640.0), "color": rng.choice(["red", "blue"], 640)})
    frame.loc[::9, "x"] = np.nan
    frame["y"] = np.where(frame["id"] % 3 == 0, "yes", "no")
    (tmp_path / "train").mkdir()
    for number, (begin, end) in enumerate([(0, 30), (30, 300), (300, 500)]):
        frame[begin:end].to_parquet(tmp_path / "train" / f"{number}.parquet", index=False)
    frame[500:].to_parquet(tmp_path / "valid.parquet", index=False)
    (tmp_path / "stream_loop.py").write_text(LOOP)
    return tmp_path


def swept(folder, ingest: str, workers: str = "{grid: [1, 2]}", rates: str = "[0.0]", valid: str = "valid.parquet", trials: int = 2):
    text = SPACE.format(ingest=ingest, workers=workers, rates=rates, valid=valid, trials=trials, log=folder / "seen")
    (folder / f"{ingest}.yaml").write_text(text)
    return sweeps.run(f"{ingest}.yaml", dir=folder / "runs")


def seen(folder, ingest: str, trial: str, split: str, epoch: int = 0) -> list[pd.DataFrame]:
    return [pd.read_parquet(path) for path in sorted(folder.glob(f"seen-{ingest}-{trial}-*-{split}-{epoch}.parquet"))]


def test_a_stream_gives_ranks_the_same_rows_as_memory_and_makes_the_same_bundle(clean_ray, files, checked_in_this_process):
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
    first, second = seen(files, "stream", "0001", "train", 0), seen(files, "stream", "0001", "train", 1)
    for before, after in zip(first, second, strict=True):
        pd.testing.assert_frame_equal(before, after)
    raw = pd.read_parquet("valid.parquet").drop(columns="y")
    predictions = [sweeps.load_bundle(result.bundle).predict(raw)["probability_yes"] for result in results.values()]
    np.testing.assert_allclose(*predictions, rtol=1e-6)
    again = invoke("rerun", results["stream"].dir, "0001")
    assert again.exit_code == 0, again.stderr


def test_a_stream_is_split_by_the_hash_of_its_rows_and_refitted(clean_ray, files, checked_in_this_process):
    result = swept(files, "stream", "1", valid="0.2", trials=1)
    train, valid = seen(files, "stream", "0000", "train")[0], seen(files, "stream", "0000", "valid")[0]
    assert 50 < len(valid) < 150 and not set(train["id"]) & set(valid["id"]) and len(train) + len(valid) == 500
    exported = invoke("export", result.dir, "--refit", "-o", files / "refitted")
    assert exported.exit_code == 0, exported.stderr
    assert json.loads((files / "refitted" / "manifest.json").read_text())["made"]["refit"]["rows"] == 500


def test_changed_files_are_noticed_when_a_sweep_is_resumed(clean_ray, files, checked_in_this_process):
    result = swept(files, "stream", "1", trials=1)
    assert sweeps.resume(result.dir, add_trials=1).trials["completed"] == 2
    os.utime(files / "train" / "1.parquet")
    with pytest.raises(InputError, match="the data has changed since the sweep began"):
        sweeps.resume(result.dir, add_trials=1)


def test_a_gang_that_would_need_the_cpus_of_ray_data_is_refused(clean_ray, files):
    text = SPACE.format(ingest="stream", workers=2, rates="[0.0]", valid="0.2", trials=1, log=files / "seen").replace("0.25", "1")
    (files / "stream.yaml").write_text(text)
    with pytest.raises(InputError, match=r"2 workers × 1 CPU can never run.*; 1 of the cluster's CPUs are left to Ray Data"):
        sweeps.run("stream.yaml", dir=files / "runs")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_streams_of_four_times_the_object_store_do_not_deadlock(tmp_path):
    """`python -m benchmarks.streaming 20` runs this 20 times."""
    from benchmarks import streaming

    assert streaming.write_files(tmp_path / "data") >= 4 * streaming.STORE_BYTES
    for number in range(3):
        done = streaming.run(tmp_path / f"{number}", tmp_path / "data")
        assert done["shared"] < 3 * streaming.STORE_BYTES, done
