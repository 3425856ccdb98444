"""Record what a training step costs on one, two and four workers.

`python -m benchmarks.search_quality.record_gangs` trains multilayer perceptrons with
DistributedDataParallel (gloo) and writes gangs.json. The global batch stays the same, so each of n
workers gets 1/n of the batch. The cost of a step is the CPU time of all workers
(`time.process_time`), not the wall time, so the result depends little on other programs and on the
number of cores. Time in which a worker waits for another worker is not included.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "gangs.json"
WORKERS = (1, 2, 4)
BATCHES, UNITS, LAYERS = (16, 64, 256, 512), (64, 256, 1024), (1, 3, 5)
FEATURES, CLASSES = 54, 7
ROUNDS, STEPS = 3, 8


def steps(rank: int, workers: int, port: int, found: Any) -> None:
    """Measure every network on one rank of a gang, and put (network, CPU seconds of a step) pairs
    into a queue.
    """
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=workers)
    for batch, units, layers in itertools.product(BATCHES, UNITS, LAYERS):
        widths = [FEATURES, *(max(CLASSES, units >> i) for i in range(layers)), CLASSES]
        parts = [
            part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())
        ]
        network: nn.Module = nn.Sequential(*parts[:-1])
        model = DistributedDataParallel(network) if workers > 1 else network
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        x, y = torch.randn(batch // workers, FEATURES), torch.randint(CLASSES, (batch // workers,))
        times = []
        for _ in range(ROUNDS + 1):
            began = time.process_time()
            for _ in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
            times.append((time.process_time() - began) / STEPS)
        found.put(((batch, units, layers), min(times[1:])))
    distributed.destroy_process_group()


def main() -> None:
    """Measure all gangs and write the file."""
    from torch import multiprocessing

    context = multiprocessing.get_context("spawn")
    rows = []
    for workers in WORKERS:
        found = context.Queue()
        ranks = [
            context.Process(target=steps, args=(rank, workers, 29610 + workers, found))
            for rank in range(workers)
        ]
        for one in ranks:
            one.start()
        total: dict[tuple[int, int, int], float] = {}
        for _ in range(workers * len(BATCHES) * len(UNITS) * len(LAYERS)):
            network, seconds = found.get()
            total[network] = total.get(network, 0.0) + seconds
        for one in ranks:
            one.join()
        rows += [
            [workers, *network, round(seconds, 7)] for network, seconds in sorted(total.items())
        ]
    text = json.dumps(
        {"columns": ["workers", "batch", "units", "layers", "cpu_seconds_a_step"], "rows": rows}
    )
    FILE.write_text(text.replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
