"""A LightningModule that classifies images of digits, for `lightning.yaml`."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Digits(pl.LightningModule):
    """A small convolutional network for images of 8 × 8 pixels.

    The trainer passes `out_features` (the number of classes) and `max_epochs`. The other arguments
    come from `space.params`.
    """

    def __init__(
        self, out_features: int, max_epochs: int, channels: int, dropout: float, lr: float
    ):
        super().__init__()
        self.lr, self.max_epochs = lr, max_epochs
        self.layers = nn.Sequential(
            *(
                nn.Unflatten(1, (1, 8, 8)),
                nn.Conv2d(1, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ),
            *(
                nn.Conv2d(channels, channels, 3, padding=1),
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Flatten(),
            ),
            *(nn.Dropout(dropout), nn.Linear(16 * channels, out_features)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of images; `x` has the shape (n, 64)."""
        return self.layers(x)

    def training_step(
        self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        x, y = batch
        loss = cross_entropy(self(x), y)
        self.log("train-loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        """Log the loss of a batch of valid."""
        x, y = batch
        self.log("valid-loss", cross_entropy(self(x), y))

    def configure_optimizers(self) -> dict[str, object]:
        """Return AdamW with a cosine schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.max_epochs),
        }
