"""Streams that are four times as large as the object store: 20 sweeps, each with two concurrent
trials of two workers.

Each sweep has its own Ray with an object store of 100 MB. It reads 400 MB of Parquet files: once to
count the rows, once to fit a scaler, and then three epochs in each of two trials. In the middle of
each epoch, every rank reads `valid` as well, transforms a part of its rows in Ray Data's tasks, and
keeps the iterator of `train` open meanwhile. A sweep that takes longer than `LATEST` seconds counts
as a deadlock. PSS (see `benchmarks.memory`) is summed every half second over the sweep's processes
and Ray's.

    python -m benchmarks.streaming 20
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
STORE_BYTES = 100 * 10**6
FILES, ROWS, COLUMNS = 16, 62_500, 50  # 16 files of 25 MB
LATEST = 600.0
LOOP = """
import ray.train
from sweeps import trial


def train(config):
    cur = trial.current()
    train, valid = (ray.train.get_dataset_shard(name) for name in ("train", "valid"))
    for epoch in range(3):
        rows, total = 0, 0.0
        for number, batch in enumerate(train.iter_torch_batches(batch_size=4096, \
local_shuffle_buffer_size=8192)):
            rows += len(batch["x0"])
            total += float(batch["x0"].sum())
            if number == 20:  # the other blocks of train wait meanwhile
                read = sum(len(part["x0"]) for part in valid.iter_batches(batch_size=4096))
                assert read == VALID, read
                few = ray.data.from_numpy(batch["x0"].numpy()).repartition(2)\
.map_batches(lambda part: {"data": part["data"] + 1})
                assert few.count() == 4096
        assert rows == TRAIN // 2, rows
        ray.train.report({"loss": abs(total) + config["lr"]})
"""
SPACE = """
name: streaming
trainer: {{loop: "stream_loop:train"}}
data: {{train: "{data}/train", valid: "{data}/valid", ingest: stream}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 2, max_concurrent_trials: 2}}
space:
  preprocessor: [StandardScaler]
  scaling: {{num_workers: 2, resources_per_worker: {{CPU: 0.5}}}}
  params: {{lr: {{grid: [0.1, 0.2]}}}}
"""


def write_files(folder: Path) -> int:
    """Write the files of train and valid, and return the size of train in bytes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    for split, files in (("train", FILES), ("valid", 2)):
        (folder / split).mkdir(parents=True)
        for number in range(files):
            table = pa.table({f"x{i}": rng.normal(size=ROWS) for i in range(COLUMNS)})
            pq.write_table(
                table,
                folder / split / f"{number:02d}.parquet",
                compression="none",
                use_dictionary=False,
            )
    return sum(path.stat().st_size for path in (folder / "train").iterdir())


def run(folder: Path, data: Path) -> dict[str, Any]:
    """Run one sweep in a new process, and return its duration in seconds, its largest PSS in bytes
    and its result.

    Raises:
        TimeoutError: The sweep took longer than `LATEST` seconds.
        RuntimeError: The sweep or one of its trials failed.
    """
    folder.mkdir()
    (folder / "space.yaml").write_text(SPACE.format(data=data))
    loop = LOOP.replace("VALID", str(2 * ROWS)).replace("TRAIN", str(FILES * ROWS))
    (folder / "stream_loop.py").write_text(loop)
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(STORE_BYTES),
    }
    command = [
        sys.executable,
        "-m",
        "sweeps.cli",
        "run",
        str(folder / "space.yaml"),
        "--dir",
        str(folder / "runs"),
        "--json",
        "--cpus",
        "2",
    ]
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=folder
    )
    peaks: dict[str, float] = {}
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peaks, over), daemon=True)
    watcher.start()
    try:
        out, err = process.communicate(timeout=LATEST)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        raise TimeoutError(f"the sweep did not end within {LATEST:.0f} s") from None
    finally:
        over.set()
        watcher.join()
    if process.returncode != 0 or json.loads(out)["trials"]["completed"] != 2:
        raise RuntimeError(f"{out}\n{err}")
    return {"seconds": time.monotonic() - began, **peaks}


def _watch(pid: int, peaks: dict[str, float], over: threading.Event) -> None:
    """Every half second, update the largest sum of PSS of a process and its descendants, and its
    part in shared memory.
    """
    import psutil

    from benchmarks.memory import memory_by_role

    while not over.wait(0.5):
        try:
            usage = memory_by_role(pid)
        except psutil.NoSuchProcess:  # The sweep has just ended.
            return
        for key, amount in (("pss", sum(usage.values())), ("shared", usage["shared"])):
            peaks[key] = max(peaks.get(key, 0), amount)


def main(runs: int) -> int:
    """Run sweeps one after another, and print a line for each and a summary."""
    folder = Path(tempfile.mkdtemp(prefix="sweeps-streaming-"))
    try:
        size = write_files(folder / "data")
        print(
            f"train has {size / 1e6:.0f} MB, the object store {STORE_BYTES / 1e6:.0f} MB",
            flush=True,
        )
        done = []
        for number in range(runs):
            done.append(run(folder / f"{number}", folder / "data"))
            print(
                f"run {number + 1}: " + ", ".join(_shown(*item) for item in done[-1].items()),
                flush=True,
            )
        for key in done[0]:
            values = [each[key] for each in done]
            print(
                f"{key}: median {_shown(key, statistics.median(values))}, largest "
                f"{_shown(key, max(values))}"
            )
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shown(key: str, value: float) -> str:
    return f"{value:.1f} s" if key == "seconds" else f"{key} {value / 1e6:,.0f} MB"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
