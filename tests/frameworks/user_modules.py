"""LightningModules and a data module, as users write them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch


class Net(pl.LightningModule):  # type: ignore[misc]
    """A perceptron with dropout and BatchNorm. It logs a loss on train and on valid."""

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        task: Any,
        width: int = 8,
        lr: float = 0.05,
        optimizer: str = "adam",
        schedule: Any = None,
        gamma: float = 0.5,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        hidden = torch.nn.Linear(
            in_features, width, bias=False
        )  # Adam would scale the rounding errors of a bias before BatchNorm
        self.layers = torch.nn.Sequential(
            hidden,
            torch.nn.BatchNorm1d(width),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(width, out_features),
        )

    def forward(self, x: Any) -> Any:
        out = self.layers(x)
        return out[:, 0] if self.hparams.out_features == 1 else out

    def loss(self, batch: Any) -> Any:
        x, y = batch
        if self.hparams.task == "multiclass":
            return torch.nn.functional.cross_entropy(self(x), y)
        if self.hparams.task == "binary":
            return torch.nn.functional.binary_cross_entropy_with_logits(self(x), y.float())
        return torch.nn.functional.mse_loss(self(x), (y - 1000) / 50)

    def predict_step(self, batch: Any, batch_idx: Any) -> Any:
        return self(batch) * 50 + 1000 if self.hparams.task == "regression" else self(batch)

    def training_step(self, batch: Any, batch_idx: Any) -> Any:
        loss = self.loss(batch)
        self.log("train-loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: Any) -> None:
        self.log("valid-loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[self.hparams.optimizer]
        optimizer = kind(self.parameters(), lr=self.hparams.lr)
        if self.hparams.schedule == "plateau":
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, patience=0, factor=self.hparams.gamma
            )
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "monitor": "valid-loss"},
            }
        if self.hparams.schedule == "steps":
            steps = torch.optim.lr_scheduler.ExponentialLR(optimizer, self.hparams.gamma)
            return {"optimizer": optimizer, "lr_scheduler": steps}
        if self.hparams.schedule == "cosine":
            return [optimizer], [
                torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
            ]
        return optimizer


class Probabilities(Net):
    """The same module, whose `predict_step` returns probabilities, and which does not validate."""

    validation_step = None  # type: ignore[assignment]

    def predict_step(self, batch: Any, batch_idx: Any) -> Any:
        return (
            torch.sigmoid(self(batch))
            if self.hparams.task == "binary"
            else torch.softmax(self(batch), dim=1)
        )


class Shuffled(pl.LightningDataModule):  # type: ignore[misc]
    """A data module with an ordinary DataLoader that shuffles."""

    def __init__(self, batch_size: int = 16, rows: int = 96) -> None:
        super().__init__()
        x = torch.tensor(np.random.default_rng(0).normal(size=(rows, 5)), dtype=torch.float32)
        self.data, self.size = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), batch_size

    def train_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.data, batch_size=self.size, shuffle=True)

    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(self.data, batch_size=self.size)


def loaders(batch_size: int = 16) -> Any:
    """Return a pair of DataLoaders."""
    module = Shuffled(batch_size)
    return module.train_dataloader(), module.val_dataloader()
