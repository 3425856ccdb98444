"""A loop that fills a GPU gets a line that says what to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sweeps.core.host.exit_causes import exit_cause
from sweeps.execution.worker.error_hints import gpu_memory_hint

TORCH = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.19 GiB"
)
TEXTS = (
    "[12:00:00] common.h:45: parallel_for failed: cudaErrorMemoryAllocation: out of memory",
    "[12:00:00] Memory allocation error on worker 0: [dh::ThrowOOMError] requested 12 GiB",
    "[CUDA] out of memory /src/cuda/cuda_utils.cu 23",
    "Error: Out of memory. Requested 1234.5 MB; Free 12.3 MB",
)


@pytest.mark.parametrize("error", [TORCH, *map(RuntimeError, TEXTS)])
def test_a_full_gpu_is_explained_in_one_line(error: Any) -> None:
    said = gpu_memory_hint(error)
    assert (
        said is not None
        and "\n" not in said
        and said.startswith("space.scaling.resources_per_worker: ")
    )


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 20 GiB"), RuntimeError("CUDA error: no device")]
)
def test_other_errors_are_left_as_they_are(error: Any) -> None:
    assert gpu_memory_hint(error) is None


def test_a_full_gpu_does_not_count_as_the_death_of_the_process() -> None:
    assert exit_cause(TORCH) is None
