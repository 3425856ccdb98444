"""Seed `random`, NumPy and torch for a trial.

If a loop imports torch only after it has started, torch is seeded at this import.
"""

import contextlib
import random
import sys
from collections.abc import Iterator
from types import ModuleType

from .import_hook import ImportHook


@contextlib.contextmanager
def seed_trial(seed: int, threads: int) -> Iterator[None]:
    """Seed `random`, NumPy and torch before the `with` block, and set torch's number of threads.

    If torch is not imported yet, it is seeded when the block imports it. Without this, the first
    trial of a worker would draw other random numbers than a later trial with the same seed, because
    torch is already imported when the later trial starts.

    Args:
        seed: Seed of the trial, 0 <= seed < 2**64.
        threads: Number of threads for torch's computations.
    """
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)

    def prepare(torch: ModuleType) -> None:
        torch.set_num_threads(threads)
        torch.manual_seed(seed)

    if "torch" in sys.modules:
        prepare(sys.modules["torch"])
        yield
        return
    hook = ImportHook("torch", prepare)
    sys.meta_path.insert(0, hook)
    try:
        yield
    finally:
        if hook in sys.meta_path:  # The block has not imported torch.
            sys.meta_path.remove(hook)
