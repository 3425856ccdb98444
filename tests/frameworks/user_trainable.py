"""A class for Ray Tune."""

from __future__ import annotations

from typing import Any

import ray.train
from ray import tune
from users import Descent


class Linear(tune.Trainable):
    """Trains `Descent` on the prepared rows."""

    def setup(self, config: Any) -> None:
        frames = (
            ray.train.get_dataset_shard(split).materialize().to_pandas()
            for split in ("train", "valid")
        )
        self.descent = Descent(*frames, config["alpha"])

    def step(self) -> Any:
        return self.descent.step()

    def save_checkpoint(self, checkpoint_dir: Any) -> Any:
        return {"model": self.descent.model}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.descent.model = checkpoint["model"]
