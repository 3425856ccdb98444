"""The Tune trainable: a light actor without CPUs that follows one trial of the pool after another."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray import tune

# A pool whose process was lost is up again in a second or two.
POOL_BACK_WITHIN = 60.0


class Runner(tune.Trainable):
    """One Tune trial. Holds no CPU, or it would take it from the workers; is reused for trial after trial."""

    def setup(self, config: dict[str, Any], pool: Any = None, slots: int = 1) -> None:
        self.pool, self.slots = pool, slots
        self.name = ray.get_runtime_context().get_actor_id()
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self.trial, self.mine = config["trial"], None

    def step(self) -> dict[str, Any]:
        """Wait for the trial's next news."""
        give_up: float | None = None
        while True:
            try:
                if self.mine is None:
                    self.mine = ray.get(self.pool.attach.remote(self.trial, self.name, self.slots))
                progress = ray.get(self.pool.advance.remote(self.trial, self.mine))
                return {"progress": progress, "done": progress.state is not None}
            except ray.exceptions.RayActorError:  # the pool's process is lost; another one takes the trial up
                self.mine, now = None, time.monotonic()
                give_up = give_up or now + POOL_BACK_WITHIN
                if now > give_up:
                    raise
                time.sleep(0.1)

    def cleanup(self) -> None:
        self.pool.detach.remote(self.name)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing to save: checkpoints are the pool's."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing to load."""
