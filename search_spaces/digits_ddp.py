"""Train a network on images of digits with torch's DistributedDataParallel.

The script also runs without sweeps: `torchrun --nproc_per_node=2 search_spaces/digits_ddp.py --lr
0.05`.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import sweeps


def network(width: int) -> nn.Module:
    """Return the network, with one hidden layer."""
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def main() -> None:
    """Train on the ranks of torchrun or of a sweep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    images, labels = load_digits(return_X_y=True)
    x, x_valid, y, y_valid = map(
        torch.as_tensor,
        train_test_split(images.astype(np.float32) / 16, labels, test_size=0.2, random_state=0),
    )
    net = network(args.width)
    model, optimizer = (
        DistributedDataParallel(net),
        torch.optim.SGD(net.parameters(), args.lr, momentum=0.9),
    )

    folder = Path(os.environ.get("SWEEPS_CHECKPOINT_DIR", "checkpoint"))
    folder.mkdir(exist_ok=True)
    first = 1
    if (folder / "latest.pt").exists():  # the trial was interrupted, or the scheduler had paused it
        state = torch.load(folder / "latest.pt", map_location="cpu")
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1

    for epoch in range(first, args.epochs + 1):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))[rank::size]
        for rows in order.split(32):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            logits = net(x_valid)
        metrics = {
            "valid-mlogloss": cross_entropy(logits, y_valid),
            "valid-accuracy": (logits.argmax(1) == y_valid).float().mean(),
        }
        if rank == 0:
            state = {
                "model": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
                "width": args.width,
            }
            torch.save(state, folder / "latest.pt")
        sweeps.report(metrics, checkpoint=folder)  # does nothing on other ranks than 0
    dist.destroy_process_group()


class Digits:
    """The trained network, for the bundle."""

    def __init__(self, net: nn.Module):
        self.net = net

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the probability of each digit, shape (n, 10)."""
        with torch.no_grad():
            return (
                self.net(torch.as_tensor(frame.to_numpy(np.float32) / 16))
                .softmax(1)
                .double()
                .numpy()
            )


def load(folder: str) -> Digits:
    """Load the network of a checkpoint."""
    state = torch.load(Path(folder, "latest.pt"), map_location="cpu")
    net = network(state["width"])
    net.load_state_dict(state["model"])
    return Digits(net)


if __name__ == "__main__":
    main()
