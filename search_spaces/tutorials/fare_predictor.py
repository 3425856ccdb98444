"""The three-layer network of Ray's taxi tutorial, for `taxi_network.yaml`."""

from __future__ import annotations

import torch
from torch import nn


class FarePredictor(nn.Module):
    """Predict from the features of a trip whether its tip is big.

    Args:
        in_features: Number of features. The trainer gives this argument, because the signature
            names it.
        width: Number of units of the first layer.
    """

    def __init__(self, in_features: int, width: int = 256):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(in_features, width),
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Linear(width, 16),
            nn.ReLU(),
            nn.BatchNorm1d(16),
            nn.Linear(16, 1),
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logit of a big tip, shape (batch, 1).

        The loss and the predictions apply the sigmoid.
        """
        logits: torch.Tensor = self.layers(features)
        return logits
