"""The loops of the documentation and of `search_spaces/` train on a GPU, here on a fake one."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray.train.torch
import ray.train.v2.torch.train_loop_utils as ray_torch
import torch

from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop, small_table
from tests.commands import REPO
from tests.documents import BLOCKS, module_named
from tests.fake_device import CPU, DEVICE, FakeGpu

FILES = {
    path.relative_to(REPO).as_posix(): path.read_text()
    for path in REPO.glob("search_spaces/**/*.py")
}
PAGES = {f"{b.page}: {name}": b.text for b in BLOCKS if (name := module_named(b))}
SOURCES = {name: text for name, text in (FILES | PAGES).items() if "torch" in text}
# The script of torchrun trains on CPUs: its process group is `gloo`, and it moves nothing.
ON_CPU = "search_spaces/digits_ddp.py"


class Shard(FakeShard):
    """Shard whose batches are on the GPU, as those of Ray Data are by default."""

    def iter_torch_batches(
        self, batch_size: Any = None, dtypes: Any = None, device: Any = DEVICE, **options: Any
    ) -> Iterator[Any]:
        size = batch_size or len(self.frame)
        for start in range(0, len(self.frame), size):
            rows = self.frame.iloc[start : start + size]
            columns = {name: np.stack(list(values)) for name, values in rows.items()}
            yield {
                name: torch.as_tensor(values, dtype=dtypes).to(device)
                for name, values in columns.items()
            }


def numbers(features: int, label: str = "y") -> dict[str, Shard]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((32, features)), columns=[f"x{i}" for i in range(features)])
    frame = frame.rename(columns={"x0": "x"}) if features == 1 else frame
    frame[label] = np.arange(32) % 2
    return {"train": Shard(frame), "valid": Shard(frame)}


def images() -> dict[str, Shard]:
    pixels = list(np.zeros((16, 32, 32, 3), np.uint8))
    frame = pd.DataFrame({"image": pixels, "y": np.arange(16) % 2})
    return {"train": Shard(frame), "valid": Shard(frame)}


VIT = {"patch_size": 16, "depth": 1, "heads": 1, "width": 8, "precision": "float32"} | {
    "lr": 0.1,
    "weight_decay": 0.0,
    "batch_size": 8,
    "epochs": 2,
}
STREAM = {"width": 4, "lr": 0.1, "epochs": 2, "shuffle": 8, "batch_size": 8}
CHECKPOINTS = {"lr": 0.1, "batch_size": 16, "accumulate": 2, "epochs": 2, "checkpoint_every": 1}
# The parameters and the shards of each loop.
LOOPS: dict[str, list[tuple[dict[str, Any], Any]]] = {
    "docs/tutorials/torch-two-workers.md: digits.py": [
        ({"width": 4, "lr": 0.1, "epochs": 2}, functools.partial(numbers, 5))
    ],
    "search_spaces/digits_stream.py": [(STREAM, functools.partial(numbers, 5))],
    "search_spaces/tutorials/checkpoints.py": [(CHECKPOINTS, functools.partial(numbers, 64))],
    "search_spaces/tutorials/linear.py": [
        ({"lr": 0.1, "batch_size": 8, "epochs": 2, "profile": False}, functools.partial(numbers, 1))
    ],
    "search_spaces/tutorials/vit.py": [
        (VIT, images),
        (VIT | {"reader": "ray_data"}, images),
    ],
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for module in (ray.train.torch, ray_torch, ray.train.torch.train_loop_utils):
        monkeypatch.setattr(module, "get_device", lambda: DEVICE)
    prepare = functools.partial(ray.train.torch.prepare_data_loader, auto_transfer=False)
    monkeypatch.setattr(ray.train.torch, "prepare_data_loader", prepare)
    with FakeGpu() as fake:
        yield fake


def module_of(source: str, folder: Path, monkeypatch: Any) -> Any:
    """Import a source as a module."""
    file = folder / "loop_under_test.py"
    file.write_text(SOURCES[source])
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    return module


def test_every_loop_that_trains_with_torch_is_here() -> None:
    trains = {name for name, text in SOURCES.items() if ".backward()" in text}
    assert trains - {ON_CPU} == set(LOOPS)


@pytest.mark.parametrize(
    ("source", "case"), [(name, i) for name, cases in LOOPS.items() for i in range(len(cases))]
)
def test_a_loop_trains_and_continues_on_a_gpu(
    source: Any, case: Any, gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, shards = LOOPS[source][case]
    module = module_of(source, tmp_path, monkeypatch)
    current, _ = small_table("binary")
    (tmp_path / "kept").mkdir()

    def run(**options: Any) -> LoopRun:
        given = current(_cached_objects={}, check=shards()["valid"].frame.drop(columns="y"))
        return run_loop(module.train_func, config, given, shards(), tmp_path / "kept", **options)

    first = run()
    assert len(first.metrics) == 2 and all(np.isfinite([*m.values()]).all() for m in first.metrics)
    run(resume=first.checkpoints[1])


def test_every_checkpoint_is_loaded_without_a_gpu() -> None:
    snippets = {f"{b.page} {i}": b.text for i, b in enumerate(BLOCKS) if b.language == "python"}
    calls = {
        (name, call)
        for name, text in (FILES | snippets).items()
        for call in re.findall(r"torch\.load\(.*", text)
    }
    assert len(calls) > 8
    assert {call for call in calls if 'map_location="cpu"' not in call[1]} == set()


def test_the_fake_gpu_refuses_mixed_tensors(gpu: Any) -> None:
    layer = torch.nn.Linear(2, 1).to(DEVICE)
    x = torch.ones(3, 2)
    with pytest.raises(RuntimeError, match="same device"):
        layer(x)
    scores = layer(x.to(DEVICE))
    assert gpu.has(scores) and not gpu.has(scores.cpu()) and not gpu.has(x.to(CPU))
    assert gpu.has(scores[torch.tensor([0])]), "indices may be on the CPU"
    with pytest.raises(TypeError, match="numpy"):
        scores.detach().numpy()
