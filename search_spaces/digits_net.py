"""A small convolutional network for `torch.yaml`."""

from __future__ import annotations

import torch
from torch import nn


class ConvNet(nn.Module):
    """Classify images of 8 × 8 pixels.

    Args:
        out_features: Number of classes. The trainer gives this argument, because the signature
            names it.
        channels: Number of channels of the first convolution. The second one has twice as many.
        dropout: Dropout rate before the last layer.
    """

    def __init__(self, out_features: int, channels: int = 8, dropout: float = 0.0):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(8 * channels, out_features),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, out_features) for pixels of shape (batch, 64).

        There is one logit for each class.
        """
        logits: torch.Tensor = self.layers(features.reshape(-1, 1, 8, 8))
        return logits
