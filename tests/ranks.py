"""Call a function on two ranks, in two processes without Ray."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

from tests.ports import free_port


def call_on_two_ranks(
    function: Callable[..., Any], *args: Any, timeout: float, group: bool = True
) -> list[Any]:
    """Call `function(rank, *args)` in two new processes. Return the result of each rank.

    Args:
        function: A function of a module, which the new processes import.
        args: Further arguments.
        timeout: Seconds after which the processes are killed.
        group: True if PyTorch connects the two processes.

    Raises:
        AssertionError: The function failed on a rank. The message is the traceback.
    """
    port = free_port()
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    processes = [
        context.Process(target=_call, args=(function, rank, port, group, answers, args))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    try:
        results = {}
        for _ in processes:
            rank, result, error = answers.get(timeout=timeout)
            assert error is None, f"rank {rank}: {error}"
            results[rank] = result
        return [results[0], results[1]]
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def _call(
    function: Callable[..., Any],
    rank: int,
    port: int,
    group: bool,
    answers: Any,
    args: tuple[Any, ...],
) -> None:
    """Set the environment of a rank as torchrun does, and call the function."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "0",
    }
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        if group:
            import torch

            torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
        answers.put((rank, function(rank, *args), None))
        if group:
            torch.distributed.destroy_process_group()
    except BaseException:
        answers.put((rank, None, traceback.format_exc()))
