"""The Tune trainable: an actor without CPUs that follows one trial of the pool at a time."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray import tune

# A runner retries its calls for this long after the pool was lost, in seconds. Ray restarts the pool in a second or two.
POOL_BACK_WITHIN = 60.0


class Runner(tune.Trainable):
    """Actor of a Tune trial. The actor holds no CPU, so that workers can use all CPUs. Tune reuses the actor for other trials."""

    def setup(self, config: dict[str, Any], pool: Any = None, slots: int = 1) -> None:
        """Prepare the runner for its first trial.

        Args:
            config: The id of the trial, under `trial`.
            pool: Handle of the pool.
            slots: Number of runners that Tune runs at the same time.
        """
        self.pool, self.slots = pool, slots
        self.name = ray.get_runtime_context().get_actor_id()
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Prepare the runner for another trial. Return True, so that Tune reuses the actor."""
        self._take(new_config)
        return True

    def _take(self, config: dict[str, Any]) -> None:
        self.trial, self.mine = config["trial"], None

    def step(self) -> dict[str, Any]:
        """Wait until the trial makes progress; return this progress.

        Raises:
            RayActorError: The pool was lost and not available again within `POOL_BACK_WITHIN` seconds.
        """
        give_up: float | None = None
        while True:
            try:
                if self.mine is None:
                    self.mine = ray.get(self.pool.attach.remote(self.trial, self.name, self.slots))
                progress = ray.get(self.pool.advance.remote(self.trial, self.mine))
                return {"progress": progress, "done": progress.state is not None}
            except ray.exceptions.RayActorError:  # The pool's process was lost. Ray restarts the pool, which continues the trial.
                self.mine, now = None, time.monotonic()
                give_up = give_up or now + POOL_BACK_WITHIN
                if now > give_up:
                    raise
                time.sleep(0.1)

    def cleanup(self) -> None:
        """Tell the pool that Tune ends this runner."""
        self.pool.detach.remote(self.name)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Do nothing: the workers store the checkpoints of the trial."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Do nothing: the workers load the checkpoints of the trial."""
