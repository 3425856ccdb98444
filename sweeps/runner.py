"""The Tune trainable: a light actor without CPUs that follows one trial of the pool after another."""

from __future__ import annotations

from typing import Any

import ray
from ray import tune


class Runner(tune.Trainable):
    """One Tune trial. Holds no CPU, or it would take it from the workers; is reused for trial after trial."""

    def setup(self, config: dict[str, Any], pool: Any = None) -> None:
        self.pool = pool
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self.trial, self.mine = config["trial"], None

    def step(self) -> dict[str, Any]:
        """Wait for the trial's next news."""
        if self.mine is None:
            self.mine = ray.get(self.pool.attach.remote(self.trial))
        progress = ray.get(self.pool.advance.remote(self.trial, self.mine))
        return {"progress": progress, "done": progress.state is not None}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to save: checkpoints are the pool's."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to load."""
