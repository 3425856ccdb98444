"""Read and restore the state of torch in a worker: settings, process groups, and cached memory."""

import contextlib
import os
import sys
from typing import Any

# The result of `settings` right after the import of torch: a trial may be the first to import it.
DEFAULTS = ("torch.float32", "cpu", True, "highest", False, False, (False, False))


def settings() -> tuple[Any, ...]:
    """Return the settings of torch that loops often change.

    They are the default type, the default device, whether gradients are enabled, the precision of
    matrix products, two settings of cuDNN, and two of deterministic algorithms.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return DEFAULTS
    return (
        str(torch.get_default_dtype()),
        str(torch.get_default_device()),
        torch.is_grad_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
    )


def restore(before: tuple[Any, ...]) -> None:
    """Restore the settings that `settings` has returned. Do nothing if they have not changed."""
    if settings() == before:
        return
    torch = sys.modules["torch"]
    dtype, device, grad, precision, benchmark, deterministic, (enabled, warn_only) = before
    torch.set_default_dtype(getattr(torch, dtype.removeprefix("torch.")))
    torch.set_default_device(None if device == "cpu" else device)
    torch.set_grad_enabled(grad)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
    torch.backends.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)


def groups() -> frozenset[Any]:
    """Return the process groups of `torch.distributed` in this process; empty if there are none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return frozenset()
    if not torch.distributed.is_initialized():
        return frozenset()
    return frozenset(torch.distributed.distributed_c10d._world.pg_map)


def create_group_of_one(gpu: bool) -> frozenset[Any]:
    """Create a process group of `torch.distributed` with only this process, unless there is one.

    Also set the environment variables, such as `RANK` and `WORLD_SIZE`, that Ray Train sets.

    Args:
        gpu: True if the worker has a GPU.

    Returns:
        All process groups of this process.
    """
    import torch.distributed

    dist: Any = torch.distributed  # Its types lack `HashStore`.
    if dist.is_available() and not dist.is_initialized():
        os.environ.update(
            dict.fromkeys(("RANK", "LOCAL_RANK", "NODE_RANK"), "0")
            | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "1")
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpu else "gloo", store=dist.HashStore(), rank=0, world_size=1
        )
    return groups()


def destroy_groups(own: frozenset[Any]) -> None:
    """Destroy the process groups of `torch.distributed` that loops have created.

    Call this function only after every rank has ended the trial. Otherwise, a peer that is still
    creating the same group gets an error.

    Args:
        own: Process groups that the backend has created to connect the gang. They stay.
    """
    for group in groups() - own:
        with contextlib.suppress(Exception):
            sys.modules["torch"].distributed.destroy_process_group(group)


def uses_cuda() -> bool:
    """Return whether torch has initialized CUDA in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and bool(torch.cuda.is_initialized())


def empty_cuda() -> None:
    """Release the GPU memory that torch caches, and reset torch's peak statistics.

    Do nothing if torch has not initialized CUDA.
    """
    if uses_cuda():
        torch = sys.modules["torch"]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
