"""Networks, losses and datasets that a user of the trainer `torch` would bring."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn


class Net(nn.Sequential):
    """A perceptron with dropout, whose sizes come from the data."""

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        width: int = 16,
        dropout: float = 0.0,
        norm: bool = False,
    ) -> None:
        norms = [nn.BatchNorm1d(width)] if norm else []
        super().__init__(
            nn.Linear(in_features, width),
            *norms,
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(width, out_features),
        )


def lazy(num_classes: Any) -> Any:
    """Return a network that learns its number of inputs from the first batch."""
    return nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, num_classes))


def probability(in_features: Any) -> Any:
    """Return a network whose output is a probability."""
    return nn.Sequential(nn.Linear(in_features, 1), nn.Sigmoid())


def linear(in_features: Any) -> Any:
    """Return a network that starts with the same weights in every trial."""
    network = nn.Linear(in_features, 1)
    nn.init.constant_(network.weight, 0.1)
    nn.init.zeros_(network.bias)
    return network


class Attention(nn.Module):
    """A small vision transformer for one channel."""

    def __init__(
        self,
        input_shape: Any,
        num_classes: Any,
        patch: int = 2,
        width: int = 16,
        depth: int = 2,
        heads: int = 2,
    ) -> None:
        super().__init__()
        side = input_shape[0]
        self.patch = patch
        self.embed = nn.Linear(patch * patch, width)
        self.position = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.1, batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, num_classes)

    def forward(self, images: Any) -> Any:
        n, size = len(images), self.patch
        pixels = (
            images.float().unfold(1, size, size).unfold(2, size, size).reshape(n, -1, size * size)
        )
        tokens = self.embed(pixels) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens.mean(dim=1))


class TwoInputs(nn.Module):
    """A network for numbers and images."""

    def __init__(self, out_features: Any) -> None:
        super().__init__()
        self.numbers, self.images = nn.LazyLinear(8), nn.LazyLinear(8)
        self.head = nn.Linear(8, out_features)

    def forward(self, features: Any, image: Any) -> Any:
        return self.head(torch.relu(self.numbers(features) + self.images(image.float().flatten(1))))


def focal(outputs: Any, targets: Any, gamma: float = 2.0) -> Any:
    """Return the focal loss of a binary classification."""
    loss = nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return ((1 - torch.exp(-loss)) ** gamma * loss).mean()


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    """Rows with random noise, which only rows of train have."""

    def __init__(self, features: Any, train: Any, noise: float = 0.1) -> None:
        self.values, self.noise = (
            torch.tensor(features.to_numpy(np.float32)),
            noise if train else 0.0,
        )

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> torch.Tensor:
        return (
            self.values[row]
            + self.noise * torch.randn(self.values.shape[1])
            + self.noise * float(np.random.normal())
        )


def two_inputs(features: Any, train: Any) -> Any:
    """Return rows as dicts of tensors."""
    images = torch.tensor(features.to_numpy(np.float32)).reshape(len(features), 1, -1)
    return [{"features": row[0, :2], "image": row} for row in images]


def digits() -> Any:
    """Return images of digits, in three classes: 0, 1, and all others."""
    import pandas as pd
    from sklearn.datasets import load_digits

    data = load_digits()
    return pd.DataFrame(
        {"image": list(data.images.astype(np.uint8)), "digit": np.minimum(data.target, 2)}
    )


def loss_of_a_mean(outputs: Any, targets: Any) -> Any:
    """Return the mean of the errors. The loss of each row is not available."""
    return (outputs - targets).abs().mean()
