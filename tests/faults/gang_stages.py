"""A training loop and a backend that wait at a chosen stage.

Tests copy this file into a folder, which also contains the latches.

A process that reaches a stage creates the file `STAGE-RANK-PID`. It waits while the file
`hold-STAGE` exists.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import ray.train
import torch
import torch.distributed as dist
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

HERE = Path(__file__).parent
STEPS = 5


def come_to(stage: str, rank: object) -> None:
    """Create the file of this stage, and wait while the stage is held."""
    (HERE / f"{stage}-{rank}-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while (HERE / f"hold-{stage}").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(stage)
        time.sleep(0.01)


come_to("import", "any")


class _HoldingBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        worker_group.execute(_come_to_connect)
        super().on_start(worker_group, backend_config)


def _come_to_connect() -> None:
    come_to("connect", ray.train.get_context().get_world_rank())


class HoldingConfig(TorchConfig):
    """Torch's backend configuration with an additional stage before the processes connect."""

    @property
    def backend_cls(self) -> Any:
        return _HoldingBackend


def loop(config: dict[str, Any]) -> None:
    """Report five steps, each with a sum over all ranks and a checkpoint.

    Step 3 is a stage at which the test can hold the loop.
    """
    context = ray.train.get_context()
    rank, world, start = context.get_world_rank(), context.get_world_size(), 0
    if checkpoint := ray.train.get_checkpoint():
        start = json.loads(Path(checkpoint.path, "state.json").read_text())["step"]
    for step in range(start + 1, STEPS + 1):
        ones = torch.ones(1)
        if step == 3:
            come_to("train", rank)
            if rank == 0:
                come_to("before_collective", rank)
            else:
                (HERE / f"in_collective-{rank}-{os.getpid()}").touch()
        if dist.is_initialized():
            dist.all_reduce(ones)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"step": step}))
            saved = ray.train.Checkpoint.from_directory(folder) if rank == 0 else None
            if step == 3:
                come_to("checkpoint", rank)
            ray.train.report({"loss": float(ones) / world / step}, checkpoint=saved)
    come_to("end", rank)
