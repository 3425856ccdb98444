"""Training loops that misbehave."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any


def kills_itself(config: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Enough(BaseException):
    """An error that does not inherit from `Exception`. Some frameworks raise such errors."""


def misbehaves(config: Any) -> None:
    import ray
    import ray.train
    import torch

    rank, how = ray.train.get_context().get_world_rank(), config["how"]
    if how == "raises everywhere":
        raise ValueError("every rank")
    if how == "exits":
        sys.exit(3)
    if how == "raises its own kind":
        raise Enough("enough for now")
    if how == "ends Ray":
        ray.shutdown()
    if how == "raises alone" and rank == 1:
        raise ValueError("only rank 1")
    if how == "saves in parts":
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, f"rank{rank}").write_text("x" * 100_000)
                torch.distributed.barrier()
                ray.train.report(
                    {"loss": 1.0}, checkpoint=ray.train.Checkpoint.from_directory(folder)
                )
        return
    total = torch.ones(1)
    torch.distributed.all_reduce(total)  # when one raises alone, the other waits here for ever
    ray.train.report({"loss": float(total)})
    if how == "destroys the group":
        torch.distributed.destroy_process_group()


def _first_time(config: Any) -> bool:
    """Return True at the first call in a test.

    The mark on disk is written before the process may die.
    """
    mark = Path(config["latch"], "died")
    if mark.exists():
        return False
    mark.touch()
    return True


def ddp_until_killed(config: Any) -> None:
    import ray.train
    import torch

    rank = ray.train.get_context().get_world_rank()
    for _ in range(2):
        if rank == 1 and _first_time(config):
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(torch.ones(1))
        ray.train.report({"loss": 1.0})


def boosts_until_killed(config: Any) -> None:
    import numpy as np
    import ray.train
    import xgboost

    rank = ray.train.get_context().get_world_rank()
    x = np.random.default_rng(rank).normal(size=(64, 2))
    train = xgboost.DMatrix(x, x[:, 0])

    class Report(xgboost.callback.TrainingCallback):
        def after_iteration(self, model: Any, epoch: Any, evals_log: Any) -> bool:
            if rank == 1 and _first_time(config):
                os.kill(os.getpid(), signal.SIGKILL)
            ray.train.report({"loss": 1.0})
            return False

    xgboost.train({"nthread": 1}, train, num_boost_round=2, callbacks=[Report()])


def dies_once(config: Any) -> None:
    import ray.train

    for step in range(1, 5):
        ray.train.report({"loss": 1.0})
        if step == 2 and _first_time(config):
            os.kill(os.getpid(), signal.SIGKILL)


def wait_for_ever() -> None:

    threading.Event().wait()


def hangs(config: Any) -> None:
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    ray.train.report({"loss": 1.0})
    if config["how"] == "everywhere" or (config["how"] == "on rank 1" and rank == 1):
        wait_for_ever()


def dies_late_and_hangs(config: Any) -> None:
    """Use most of the time limit, then kill the process. In the next attempt, hang."""
    import ray.train

    ray.train.report({"loss": 1.0})
    if _first_time(config):
        time.sleep(2.5)
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for_ever()


def reports_unequally(config: Any) -> None:
    """Report as often as the parameters say for each rank, with checkpoints on all ranks if the
    parameters say so.
    """
    import ray.train

    for _ in range(config["reports"][ray.train.get_context().get_world_rank()]):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "empty").touch()
            ray.train.report({"loss": 1.0}, checkpoint=ray.train.Checkpoint.from_directory(folder))


def dies(config: Any) -> None:
    """Report once, and then die in the way that the parameters name."""
    import ray.train

    ray.train.report({"loss": 1.0})
    if config["how"] == "exits":
        os._exit(3)
    if config["how"] == "aborts":
        os.abort()
    os.kill(os.getpid(), signal.SIGSEGV if config["how"] == "segfaults" else signal.SIGKILL)
    wait_for_ever()
