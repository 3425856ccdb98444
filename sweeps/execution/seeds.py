"""Seed `random`, NumPy and torch for a trial. If a loop imports torch only after it has started, torch is seeded at this import."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from typing import Any


@contextlib.contextmanager
def seeded(seed: int, threads: int) -> Iterator[None]:
    """Seed `random`, NumPy and torch before the `with` block, and set torch's number of threads.

    If torch is not imported yet, it is seeded when the block imports it. Without this, the first trial of a worker would draw other random
    numbers than a later trial with the same seed, because torch is already imported when the later trial starts.

    Args:
        seed: Seed of the trial, 0 <= seed < 2**64.
        threads: Number of threads for torch's computations.
    """
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)

    def prepare(torch: Any) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(seed)

    if "torch" in sys.modules:
        prepare(sys.modules["torch"])
        yield
        return
    finder = _Torch(prepare)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # The finder has removed itself, as torch was imported.
            sys.meta_path.remove(finder)


class _Torch(MetaPathFinder):
    """Import hook that calls `prepare` with the module torch after torch is imported."""

    def __init__(self, prepare: Any):
        self.prepare = prepare

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.prepare(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
